# SPDX-License-Identifier: BSD-3-Clause
from libc.stdint cimport uint64_t
from uct_tofu.tofu_dl cimport tofu_backend, tofu_functions
from uct_tofu.utofu cimport utofu_stadd_t, utofu_vbg_id_t, utofu_vcq_hdl_t

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass


cdef class _Lock:
    cdef pthread_mutex_t mutex
    cdef int generation
    cdef object __weakref__
    cdef void acquire(self) noexcept
    cdef void release(self) noexcept


cdef class Backend:
    cdef const tofu_backend *backend


cdef class Vcq:
    cdef readonly Backend backend
    cdef readonly int tni
    cdef const tofu_functions *fn
    cdef _Lock lock
    cdef utofu_vcq_hdl_t hdl
    cdef uint64_t vcq_id
    cdef bint is_open
    cdef int generation
    cdef Py_ssize_t num_registered
    cdef Py_ssize_t num_waits
    cdef object __weakref__
    cdef int check(self) except -1
    cdef int enter(self) except -1
    cdef void leave(self) noexcept
    cdef object describe(self)
    cdef int posted(self, call, int ret, uint64_t rmt_vcq_id,
                    size_t length) except -1


cdef class RegisteredMemory:
    cdef readonly Vcq vcq
    cdef readonly bint read_only
    cdef utofu_stadd_t stadd_value
    cdef Py_buffer view
    cdef bint is_open
    cdef object __weakref__
    cdef int check(self) except -1


cdef class Descriptors:
    cdef readonly Vcq vcq
    cdef void *memory
    cdef size_t capacity
    cdef size_t used
    cdef size_t num
    cdef size_t desc_size       # most that one takes
    cdef int begin(self, size_t blocks) except -1
    cdef void *free_space(self) noexcept
    cdef int finish(self, int ret, size_t desc_size, size_t blocks) noexcept


cdef class Vbg:
    cdef readonly Backend backend
    cdef readonly int tni
    cdef const tofu_functions *fn
    cdef _Lock lock
    cdef utofu_vbg_id_t *memory
    cdef size_t count
    cdef size_t max_data        # values in a reduction of either type
    cdef size_t num_uint64      # values in the reduction that was started
    cdef size_t num_double
    cdef bint is_open
    cdef int generation
    cdef Py_ssize_t num_waits
    cdef object __weakref__
    cdef int check(self) except -1
    cdef int enter(self) except -1
    cdef void leave(self) noexcept
    cdef object describe(self)
