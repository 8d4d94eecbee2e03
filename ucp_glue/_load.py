# SPDX-License-Identifier: BSD-3-Clause
"""Loads the extension module, so that the process has one UCX and it knows utofu."""

from __future__ import annotations

import contextlib
import importlib
import os
from pathlib import Path

from ucp_glue import plugin
from uct_tofu import _paths


def _has_ucp() -> bool:
    with open("/proc/self/maps") as maps:
        return any("/libucp" in line for line in maps)


def _from_search_path() -> bool:
    """Whether LD_LIBRARY_PATH leads to a UCX that is not the wheel's."""
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        if folder and (Path(folder) / "libucp.so.0").exists():
            return Path(folder).resolve() != _paths.ucx_lib_dir()
    return False


def extension():
    """The module ``ucp_glue._ucp``.

    UCX reads the plugin's directory when it is loaded, so that is set first; what
    can't be done then, ``Context`` says in words when it matters.  The extension
    needs libucp.so.0 and takes the one that is loaded.  If none is, the wheel's is
    loaded as ucxx does it, under the same file name: so ucxx, imported later, gets
    the same copy.

    Source: ld.so(8), UCX_PLUGIN_PATH, the libucx-cu12 wheel.
    """
    with contextlib.suppress(ImportError, RuntimeError):
        plugin.bring(check=False)
    with contextlib.suppress(ImportError):
        if not _has_ucp() and not _from_search_path():
            importlib.import_module("libucx").load_library()
    return importlib.import_module("ucp_glue._ucp")
