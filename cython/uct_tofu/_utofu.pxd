# SPDX-License-Identifier: BSD-3-Clause
from libc.stdint cimport uint64_t
from uct_tofu.tofu_dl cimport tofu_backend
from uct_tofu.utofu cimport utofu_stadd_t, utofu_vcq_hdl_t


cdef class Backend:
    cdef const tofu_backend *backend


cdef class Vcq:
    cdef readonly Backend backend
    cdef readonly int tni
    cdef utofu_vcq_hdl_t hdl
    cdef bint is_open
    cdef int generation
    cdef Py_ssize_t num_registered
    cdef object __weakref__
    cdef int check(self) except -1
    cdef object describe(self)
    cdef int posted(self, call, int ret, uint64_t rmt_vcq_id) except -1


cdef class RegisteredMemory:
    cdef readonly Vcq vcq
    cdef readonly bint read_only
    cdef utofu_stadd_t stadd_value
    cdef Py_buffer view
    cdef bint is_open
