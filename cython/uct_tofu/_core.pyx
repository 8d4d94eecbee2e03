# SPDX-License-Identifier: BSD-3-Clause
"""The transport core as Python objects: md, memory, iface, ep, request.

Two levels.  ``Endpoint.put``, ``get``, ``am``, ``fetch_add`` and so on take any
contiguous buffer of any size, choose how it goes, wait for resources by themselves
and return a ``Request``.  Below are UCT's own verbs (``put_short`` ...): one method
is one function of cython/core/tofu.h.

Threads: a MemoryDomain and its Memory may be used from any thread.  An Iface
and its Endpoints belong to one thread, the one that made the Iface or called
``Iface.claim`` last; others get ``TofuThreadError``.  Ifaces of several threads run
in parallel: the GIL is released where something takes long (opening, registering,
large transfers, waiting).  Only ``Request.wait`` and ``await`` wait.

Lifetimes: a child holds its parent.  An operation in flight holds its endpoint,
its remote key and its memory, also when the program forgets them all.
``close()`` is explicit, harmless when repeated, and refuses while something
still depends on the object.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_ANY_CONTIGUOUS, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo,
    PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer)
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE)
from cpython.exc cimport (
    PyErr_CheckSignals, PyErr_SetObject, PyErr_WriteUnraisable)
from cpython.long cimport PyLong_AsVoidPtr, PyLong_FromVoidPtr
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport (
    SIZE_MAX, int8_t, intptr_t, uint8_t, uint32_t, uint64_t, uintptr_t)
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from uct_tofu cimport tofu as c
from uct_tofu._utofu cimport Backend

import enum
import math
import operator
import os
import struct
import sys
import time
import types
import warnings
import weakref
import zlib

from uct_tofu._seconds import seconds
from uct_tofu.errors import (
    STATUS_NAMES as _STATUS_NAMES, TofuBufferError, TofuCallerError, TofuClosedError,
    TofuContiguityError, TofuDtypeError, TofuError, TofuForkError, TofuInUseError, TofuKeyError,
    TofuRangeError, TofuReadOnlyError, TofuThreadError, status_error)

# Not a name of the module: those are gone when the interpreter ends and finds what was
# left open.
cdef object warn = warnings.warn


cdef extern from "sched.h" nogil:
    int sched_yield()

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(object)


include "_fork.pxi"
include "_integer.pxi"
include "_whole.pxi"
include "_attribute.pxi"


class AtomicOp(enum.IntEnum):
    """Operation of ``atomic_post`` and ``atomic_fetch``; SWAP only fetches.

    Source: cython/core/tofu.h, tofu_atomic_op_t.
    """

    ADD = c.TOFU_ATOMIC_ADD
    AND = c.TOFU_ATOMIC_AND
    OR = c.TOFU_ATOMIC_OR
    XOR = c.TOFU_ATOMIC_XOR
    SWAP = c.TOFU_ATOMIC_SWAP


cdef int fail(call, intptr_t status, detail) except -1:
    """Raise the exception for a failed call."""
    raise status_error(call, status, detail)


cdef int refuse(cls, call, detail) except -1:
    """Raise the exception of one kind of mistake."""
    raise cls(call, c.TOFU_ERR_INVALID_PARAM, detail)


cdef int warn_unclosed(what) except -1:
    warn(f"{what!r} was not closed", ResourceWarning, stacklevel=2)
    return 0


cdef bytes as_bytes(buffer, str name):
    """The bytes of a bytes-like object; bytes(3) would be three zeros."""
    try:
        view = memoryview(buffer)
    except TypeError:
        raise TypeError(f"{name} must be bytes-like, not "
                        f"{type(buffer).__name__}") from None
    return bytes(view)


# What closing raises while the object is in use
cdef tuple USED = (TofuInUseError, TofuBufferError)

include "_block.pxi"
include "_buffer.pxi"
include "_memory.pxi"
include "_remote.pxi"
include "_request.pxi"
include "_am.pxi"
include "_iface.pxi"
include "_transfer.pxi"
include "_ep.pxi"

document(MemoryDomain, "backend", "Backend : the uTofu library that it uses.\n\n"
         "Source: cython/core/tofu.h, tofu_md_open.")
document(Memory, "md", "MemoryDomain : where it is registered.\n\n"
         "Source: cython/core/tofu.h, tofu_mem_reg.")
document(Memory, "allocated",
         "bool : made by ``MemoryDomain.alloc``, not by ``reg``.\n\n"
         "Source: cython/core/tofu.h, tofu_mem_alloc.")
document(Memory, "read_only", "bool : peers only read it.\n\n"
         "Source: cython/core/tofu.h, TOFU_MEM_READ_ONLY.")
document(RemoteMemory, "key", "RemoteKey : what UCT's verbs reach it by.\n\n"
         "Source: cython/core/tofu.h, tofu_rkey_unpack.")
document(RemoteMemory, "read_only", "bool : peers only read it.\n\n"
         "Source: cython/core/tofu.h, TOFU_MEM_READ_ONLY.")
document(Iface, "md", "MemoryDomain : the memory that it reaches.\n\n"
         "Source: cython/core/tofu.h, tofu_iface_open.")
document(Iface, "am_backlog", "int : bytes of messages that a stream holds at most.\n\n"
         "Source: uct_tofu/_loop.py.")
document(Endpoint, "iface", "Iface : where it begins.\n\n"
         "Source: cython/core/tofu.h, tofu_ep_create.")
document(Endpoint, "address", "bytes : ``Iface.address`` of the peer.\n\n"
         "Source: cython/core/tofu.h, tofu_ep_create.")
document(Request, "iface", "Iface : whose progress completes it.\n\n"
         "Source: cython/core/tofu.h, tofu_iface_progress.")
