# SPDX-License-Identifier: BSD-3-Clause
# RegisteredMemory, Vcq


@cython.no_gc_clear
cdef class RegisteredMemory:
    """Memory that a TNI may read and write, made by ``Vcq.reg_mem``.

    Holds the buffer until ``dereg`` or the end of a ``with`` block; the buffer
    cannot be resized meanwhile.  The VCQ cannot be freed before it.

    Source: uTofu user's guide 3.6.
    """

    def __init__(self):
        raise TypeError("use Vcq.reg_mem()")

    def __repr__(self):
        if not self.is_open:
            return "<RegisteredMemory, deregistered>"
        return (f"<RegisteredMemory STADD {self.stadd_value:#x}, "
                f"{self.view.len} bytes>")

    @property
    def stadd(self):
        """int : STADD of the first byte; add offsets in bytes.

        Source: uTofu user's guide 3.6.1, utofu_reg_mem.
        """
        if not self.is_open:
            raise RuntimeError("the memory was deregistered")
        return self.stadd_value

    @property
    def address(self):
        """int : address of the first byte in this process.

        Source: Python's buffer protocol.
        """
        if not self.is_open:
            raise RuntimeError("the memory was deregistered")
        return <uintptr_t>self.view.buf

    @property
    def length(self):
        """int : bytes.

        Source: Python's buffer protocol.
        """
        if not self.is_open:
            raise RuntimeError("the memory was deregistered")
        return self.view.len

    def dereg(self):
        """Deregister and let go of the buffer; harmless when repeated.

        Operations that still use the STADD fail.  May enter the kernel.  Raises
        ``UtofuError``; the memory is then still registered.

        Source: uTofu user's guide 3.6.1, utofu_dereg_mem.
        """
        if not self.is_open:
            return
        self.vcq.check()
        cdef int ret = self.vcq.backend.backend.fn.dereg_mem(
            self.vcq.hdl, self.stadd_value, 0)
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_dereg_mem", ret,
                 f"STADD {self.stadd_value:#x} of {self.vcq.describe()}")
        self.is_open = False
        self.vcq.num_registered -= 1
        PyBuffer_Release(&self.view)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.dereg()

    def __del__(self):
        if self.is_open and self.vcq.generation == fork_generation:
            warnings.warn(f"{self!r} was not deregistered", ResourceWarning,
                          stacklevel=2)

    def __dealloc__(self):
        # no_gc_clear keeps self.vcq valid here, and the VCQ with it.
        if self.is_open:
            if self.vcq.generation == fork_generation:
                self.vcq.backend.backend.fn.dereg_mem(self.vcq.hdl,
                                                      self.stadd_value, 0)
                self.vcq.num_registered -= 1
            PyBuffer_Release(&self.view)


