# SPDX-License-Identifier: BSD-3-Clause
"""The transport core as Python objects: md, memory, iface, ep, completion.

Thin: one method is one function of cython/core/tofu.h, with UCT's verbs.

Threads: a MemoryDomain and its Memory may be used from any thread.  An Iface
and its Endpoints belong to one thread at a time.  Calls on them hold the GIL,
which they need for microseconds: nothing here waits for a peer, except
``Completion.wait``, which polls and lets other threads run between polls.

Lifetimes: a child holds its parent.  An operation in flight holds its endpoint,
its remote key and its memory, also when the program forgets them all.
``close()`` is explicit, harmless when repeated, and refuses while something
still depends on the object.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release,
    PyObject_GetBuffer)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int8_t, intptr_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy
from uct_tofu cimport tofu as c
from uct_tofu._utofu cimport Backend

import enum
import sys
import time
import warnings

from uct_tofu.errors import status_error

include "_fork.pxi"


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


cdef int warn_unclosed(what) except -1:
    warnings.warn(f"{what!r} was not closed", ResourceWarning,
                  stacklevel=2)
    return 0


cdef bytes as_bytes(buffer):
    """The bytes of a bytes-like object; bytes(3) would be three zeros."""
    return bytes(memoryview(buffer))


include "_memory.pxi"
include "_completion.pxi"
include "_iface.pxi"
include "_ep.pxi"
