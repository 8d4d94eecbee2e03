# SPDX-License-Identifier: BSD-3-Clause
"""How ranks started by somebody else's launcher meet: PMI-1, PMIx or mpi4py.

Each class knows its rank and the number of ranks, and can tell one text of rank 0
to all.  That text says where rank 0's key-value server is; everything else goes
through the server, in the same way under every launcher.
"""

from __future__ import annotations

import ctypes
import glob
import os
import re
import shutil
import socket
import stat
import sys

from uct_tofu.errors import WorldError

__all__ = ["Mpi4py", "Pmi1", "Pmix", "mpi_is_initialized"]

KEY = "uct_tofu_world"


def _mapped(pattern):
    """Files mapped into this process whose base name matches."""
    found = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.split(maxsplit=5)[5:]
            name = path[0].strip() if path else ""
            if re.match(pattern, os.path.basename(name)) and name not in found:
                found.append(name)
    return found


def mpi_is_initialized():
    """Whether an MPI library in this process has been initialised.

    Source: MPI standard, MPI_Initialized.
    """
    for path in _mapped(r"libmpi(_abi|-[0-9a-f]+)?\.so"):
        flag = ctypes.c_int()
        try:
            ctypes.CDLL(path).MPI_Initialized(ctypes.byref(flag))
        except (OSError, AttributeError):
            continue
        if flag.value:
            return True
    return False


class Pmi1:
    """MPICH's process manager: lines of text over a socket that it hands over.

    The variables are PMI_FD, or PMI_PORT with PMI_ID.  MPI may be initialised on
    the same connection before and after.

    Source: MPICH, PMI-1 wire protocol.
    """

    def __init__(self):
        self._buffer = b""
        if os.environ.get("PMI_FD"):
            self.rank = int(os.environ["PMI_RANK"])
            self.size = int(os.environ["PMI_SIZE"])
            fd = int(os.environ["PMI_FD"])
            try:
                is_socket = stat.S_ISSOCK(os.fstat(fd).st_mode)
            except OSError:
                is_socket = False
            if not is_socket:
                raise WorldError(
                    f"PMI_FD={fd} is not open here: only the process that mpiexec "
                    "started has it, not the programs which that one starts"
                )
            # The number stays with MPI; this is a second name for it.
            self._sock = socket.socket(fileno=os.dup(fd))
            self._sock.setblocking(True)
        else:
            host, _, port = os.environ["PMI_PORT"].rpartition(":")
            self._sock = socket.create_connection((host, int(port)), 60)
            self._sock.settimeout(None)
            self._send(f"cmd=initack pmiid={os.environ['PMI_ID']}")
            self._receive("initack")
            values = {}
            while not {"size", "rank", "debug"} <= values.keys():
                values.update(self._receive("set"))
            self.rank, self.size = int(values["rank"]), int(values["size"])
        self._ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init")

    def _send(self, line):
        self._sock.sendall(line.encode() + b"\n")

    def _receive(self, command):
        while b"\n" not in self._buffer:
            data = self._sock.recv(4096)
            if not data:
                raise WorldError("the process manager closed the PMI connection")
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        pairs = (part.partition("=") for part in line.decode(errors="replace").split())
        values = {name: value for name, _, value in pairs}
        if values.get("cmd") != command:
            raise WorldError(f"PMI: {line!r} came where cmd={command} was expected")
        if int(values.get("rc", "0")) != 0:
            raise WorldError(f"PMI: {command} failed: {line!r}")
        return values

    def _ask(self, line, answer):
        self._send(line)
        return self._receive(answer)

    def share(self, text):
        """Rank 0's text, in every rank; collective.

        Source: MPICH, PMI-1 wire protocol.
        """
        name = self._ask("cmd=get_my_kvsname", "my_kvsname")["kvsname"]
        where = f"kvsname={name} key={KEY}"
        if self.rank == 0:
            self._ask(f"cmd=put {where} value={text}", "put_result")
        self._ask("cmd=barrier_in", "barrier_out")
        return self._ask(f"cmd=get {where}", "get_result")["value"]

    def close(self):
        """Say that this process ends in order, unless MPI will do so.

        Source: MPICH, PMI-1 wire protocol.
        """
        if not mpi_is_initialized():
            self._sock.settimeout(10)  # seconds; the process ends in any case
            self._ask("cmd=finalize", "finalize_ack")
        self._sock.close()


class _PmixProc(ctypes.Structure):
    _fields_ = [("nspace", ctypes.c_char * 256), ("rank", ctypes.c_uint32)]