cdef class Vcq:
    """A virtual control queue: posts operations and reads their completions.

    Parameters
    ----------
    backend : Backend
    tni : int
        One of ``backend.onesided_tnis()``.
    exclusive : bool
        Take a CQ that no other VCQ shares.
    thread_safe : bool
        The library locks; from Python the GIL already does.
    cmp_id : int, optional
        Component ID, so that peers can construct the VCQ ID.

    Raises ``UtofuError``: UTOFU_ERR_FULL, UTOFU_ERR_NOT_AVAILABLE and
    UTOFU_ERR_USED mean that none is left.  May enter the kernel.

    Common to the methods that post: ``rmt_vcq_id`` is the target VCQ; STADDs
    and lengths are in bytes; ``edata`` comes back in MRQ notices; ``flags`` is a
    combination of ``OnesidedFlag`` and decides which notices appear; ``cbdata``
    (0 to 2**64 - 1) comes back from ``poll_tcq``.  They return when the
    operation is queued, never wait, and raise ``UtofuBusyError`` when the queue
    is full and ``UtofuError`` when the library refuses.  Memory named by a local
    STADD must stay registered and unchanged until the operation's completion is
    polled.

    Source: uTofu user's guide 3.3, 3.7.
    """

    def __init__(self, Backend backend not None, uint16_t tni, *,
                 bint exclusive=False, bint thread_safe=False, cmp_id=None):
        cdef unsigned long flags = 0
        cdef int ret
        if self.is_open:
            raise RuntimeError("the VCQ exists already")
        if exclusive:
            flags |= c.UTOFU_VCQ_FLAG_EXCLUSIVE
        if thread_safe:
            flags |= c.UTOFU_VCQ_FLAG_THREAD_SAFE
        self.backend = backend
        self.tni = tni
        if cmp_id is None:
            ret = backend.backend.fn.create_vcq(tni, flags, &self.hdl)
            call = "utofu_create_vcq"
        else:
            ret = backend.backend.fn.create_vcq_with_cmp_id(
                tni, cmp_id, flags, &self.hdl)
            call = "utofu_create_vcq_with_cmp_id"
        if ret != c.UTOFU_SUCCESS:
            fail(call, ret, f"TNI {tni}, flags {flags:#x}"
                 + ("" if cmp_id is None else f", cmp_id {cmp_id}"))
        self.generation = fork_generation
        self.is_open = True

    cdef object describe(self):
        return f"VCQ {<uintptr_t>self.hdl:#x} on TNI {self.tni}"

    def __repr__(self):
        return f"<{self.describe()}{'' if self.is_open else ', freed'}>"

    cdef int check(self) except -1:
        if not self.is_open:
            raise RuntimeError("the VCQ was freed")
        return check_generation(self.generation, self.describe())

    def free(self):
        """Free the VCQ; harmless when repeated.  May enter the kernel.

        Raises ``RuntimeError`` while memory is registered with it, and
        ``UtofuError``.

        Source: uTofu user's guide 3.3.1, utofu_free_vcq.
        """
        if not self.is_open:
            return
        self.check()
        if self.num_registered:
            raise RuntimeError(
                f"{self.describe()} still has {self.num_registered} registered "
                "memory objects; call their dereg() first")
        cdef int ret = self.backend.backend.fn.free_vcq(self.hdl)
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_free_vcq", ret, self.describe())
        self.is_open = False

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.free()

    def __del__(self):
        if self.is_open and self.generation == fork_generation:
            warnings.warn(f"{self!r} was not freed", ResourceWarning,
                          stacklevel=2)

    def __dealloc__(self):
        if self.is_open and self.generation == fork_generation:
            self.backend.backend.fn.free_vcq(self.hdl)

    @property
    def id(self):
        """int : the VCQ's ID in the whole network.

        Source: uTofu user's guide 3.3.2, utofu_query_vcq_id.
        """
        cdef c.utofu_vcq_id_t vcq_id = 0
        self.check()
        cdef int ret = self.backend.backend.fn.query_vcq_id(self.hdl, &vcq_id)
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_query_vcq_id", ret, self.describe())
        return vcq_id

    def reg_mem(self, buffer, *, bint read_only=False, stag=None):
        """Register the memory of a buffer with this VCQ.

        Parameters
        ----------
        buffer : object with a contiguous buffer
            Writable unless ``read_only``; not empty.
        read_only : bool
            The TNI may only read it.
        stag : int, optional
            Reserved STag; address and size must then be multiples of
            ``stag_address_alignment``.

        Returns
        -------
        RegisteredMemory

        Raises ``BufferError`` when the buffer does not qualify, ``UtofuError``.
        May enter the kernel.

        Source: uTofu user's guide 3.6.1, utofu_reg_mem.
        """
        cdef RegisteredMemory mem = RegisteredMemory.__new__(RegisteredMemory)
        cdef unsigned long flags = 0
        cdef unsigned int c_stag = 0
        cdef int ret
        self.check()
        if read_only:
            flags = c.UTOFU_REG_MEM_FLAG_READ_ONLY
        if stag is not None:
            c_stag = stag
        PyObject_GetBuffer(buffer, &mem.view,
                           PyBUF_SIMPLE if read_only else PyBUF_WRITABLE)
        if stag is None:
            call = "utofu_reg_mem"
            ret = self.backend.backend.fn.reg_mem(
                self.hdl, mem.view.buf, mem.view.len, flags, &mem.stadd_value)
        else:
            call = "utofu_reg_mem_with_stag"
            ret = self.backend.backend.fn.reg_mem_with_stag(
                self.hdl, mem.view.buf, mem.view.len, c_stag, flags,
                &mem.stadd_value)
        if ret != c.UTOFU_SUCCESS:
            detail = (f"{mem.view.len} bytes at {<uintptr_t>mem.view.buf:#x} "
                      f"with {self.describe()}")
            PyBuffer_Release(&mem.view)
            fail(call, ret, detail)
        mem.vcq = self
        mem.read_only = read_only
        mem.is_open = True
        self.num_registered += 1
        return mem

    cdef int posted(self, call, int ret, uint64_t rmt_vcq_id) except -1:
        if ret != c.UTOFU_SUCCESS:
            fail(call, ret,
                 f"{self.describe()} to VCQ ID {rmt_vcq_id:#x}")
        return 0

    def put(self, uint64_t rmt_vcq_id, uint64_t lcl_stadd, uint64_t rmt_stadd,
            size_t length, uint64_t edata=0, unsigned long flags=0,
            uintptr_t cbdata=0):
        """Post: local memory to remote memory.

        Source: uTofu user's guide 3.7.1, utofu_put.
        """
        self.check()
        self.posted("utofu_put", self.backend.backend.fn.put(
            self.hdl, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags,
            <void *>cbdata), rmt_vcq_id)

    def put_piggyback(self, uint64_t rmt_vcq_id, data, uint64_t rmt_stadd,
                      uint64_t edata=0, unsigned long flags=0,
                      uintptr_t cbdata=0):
        """Post: the bytes of ``data`` (at most ``max_piggyback_size``) to remote
        memory; ``data`` is free at return.

        Source: uTofu user's guide 3.7.1, utofu_put_piggyback.
        """
        cdef Py_buffer view
        cdef int ret
        self.check()
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        ret = self.backend.backend.fn.put_piggyback(
            self.hdl, rmt_vcq_id, view.buf, rmt_stadd, view.len, edata, flags,
            <void *>cbdata)
        PyBuffer_Release(&view)
        self.posted("utofu_put_piggyback", ret, rmt_vcq_id)

    def put_piggyback8(self, uint64_t rmt_vcq_id, uint64_t value,
                       uint64_t rmt_stadd, size_t length=8, uint64_t edata=0,
                       unsigned long flags=0, uintptr_t cbdata=0):
        """Post: the low ``length`` bytes (at most 8) of ``value`` to remote
        memory.

        Source: uTofu user's guide 3.7.1, utofu_put_piggyback8.
        """
        self.check()
        self.posted("utofu_put_piggyback8",
                    self.backend.backend.fn.put_piggyback8(
                        self.hdl, rmt_vcq_id, value, rmt_stadd, length, edata,
                        flags, <void *>cbdata), rmt_vcq_id)

    def get(self, uint64_t rmt_vcq_id, uint64_t lcl_stadd, uint64_t rmt_stadd,
            size_t length, uint64_t edata=0, unsigned long flags=0,
            uintptr_t cbdata=0):
        """Post: remote memory to local memory.

        Source: uTofu user's guide 3.7.1, utofu_get.
        """
        self.check()
        self.posted("utofu_get", self.backend.backend.fn.get(
            self.hdl, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags,
            <void *>cbdata), rmt_vcq_id)

    def armw4(self, uint64_t rmt_vcq_id, int op, uint32_t value,
              uint64_t rmt_stadd, uint64_t edata=0, unsigned long flags=0,
              uintptr_t cbdata=0):
        """Post: atomic ``ArmwOp`` on an aligned remote 4-byte word; the old
        value is in the local MRQ notice.

        Source: uTofu user's guide 3.7.1, utofu_armw4.
        """
        self.check()
        self.posted("utofu_armw4", self.backend.backend.fn.armw4(
            self.hdl, rmt_vcq_id, <c.utofu_armw_op>op, value, rmt_stadd, edata,
            flags, <void *>cbdata), rmt_vcq_id)

    def armw8(self, uint64_t rmt_vcq_id, int op, uint64_t value,
              uint64_t rmt_stadd, uint64_t edata=0, unsigned long flags=0,
              uintptr_t cbdata=0):
        """Post: atomic ``ArmwOp`` on an aligned remote 8-byte word; the old
        value is in the local MRQ notice.

        Source: uTofu user's guide 3.7.1, utofu_armw8.
        """
        self.check()
        self.posted("utofu_armw8", self.backend.backend.fn.armw8(
            self.hdl, rmt_vcq_id, <c.utofu_armw_op>op, value, rmt_stadd, edata,
            flags, <void *>cbdata), rmt_vcq_id)

    def cswap4(self, uint64_t rmt_vcq_id, uint32_t old_value,
               uint32_t new_value, uint64_t rmt_stadd, uint64_t edata=0,
               unsigned long flags=0, uintptr_t cbdata=0):
        """Post: atomic compare and swap of an aligned remote 4-byte word; the
        old value is in the local MRQ notice.

        Source: uTofu user's guide 3.7.1, utofu_cswap4.
        """
        self.check()
        self.posted("utofu_cswap4", self.backend.backend.fn.cswap4(
            self.hdl, rmt_vcq_id, old_value, new_value, rmt_stadd, edata, flags,
            <void *>cbdata), rmt_vcq_id)

    def cswap8(self, uint64_t rmt_vcq_id, uint64_t old_value,
               uint64_t new_value, uint64_t rmt_stadd, uint64_t edata=0,
               unsigned long flags=0, uintptr_t cbdata=0):
        """Post: atomic compare and swap of an aligned remote 8-byte word; the
        old value is in the local MRQ notice.

        Source: uTofu user's guide 3.7.1, utofu_cswap8.
        """
        self.check()
        self.posted("utofu_cswap8", self.backend.backend.fn.cswap8(
            self.hdl, rmt_vcq_id, old_value, new_value, rmt_stadd, edata, flags,
            <void *>cbdata), rmt_vcq_id)

    def nop(self, unsigned long flags=0, uintptr_t cbdata=0):
        """Post an operation that does nothing.

        Source: uTofu user's guide 3.7.1, utofu_nop.
        """
        self.check()
        cdef int ret = self.backend.backend.fn.nop(self.hdl, flags,
                                                   <void *>cbdata)
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_nop", ret, self.describe())

    def poll_tcq(self):
        """Read the next entry of the TCQ.

        Returns
        -------
        int or None
            ``cbdata`` of the operation whose local buffer is free; None when
            there is nothing new.

        Raises ``UtofuError``; with ``cbdata`` set when its code is TCQ_* and
        that operation failed.

        Source: uTofu user's guide 3.7.4, utofu_poll_tcq.
        """
        cdef void *cbdata = NULL
        self.check()
        cdef int ret = self.backend.backend.fn.poll_tcq(self.hdl, 0, &cbdata)
        if ret == c.UTOFU_ERR_NOT_FOUND:
            return None
        if ret != c.UTOFU_SUCCESS:
            of_operation = (ret <= c.UTOFU_ERR_TCQ_OTHER
                            and ret >= c.UTOFU_ERR_TCQ_LENGTH)
            fail("utofu_poll_tcq", ret, self.describe(), None,
                 <uintptr_t>cbdata if of_operation else None)
        return <uintptr_t>cbdata

    def poll_mrq(self):
        """Read the next notice of the MRQ.

        Returns
        -------
        MrqNotice or None
            None when there is nothing new.

        Raises ``UtofuError``; with ``notice`` set when its code is MRQ_* and the
        operation that the notice names failed.

        Source: uTofu user's guide 3.7.4, utofu_poll_mrq.
        """
        cdef c.utofu_mrq_notice notice
        self.check()
        cdef int ret = self.backend.backend.fn.poll_mrq(self.hdl, 0, &notice)
        if ret == c.UTOFU_ERR_NOT_FOUND:
            return None
        if ret != c.UTOFU_SUCCESS and not (
                ret <= c.UTOFU_ERR_MRQ_OTHER
                and ret >= c.UTOFU_ERR_MRQ_RMT_LENGTH):
            fail("utofu_poll_mrq", ret, self.describe())
        result = MrqNotice(MrqType(notice.notice_type), notice.vcq_id,
                           notice.edata, notice.rmt_value, notice.lcl_stadd,
                           notice.rmt_stadd)
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_poll_mrq", ret,
                 f"{result.type.name} with VCQ ID {result.vcq_id:#x}, "
                 f"edata {result.edata}, {self.describe()}", result)
        return result

    def num_unread_tcq(self):
        """int : operations of the CQ whose TCQ entry was not read yet.

        Source: uTofu user's guide 3.7.5.1, utofu_query_num_unread_tcq.
        """
        cdef size_t count = 0
        self.check()
        cdef int ret = self.backend.backend.fn.query_num_unread_tcq(self.hdl,
                                                                    &count)
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_query_num_unread_tcq", ret, self.describe())
        return count

    def num_unread_mrq(self):
        """int or None : notices waiting in the MRQ; None when the library has
        no such function.

        Source: utofu.h, utofu_query_num_unread_mrq.
        """
        cdef size_t count = 0
        self.check()
        if self.backend.backend.fn.query_num_unread_mrq == NULL:
            return None
        cdef int ret = self.backend.backend.fn.query_num_unread_mrq(self.hdl,
                                                                    &count)
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_query_num_unread_mrq", ret, self.describe())
        return count
