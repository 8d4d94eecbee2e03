# SPDX-License-Identifier: BSD-3-Clause
"""UCP as Python objects: context, worker, endpoint, listener, memory, request.

Thin: one method is one function of ucp.h.  Every operation returns a ``Request``
that can be waited for, awaited or polled.

Threads: a Context and its Memory may be used from any thread; a Worker and what
belongs to it from the thread that made it, or from all when it was made with
``multi_thread=True``.  The GIL is released where a call can take long.

Lifetimes: a child holds its parent, an operation in flight holds its buffers, its
endpoint and its remote key.  ``close()`` closes children first and is harmless when
repeated.  Python handlers run in progress, outside of UCX: they may post, progress
and close; what they raise is raised from progress.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_ND, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release,
    PyObject_GetBuffer)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from ucp_glue cimport ucp as c
from ucp_glue.ucp cimport (
    glue_am_t, glue_connection_t, glue_event_t, glue_op_t, ucp_conn_request_h,
    ucp_ep_h, ucp_ep_params_t, ucp_request_param_t, ucp_rkey_h, ucs_status_ptr_t,
    ucs_status_t)

import atexit
import os
import re
import socket
import struct
import threading
import types
import warnings
import weakref
import zlib

from uct_tofu._seconds import seconds

from ucp_glue import _driver, plugin
from ucp_glue._inbox import BACKLOG, Inbox
from ucp_glue.errors import (
    STATUS_NAMES, UcpClosedError, UcpThreadError, UcpTruncatedError, status_class, status_error)

# Not a name of the module: those are gone when the interpreter ends and finds what was
# left open.
cdef object warn = warnings.warn

cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() nogil

cdef extern from "poll.h" nogil:
    cdef struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *fds, unsigned long count, int timeout)
    enum:
        POLLIN

cdef extern from "unistd.h" nogil:
    int usleep(unsigned microseconds)

include "uct_tofu/_fork.pxi"
include "uct_tofu/_integer.pxi"
include "uct_tofu/_whole.pxi"
include "uct_tofu/_attribute.pxi"

# Bytes from which on posting and progress may copy or register for so long that
# other threads should run meanwhile.
cdef size_t LARGE = 32768
# Rounds of progress: with the GIL before it is released, and before sleeping.
cdef unsigned SPIN_WITH_GIL = 64
cdef unsigned SPIN_WITHOUT_GIL = 3000
# No wake-up is known to get lost; this bounds the harm if one does.
cdef int SLEEP_MS = 100
# Seconds that closing a listener waits for UCX' thread, which has little to do.
cdef double QUIESCE_S = 5
cdef uint64_t FULL_MASK = 0xffffffffffffffff


cdef double now() noexcept nogil:
    cdef timespec ts
    clock_gettime(CLOCK_MONOTONIC, &ts)
    return ts.tv_sec + ts.tv_nsec * 1e-9


cdef double deadline_of(timeout) except? -1:
    """When a wait of so many seconds ends; None waits for ever."""
    if timeout is None:
        return float("inf")
    return now() + <double>seconds(timeout)


cdef int fail(str call, int status, detail) except -1:
    """Raise the exception for a failed call."""
    raise status_error(call, status, detail)


cdef int warn_unclosed(what) except -1:
    warn(f"{what!r} was not closed", ResourceWarning, stacklevel=2)
    return 0


cdef bytes as_bytes(buffer, str name, str needed="bytes-like"):
    """The bytes of a bytes-like object; bytes(3) would be three zeros."""
    if type(buffer) is bytes:
        return buffer
    try:
        view = memoryview(buffer)
    except TypeError:
        raise TypeError(f"{name} must be {needed}, not "
                        f"{type(buffer).__name__}") from None
    return bytes(view)


# UCX trusts the bytes of addresses and keys.  These come over the network or out of
# files, so they travel with a kind, a length and a checksum.
cdef bytes seal(bytes kind, bytes data):
    return kind + struct.pack("<II", len(data), zlib.crc32(data)) + data


cdef bytes unseal(bytes kind, bytes data, str what):
    if len(data) < 12 or data[:4] != kind:
        raise ValueError(f"{len(data)} bytes that are not {what} of ucp_glue")
    length, checksum = struct.unpack_from("<II", data, 4)
    data = data[12:]
    if len(data) != length or zlib.crc32(data) != checksum:
        raise ValueError(f"{what} is damaged: {len(data)} bytes of {length}")
    return data


include "_context.pxi"
include "_memory.pxi"
include "_request.pxi"
include "_worker.pxi"
include "_am.pxi"
include "_ep.pxi"
include "_rma.pxi"
include "_listener.pxi"

document(Context, "features",
         "frozenset of str : what it can, of \"tag\", \"rma\" ...\n\n"
         "Source: UCX v1.22, UCP_PARAM_FIELD_FEATURES.")
document(Context, "multi_thread",
         "bool : several threads may use one of its workers.\n\n"
         "Source: UCX v1.22, UCP_PARAM_FIELD_MT_WORKERS_SHARED.")
document(Memory, "context", "Context : where it is mapped.\n\n"
         "Source: UCX v1.22, ucp_mem_map.")
document(Memory, "allocated", "bool : made by ``Context.alloc``, not by ``map``.\n\n"
         "Source: UCX v1.22, UCP_MEM_MAP_ALLOCATE.")
document(Memory, "read_only", "bool : peers only read it.\n\n"
         "Source: UCX v1.22, ucp_mem_map.")
document(Worker, "context", "Context : what it was made of.\n\n"
         "Source: UCX v1.22, ucp_worker_create.")
document(Worker, "multi_thread",
         "bool : several threads may use it at the same time.\n\n"
         "Source: UCX v1.22, UCP_WORKER_PARAM_FIELD_THREAD_MODE.")
document(Request, "worker",
         "Worker or None : whose progress completes it; None: it was over at once.\n\n"
         "Source: UCX v1.22, ucp_worker_progress.")
document(AmMessage, "worker", "Worker : where it arrived.\n\n"
         "Source: UCX v1.22, ucp_am_recv_callback_t.")
document(AmMessage, "am_id", "int : the id that it was sent to.\n\n"
         "Source: UCX v1.22, ucp_am_recv_callback_t.")
document(AmMessage, "header", "bytes : its header.\n\n"
         "Source: UCX v1.22, ucp_am_recv_callback_t.")
document(AmMessage, "data",
         "bytes, bytearray or None : the payload; None until it was received.\n\n"
         "Source: UCX v1.22, ucp_am_recv_data_nbx.")
document(AmMessage, "length", "int : bytes of the payload.\n\n"
         "Source: UCX v1.22, ucp_am_recv_callback_t.")
document(AmMessage, "rendezvous",
         "bool : the payload is still with the sender, and was announced.\n\n"
         "Source: UCX v1.22, UCP_AM_RECV_ATTR_FLAG_RNDV.")
document(AmMessage, "endpoint",
         "Endpoint or None : where an answer goes, when the sender asked for one.\n\n"
         "Source: UCX v1.22, UCP_AM_RECV_ATTR_FIELD_REPLY_EP.")
document(EpHandle, "error_handling", "bool : it fails when its peer is gone.\n\n"
         "Source: UCX v1.22, UCP_ERR_HANDLING_MODE_PEER.")
document(Endpoint, "worker", "Worker : where it begins.\n\n"
         "Source: UCX v1.22, ucp_ep_create.")
document(RemoteKey, "ep", "Endpoint : what reaches the memory.\n\n"
         "Source: UCX v1.22, ucp_ep_rkey_unpack.")
document(RemoteKey, "address", "int : of the first byte, in the peer.\n\n"
         "Source: UCX v1.22, ucp_ep_rkey_unpack.")
document(RemoteKey, "size", "int : bytes of the memory.\n\n"
         "Source: UCX v1.22, ucp_ep_rkey_unpack.")
document(RemoteKey, "read_only", "bool : peers only read it.\n\n"
         "Source: UCX v1.22, ucp_ep_rkey_unpack.")
document(Listener, "worker", "Worker : where connections come to.\n\n"
         "Source: UCX v1.22, ucp_listener_create.")
document(Listener, "host", "str : the address that it listens on.\n\n"
         "Source: UCX v1.22, ucp_listener_query.")
document(Listener, "port", "int : the port that it listens on.\n\n"
         "Source: UCX v1.22, ucp_listener_query.")