class _PmixData(ctypes.Union):
    _fields_ = [
        ("string", ctypes.c_char_p),
        ("uint32", ctypes.c_uint32),
        ("flag", ctypes.c_bool),
        ("largest", ctypes.c_uint64 * 3),
    ]


class _PmixValue(ctypes.Structure):
    _fields_ = [("type", ctypes.c_uint16), ("data", _PmixData)]


class _PmixInfo(ctypes.Structure):
    _fields_ = [
        ("key", ctypes.c_char * 512),
        ("flags", ctypes.c_uint32),
        ("value", _PmixValue),
    ]


_PMIX_BOOL, _PMIX_STRING, _PMIX_UINT32 = 1, 3, 14
_PMIX_GLOBAL = 3
_PMIX_RANK_WILDCARD = 0xFFFFFFFE


def _pmix_library():
    """The libpmix of this process' MPI, else of the mpiexec on PATH, else any."""
    names = _mapped(r"libpmix\.so")
    roots = [os.environ.get("OPAL_PREFIX"), os.environ.get("PMIX_PREFIX"), sys.prefix]
    starter = shutil.which("mpiexec")
    if starter:
        roots.append(os.path.dirname(os.path.dirname(os.path.realpath(starter))))
    for root in filter(None, roots):
        for folder in ("lib", "lib64", "lib/openmpi"):
            names += sorted(glob.glob(os.path.join(root, folder, "libpmix.so.2")))
    failures = []
    for name in [*names, "libpmix.so.2", "libpmix.so"]:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            failures.append(str(error))
    raise WorldError("no libpmix loads: " + "; ".join(failures))


class Pmix:
    """Open MPI's launcher, and those that speak PMIx: through libpmix.

    Source: PMIx standard v4, PMIx_Init, PMIx_Put, PMIx_Fence, PMIx_Get.
    """

    def __init__(self):
        self._library = _pmix_library()
        self._proc = _PmixProc()
        self._check("PMIx_Init", ctypes.byref(self._proc), None, ctypes.c_size_t(0))
        self.rank = self._proc.rank
        self.size = self._get(_PMIX_RANK_WILDCARD, b"pmix.job.size", _PMIX_UINT32)

    def _check(self, name, *arguments):
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            text = self._library.PMIx_Error_string
            text.restype = ctypes.c_char_p
            words = (text(status) or b"unknown").decode(errors="replace")
            raise WorldError(f"{name} failed: {words} ({status})")

    def _get(self, rank, key, kind):
        proc = _PmixProc(self._proc.nspace, rank)
        value = ctypes.POINTER(_PmixValue)()
        self._check(
            "PMIx_Get",
            ctypes.byref(proc),
            key,
            None,
            ctypes.c_size_t(0),
            ctypes.byref(value),
        )
        # The library's memory; it is small and asked for once.
        held = value.contents
        if held.type != kind:
            raise WorldError(f"PMIx_Get: {key.decode()} has the type {held.type}")
        if kind == _PMIX_STRING:
            return held.data.string.decode()
        return held.data.uint32

    def share(self, text):
        """Rank 0's text, in every rank; collective.

        Source: PMIx standard v4, PMIx_Put, PMIx_Fence, PMIx_Get.
        """
        if self.rank == 0:
            value = _PmixValue(_PMIX_STRING)
            value.data.string = text.encode()
            self._check("PMIx_Put", _PMIX_GLOBAL, KEY.encode(), ctypes.byref(value))
            self._check("PMIx_Commit")
        collect = _PmixInfo(b"pmix.collect", 0)
        collect.value.type = _PMIX_BOOL
        collect.value.data.flag = True
        self._check(
            "PMIx_Fence",
            None,
            ctypes.c_size_t(0),
            ctypes.byref(collect),
            ctypes.c_size_t(1),
        )
        return self._get(0, KEY.encode(), _PMIX_STRING)

    def close(self):
        """End this use of libpmix; it counts its users.

        Source: PMIx standard v4, PMIx_Finalize.
        """
        self._check("PMIx_Finalize", None, ctypes.c_size_t(0))


class Mpi4py:
    """Any MPI, through mpi4py, which initialises it when it is imported.

    Source: mpi4py, MPI.Comm.bcast.
    """

    def __init__(self):
        from mpi4py import MPI

        if not MPI.Is_initialized() or MPI.Is_finalized():
            raise WorldError("mpi4py is there, but MPI is not initialised")
        self._comm = MPI.COMM_WORLD
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()

    def share(self, text):
        """Rank 0's text, in every rank; collective.

        Source: MPI standard, MPI_Bcast.
        """
        return self._comm.bcast(text, root=0)

    def close(self):
        """Nothing: MPI is ended by who started it.

        Source: MPI standard, MPI_Finalize.
        """
