# SPDX-License-Identifier: BSD-3-Clause
from libc.stdint cimport uint64_t
from uct_tofu._utofu cimport Backend
from uct_tofu.tofu cimport (
    tofu_completion_t, tofu_ep_t, tofu_iface_attr_t, tofu_iface_t, tofu_iov_t,
    tofu_md_t, tofu_mem_t, tofu_rkey_t)


cdef class MemoryDomain:
    cdef readonly Backend backend
    cdef tofu_md_t *md
    cdef int generation
    cdef Py_ssize_t num_ifaces
    cdef Py_ssize_t num_memories
    cdef size_t rkey_size
    cdef object __weakref__
    cdef int check(self) except -1


cdef class Memory:
    cdef readonly MemoryDomain md
    cdef readonly bint allocated
    cdef readonly bint read_only
    cdef tofu_mem_t *memh
    cdef void *start
    cdef size_t size
    cdef Py_buffer view         # of a registered buffer; obj is NULL otherwise
    cdef Py_ssize_t num_exports
    cdef Py_ssize_t num_operations
    cdef object __weakref__
    cdef int check(self) except -1


cdef class RemoteKey:
    cdef tofu_rkey_t *rkey
    cdef int generation
    cdef Py_ssize_t num_operations
    cdef int check(self) except -1


# The core knows a completion by its first member.
cdef struct completion_t:
    tofu_completion_t super
    void *owner


cdef class Completion:
    cdef completion_t completion
    cdef readonly Iface iface
    cdef Endpoint ep
    cdef str call
    cdef RemoteKey rkey
    cdef list memories
    cdef list callbacks
    cdef object data            # bytes of a get_bcopy
    cdef uint64_t word          # old value of an atomic
    cdef unsigned word_size     # 0: not an atomic
    cdef bint is_done
    cdef int final_status
    cdef object __weakref__
    cdef int started(self, int status) except -1
    cdef void finish(self, int status) noexcept


cdef struct am_arg_t:
    void *iface
    int id


cdef class Iface:
    cdef readonly MemoryDomain md
    cdef tofu_iface_t *iface
    cdef tofu_iface_attr_t limits
    cdef am_arg_t am_args[32]
    cdef list am_handlers
    cdef object on_error
    cdef object exception
    cdef int progress_depth
    cdef Py_ssize_t num_eps
    cdef Py_ssize_t num_operations
    cdef object __weakref__
    cdef int check(self) except -1
    cdef void keep_exception(self, exception) noexcept
    cdef int raise_kept(self) except -1


cdef class Endpoint:
    cdef readonly Iface iface
    cdef readonly object address
    cdef tofu_ep_t *ep
    cdef object __weakref__
    cdef int check(self) except -1
    cdef tofu_rkey_t *key(self, RemoteKey rkey) except NULL
    cdef Completion new_completion(self, str call, RemoteKey rkey)
