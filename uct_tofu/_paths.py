# SPDX-License-Identifier: BSD-3-Clause
"""Where the files of this package and of the libucx wheel are.

The package's own files are found beside its extension modules: in an editable
install the Python files stay in the source tree while everything that was built
is elsewhere.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from pathlib import Path


def package_dir() -> Path:
    """Directory that holds ``lib/`` and ``include/``.

    Source: cython/CMakeLists.txt, install rules.
    """
    spec = importlib.util.find_spec("uct_tofu._utofu")
    if spec is None or not spec.origin:
        raise ImportError(
            "uct_tofu was imported from its source tree and is not built; "
            "install it with pip, for example 'pip install .'"
        )
    return Path(spec.origin).resolve().parent


def lib_dir() -> Path:
    """Directory of ``libtofucom.so`` (the emulator), for ``-L`` and rpath.

    Source: cython/CMakeLists.txt, install rules.
    """
    return package_dir() / "lib"


def include_dir() -> Path:
    """Directory of ``utofu.h``, for ``-I``.

    Source: cython/CMakeLists.txt, install rules.
    """
    return package_dir() / "include"


def plugin_dir() -> Path:
    """Directory of the UCX plugin, the value for ``UCX_PLUGIN_PATH``.

    Source: cython/CMakeLists.txt, install rules.
    """
    return package_dir() / "lib" / "ucx"


def emulator_path() -> Path:
    """The emulator's ``libtofucom.so``.

    Source: cython/CMakeLists.txt, install rules.
    """
    return lib_dir() / "libtofucom.so"


def ucx_dir() -> Path:
    """Directory of the libucx wheel: ``bin/``, ``lib/``, ``include/``.

    Raises ``ImportError`` when the wheel is not installed.

    Source: the libucx-cu12 wheel.
    """
    spec = importlib.util.find_spec("libucx")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(
            "no libucx package in this Python (pip install 'libucx-cu12>=1.22,<1.23')"
        )
    return Path(next(iter(spec.submodule_search_locations))).resolve()


def ucx_lib_dir() -> Path:
    """Directory of ``libucp.so.0`` and its companions.

    Source: the libucx-cu12 wheel.
    """
    return ucx_dir() / "lib"


def ucx_tool(name: str) -> Path:
    """A tool of the libucx wheel, e.g. ``ucx_perftest``.

    Raises ``FileNotFoundError`` when the wheel lacks it.

    Source: the libucx-cu12 wheel.
    """
    path = ucx_dir() / "bin" / name
    if not path.is_file():
        raise FileNotFoundError(f"the libucx package has no bin/{name}: {path}")
    return path


def ucx_version() -> str:
    """Version of the libucx wheel, e.g. ``1.22.0``; ``unknown`` when it does not say.

    Source: the libucx-cu12 wheel, UCX_WHEEL_VERSION.txt, which older ones lack.
    """
    file = ucx_dir() / "UCX_WHEEL_VERSION.txt"
    if file.is_file():
        return file.read_text().strip()
    try:
        return importlib.metadata.version("libucx-cu12")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def prepend_path(value: str, existing: str | None) -> str:
    """Put ``value`` in front of a colon-separated list, once.

    Source: ld.so(8), LD_LIBRARY_PATH.
    """
    rest = [p for p in (existing or "").split(os.pathsep) if p and p != value]
    return os.pathsep.join([value, *rest])
