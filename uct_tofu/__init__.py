# SPDX-License-Identifier: BSD-3-Clause
"""UCX on Fujitsu's Tofu interconnect.

``Backend``, ``Vcq`` and ``Vbg`` are the uTofu API; ``MemoryDomain``, ``Iface`` and
``Endpoint`` are the transport core, with the verbs of UCX's UCT layer.  Both
run on the machine's uTofu library or on the emulator of this package.  ``world``
lets the processes of a job exchange addresses.  The other functions say where the
package's files are.  Importing loads no library;
``UCT_TOFU_BACKEND`` (auto, tofu, emulator) is read when the first backend is
loaded.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil

from uct_tofu import _paths
from uct_tofu.errors import (
    PeerFailedError,
    TofuBufferError,
    TofuCallerError,
    TofuClosedError,
    TofuContiguityError,
    TofuDtypeError,
    TofuError,
    TofuForkError,
    TofuInUseError,
    TofuKeyError,
    TofuOperationError,
    TofuPeerError,
    TofuRangeError,
    TofuReadOnlyError,
    TofuRetryError,
    TofuThreadError,
    UtofuBusyError,
    UtofuError,
    WorldError,
)
from uct_tofu.world import world

# In the root of a clone Python finds this folder before the installed package;
# the extension modules are in the latter.
__path__ = pkgutil.extend_path(__path__, __name__)

try:
    __version__ = importlib.metadata.version("uct-tofu")
except importlib.metadata.PackageNotFoundError:
    __version__ = "not installed"

# Public names that live in other modules, most of them extensions; loaded on first
# use.
_EXTENSION = {
    "ArmwOp": "_utofu",
    "Backend": "_utofu",
    "Descriptors": "_utofu",
    "MrqNotice": "_utofu",
    "MrqType": "_utofu",
    "OnesidedFlag": "_utofu",
    "ReduceOp": "_utofu",
    "RegisteredMemory": "_utofu",
    "Vbg": "_utofu",
    "VbgSetting": "_utofu",
    "Vcq": "_utofu",
    "AtomicOp": "_core",
    "Request": "_core",
    "Endpoint": "_core",
    "Iface": "_core",
    "Memory": "_core",
    "Message": "_loop",
    "MessageStream": "_loop",
    "MemoryDomain": "_core",
    "RemoteKey": "_core",
    "RemoteMemory": "_core",
}

__all__ = [
    "PeerFailedError",
    "TofuBufferError",
    "TofuCallerError",
    "TofuClosedError",
    "TofuContiguityError",
    "TofuDtypeError",
    "TofuError",
    "TofuForkError",
    "TofuInUseError",
    "TofuKeyError",
    "TofuOperationError",
    "TofuPeerError",
    "TofuRangeError",
    "TofuReadOnlyError",
    "TofuRetryError",
    "TofuThreadError",
    "UtofuBusyError",
    "UtofuError",
    "WorldError",
    "emulator_path",
    "include_dir",
    "lib_dir",
    "plugin_dir",
    "world",
]
__all__ += _EXTENSION


def __getattr__(name):
    module = _EXTENSION.get(name)
    if module is None:
        raise AttributeError(f"module 'uct_tofu' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"uct_tofu.{module}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted([*globals(), *_EXTENSION])


def plugin_dir() -> str:
    """Directory of the UCX plugin: the value for ``UCX_PLUGIN_PATH``.

    Source: UCX, UCX_PLUGIN_PATH.
    """
    return str(_paths.plugin_dir())


def lib_dir() -> str:
    """Directory of the emulator's ``libtofucom.so``, for ``-L`` and an rpath.

    Source: cython/CMakeLists.txt, install rules.
    """
    return str(_paths.lib_dir())


def include_dir() -> str:
    """Directory of ``utofu.h``, for ``-I``.

    Source: cython/CMakeLists.txt, install rules.
    """
    return str(_paths.include_dir())


def emulator_path() -> str:
    """File name of the emulator's ``libtofucom.so``.

    Source: cython/CMakeLists.txt, install rules.
    """
    return str(_paths.emulator_path())
