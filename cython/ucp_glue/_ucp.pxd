# SPDX-License-Identifier: BSD-3-Clause
from libc.stdint cimport uint64_t
from ucp_glue.ucp cimport (
    glue_am_source_t, glue_am_t, glue_connection_t, glue_event_t, glue_failure_t,
    glue_list_t, glue_op_t, glue_source_t, ucp_context_h, ucp_ep_h, ucp_ep_params_t,
    ucp_listener_h, ucp_mem_h, ucp_request_param_t, ucp_rkey_h, ucp_worker_h,
    ucs_status_ptr_t)


cdef class Context:
    cdef ucp_context_h context
    cdef int generation
    cdef readonly frozenset features
    cdef readonly bint multi_thread
    cdef object workers         # weak
    cdef object memories        # weak
    cdef object __weakref__
    cdef int check(self) except -1


cdef class Memory:
    cdef readonly Context context
    cdef readonly bint allocated
    cdef readonly bint read_only
    cdef ucp_mem_h memh
    cdef void *start
    cdef size_t size
    cdef Py_buffer view         # of a mapped buffer; obj is NULL otherwise
    cdef Py_ssize_t num_exports
    cdef object __weakref__
    cdef int check(self) except -1


cdef class Worker:
    cdef readonly Context context
    cdef readonly bint multi_thread
    cdef ucp_worker_h worker
    cdef glue_list_t list       # events that UCP's callbacks noted
    cdef glue_event_t *ready    # taken from the list, to be acted on
    cdef unsigned long thread
    cdef int generation
    cdef int busy               # calls that are inside UCX without the GIL
    cdef int sleepers
    cdef int fd                 # event descriptor, -1: none
    cdef int num_large          # in flight, worth releasing the GIL for
    cdef bint closing
    cdef uint64_t events        # how many were acted on
    cdef Py_ssize_t num_requests
    cdef Request first          # those in flight, newest first
    cdef Request spare
    cdef list errors            # raised by handlers, for progress to raise
    cdef list orphans           # forgotten objects of UCX, to be closed here
    cdef set eps                # EpHandle
    cdef set rkeys              # as int
    cdef set held               # data of active messages, as int
    cdef set listeners
    cdef dict am_handlers       # id -> (handler, automatic, AmSource)
    cdef dict am_sources        # id -> AmSource, for as long as the worker lives
    cdef object driver
    cdef object __weakref__
    cdef int check(self) except -1
    cdef int check_open(self) except -1
    cdef int step(self) except -1
    cdef int drain(self) except -1
    cdef int adopt(self) except -1
    cdef int keep(self, exception) except -1
    cdef int raise_kept(self) except -1
    cdef int wait_event(self, double deadline) except -1
    cdef Request take(self, str call)
    cdef Request settle(self, Request request, ucs_status_ptr_t ptr)
    cdef int on_am(self, glue_am_t *am) except -1
    cdef int on_failure(self, EpHandle handle) except -1
    cdef int cancel_receives(self, EpHandle handle, int status) except -1
    cdef Request close_handle(self, EpHandle handle, bint force)
    cdef int run_down(self, double deadline, list late) except -1
    cdef int discard_events(self, bint destroyed) except -1
    cdef int shut(self, bint force, double timeout) except -1


cdef class Request:
    cdef glue_op_t op
    cdef readonly Worker worker
    cdef Endpoint ep
    cdef EpHandle bound         # of a receive that fails with its endpoint
    cdef EpHandle closes        # of a close: what it closes
    cdef RemoteKey rkey
    cdef Request previous, next
    cdef str call
    cdef object keep            # what must stay alive besides the buffer
    cdef object value
    cdef list callbacks
    cdef Py_buffer view
    cdef uint64_t words[2]      # operand and old value of an atomic
    cdef int word_size          # 0: not a fetching atomic
    cdef int final_status
    cdef int instead_of_cancel  # why it was cancelled
    cdef bint has_view, is_done, is_linked, is_recv, is_tag, is_large
    cdef int acquire(self, buffer, str name, bint writable) except -1
    cdef void release(self) noexcept
    cdef int finish(self) except -1
    cdef str where(self)


cdef class EpHandle:
    cdef ucp_ep_h ep            # NULL: closed, or about to be
    cdef glue_failure_t failure
    cdef int status             # UCS_OK until it fails
    cdef bint is_closed         # UCX is done with it
    cdef readonly bint error_handling
    cdef bint by_port           # connected to a listener
    cdef str peer
    cdef bytes client           # struct sockaddr_storage, of one that a listener made
    cdef object endpoint        # weak reference
    cdef object on_error


cdef class Endpoint:
    cdef readonly Worker worker
    cdef EpHandle handle
    cdef object __weakref__
    cdef int check_made(self) except -1
    cdef int check(self) except -1
    cdef Request remote(self, str call, RemoteKey key, Py_ssize_t offset,
                        size_t length, int alignment)
    cdef Request atomic(self, int op, RemoteKey key, value, offset, size, bint fetch,
                        swap)


cdef class RemoteKey:
    cdef readonly Endpoint ep
    cdef ucp_rkey_h rkey
    cdef readonly object address
    cdef readonly Py_ssize_t size
    cdef readonly bint read_only
    cdef uint64_t base
    cdef Py_ssize_t num_operations
    cdef int check(self) except -1


cdef class AmSource:
    cdef glue_am_source_t source


cdef class AmMessage:
    cdef readonly Worker worker
    cdef readonly int am_id
    cdef readonly bytes header
    cdef readonly object data
    cdef readonly Py_ssize_t length
    cdef readonly bint rendezvous
    cdef readonly Endpoint endpoint
    cdef void *desc


cdef class Listener:
    cdef readonly Worker worker
    cdef readonly str host
    cdef readonly int port
    cdef ucp_listener_h listener
    cdef glue_source_t source
    cdef bytes address          # struct sockaddr_storage
    cdef int accepting          # threads that make an endpoint for a client
    cdef bint error_handling
    cdef object handler
    cdef object inbox
    cdef object on_error
    cdef object __weakref__
    cdef int check(self) except -1
    cdef int shut(self) except -1
    cdef int refuse(self, ucp_listener_h listener) except -1
    cdef int quiesce(self) except -1
    cdef int on_connection(self, glue_connection_t *connection) except -1
