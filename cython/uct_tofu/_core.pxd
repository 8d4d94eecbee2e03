# SPDX-License-Identifier: BSD-3-Clause
from libc.stdint cimport int8_t, uint8_t, uint64_t
from uct_tofu._utofu cimport Backend
from uct_tofu.tofu cimport (
    tofu_completion_t, tofu_ep_t, tofu_iface_attr_t, tofu_iface_t, tofu_iov_t,
    tofu_md_t, tofu_mem_t, tofu_pending_req_t, tofu_rkey_t)


cdef class MemoryDomain:
    cdef readonly Backend backend
    cdef tofu_md_t *md
    cdef int generation
    cdef Py_ssize_t num_ifaces
    cdef Py_ssize_t num_memories
    cdef size_t rkey_size
    cdef _Kept kept             # registrations of arrays
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


# Memory that the md has registered for operations on user's buffers.
cdef class _Registration:
    cdef tofu_mem_t *memh
    cdef char *start
    cdef size_t size
    cdef bint read_only
    cdef int generation
    cdef object owner           # weak reference to the array, None: not kept


cdef class _Kept:
    cdef dict entries           # id of an array: _Registration; oldest use first
    cdef Py_ssize_t most
    cdef void *last_array       # the one that find() found last, if it is still there
    cdef _Registration last
    cdef _Registration find(self, array)
    cdef int use(self, array, _Registration registration) except -1
    cdef int add(self, array, _Registration registration) except -1
    cdef int drop(self, key) except -1
    cdef int clear(self) except -1


cdef class RemoteKey:
    cdef tofu_rkey_t *rkey
    cdef int generation
    cdef Py_ssize_t num_operations
    cdef int check(self) except -1


cdef class RemoteMemory:
    cdef readonly RemoteKey key
    cdef readonly bint read_only
    cdef uint64_t start         # address in the peer
    cdef uint64_t length
    cdef uint64_t network
    cdef RemoteMemory part(self, uint64_t offset, uint64_t length)
    cdef int refuse_range(self, str call, object offset, size_t length) except -1
    cdef uint64_t locate(self, Iface iface, str call, object offset,
                         size_t length, bint write) except? 0


# The core knows a completion and a pending request by their first members.
cdef struct completion_t:
    tofu_completion_t super
    void *owner


cdef struct waiter_t:
    tofu_pending_req_t super
    void *owner


cdef class Request:
    cdef completion_t completion
    cdef waiter_t waiter
    cdef Py_buffer view         # of the local buffer, if has_view
    cdef readonly Iface iface
    cdef Endpoint ep
    cdef str call
    cdef RemoteKey rkey
    cdef _Registration registration
    cdef Memory memory          # the local buffer is inside it
    cdef _Iov pieces
    cdef list callbacks
    cdef list joined            # puts that wait for this flush
    cdef object data            # bytes of a get_bcopy, header of an AM
    cdef tofu_iov_t iov
    cdef char *start
    cdef size_t length
    cdef size_t sent            # bytes of an AM that went already
    cdef uint64_t remote
    cdef uint64_t operand, swap
    cdef uint64_t word          # old value of an atomic
    cdef uint64_t seq           # which of the endpoint's puts it is
    cdef uint64_t cover         # a flush: up to which put
    cdef unsigned word_size     # 0: not a fetching atomic
    cdef unsigned flags
    cdef uint8_t kind
    cdef uint8_t was_kind       # is_confirmed_by_flush: what it was
    cdef bint is_confirmed_by_flush     # its endpoint is flushed for it
    cdef size_t was_length
    cdef uint8_t am_id
    cdef uint8_t atomic_op
    cdef bint has_view
    cdef bint held
    cdef bint unconfirmed       # posted without a notice: see confirm()
    cdef bint is_done
    cdef bint is_unsent         # its endpoint was closed while it waited
    cdef int final_status
    cdef object __weakref__
    cdef object outcome(self)
    cdef void hold(self) noexcept
    cdef void release(self) noexcept
    cdef int attempt(self) noexcept
    cdef int post_zcopy(self, int kind, tofu_rkey_t *key) noexcept
    cdef int started(self, int status) except -1
    cdef void settle(self, int status) noexcept
    cdef int submit(self) except -1
    cdef int confirm(self) except -1
    cdef void become_flush(self) noexcept
    cdef void finish(self, int status) noexcept
    cdef int spin(self, long microseconds) except -1


cdef struct am_arg_t:
    void *iface
    int id
    int mode


cdef class Iface:
    cdef readonly MemoryDomain md
    # what every operation looks at, together
    cdef tofu_iface_t *iface
    cdef unsigned long owner    # identity of the thread
    cdef uint64_t network       # of the backend
    cdef Py_ssize_t num_operations
    cdef Py_ssize_t num_large   # operations for which progress may take long
    cdef int generation
    cdef int progress_depth
    cdef int outside            # sections in which the core runs without the GIL
    cdef bint has_exception
    cdef bint has_deferred
    cdef list flushes           # that found no resources
    cdef tofu_iface_attr_t limits
    cdef am_arg_t am_args[32]
    cdef list am_handlers
    cdef object on_error
    cdef object exception
    cdef list doomed            # endpoints and messages that progress shall free
    cdef readonly size_t am_backlog
    cdef dict partial           # messages of which a part came, longest idle first
    cdef size_t partial_bytes   # that they occupy
    cdef dict streams
    cdef object driver          # of the event loop
    cdef Py_ssize_t num_eps
    cdef Py_ssize_t num_views   # messages that are kept
    cdef object __weakref__
    cdef int check(self) except -1
    cdef int check_open(self) except -1
    cdef int refuse(self) except -1
    cdef int run_deferred(self) except -1
    cdef int forget_partial(self, key) except -1
    cdef void keep_exception(self, exception) noexcept
    cdef int raise_kept(self) except -1
    cdef void set_callback(self, str call, int am_id, object handler,
                           int mode) except *


cdef class Endpoint:
    cdef readonly Iface iface
    cdef readonly object address
    cdef tofu_ep_t *ep
    cdef uint64_t seq           # puts that were posted without a notice
    cdef uint64_t confirmed     # of them known to be over
    cdef list failures          # (first, last, status) of those that failed
    cdef Request flusher        # the flush that will confirm the most
    cdef uint64_t stream        # marks the parts of large messages
    cdef object __weakref__
    cdef int check(self) except -1
    cdef tofu_rkey_t *key(self, RemoteKey rkey) except NULL
    cdef void purge(self, int status) noexcept
    cdef Request new_request(self, str call, RemoteKey rkey, int kind)


cdef class _Iov:
    cdef tofu_iov_t *iov
    cdef size_t count
    cdef size_t length          # of all, bytes
    cdef list memories
