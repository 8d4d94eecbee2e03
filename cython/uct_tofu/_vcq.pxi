# SPDX-License-Identifier: BSD-3-Clause
# Vcq


cdef class Vcq:
    """Vcq(backend, tni, *, exclusive=False, thread_safe=False, \
session_mode=False, cmp_id=None)\n--\n\nA virtual control queue: posts operations and reads their completions.

    Parameters
    ----------
    backend : Backend
    tni : int
        One of ``backend.onesided_tnis()``.
    exclusive : bool
        Take a CQ that no other VCQ shares.
    thread_safe : bool
        The library locks; a Vcq of Python can be used by several threads anyway.
    session_mode : bool
        Puts that arrive start what waits in its queue (``OnesidedFlag.sps``).
    cmp_id : int, optional
        Component ID, so that peers can construct the VCQ ID; not together with
        ``exclusive`` or ``session_mode``.

    Raises ``UtofuError``: UTOFU_ERR_FULL, UTOFU_ERR_NOT_AVAILABLE and
    UTOFU_ERR_USED mean that none is left; ``ValueError`` for options that
    exclude each other.  May enter the kernel, without the GIL.

    Common to the methods that post: ``rmt_vcq_id`` is the target VCQ; STADDs
    are addresses in units of a byte, lengths, strides, MTU and gap are in bytes;
    ``edata`` comes back in MRQ notices; ``flags`` is a combination of
    ``OnesidedFlag`` and decides which notices appear; ``cbdata`` (0 to
    2**64 - 1) comes back from ``poll_tcq``.  They return when the operation is
    queued, never wait, and raise ``UtofuBusyError`` when the queue is full,
    ``UtofuError`` when the library refuses, ``OverflowError`` for a number that
    is negative or too large for the API, and ``RuntimeError`` when the VCQ was
    freed or made before a fork.  Memory named by a local STADD must stay
    registered and unchanged until the operation's completion is polled.

    Methods may be called from several threads; calls on VCQs that share a CQ
    take turns.  Only creation, registration and the waits leave the GIL.

    Source: uTofu user's guide 3.3, 3.7.
    """

    def __init__(self, Backend backend not None, tni, *,
                 bint exclusive=False, bint thread_safe=False,
                 bint session_mode=False, cmp_id=None):
        cdef:
            const tofu_functions *fn = &backend.backend.fn
            unsigned long flags = 0
            uint16_t c_tni = whole(tni, "tni", 0xffff)
            uint16_t c_cmp_id = 0, cq = 0, cq_tni = 0, extra = 0
            uint8_t xyzabc[6]
            c.utofu_vcq_hdl_t hdl = 0
            c.utofu_vcq_id_t vcq_id = 0
            bint chosen = cmp_id is not None
            int ret
        if self.is_open:
            raise RuntimeError("the VCQ exists already")
        if exclusive:
            flags |= c.UTOFU_VCQ_FLAG_EXCLUSIVE
        if thread_safe:
            flags |= c.UTOFU_VCQ_FLAG_THREAD_SAFE
        if session_mode:
            flags |= c.UTOFU_VCQ_FLAG_SESSION_MODE
        if exclusive and session_mode:
            raise ValueError("Vcq: exclusive and session_mode exclude each other")
        if chosen:
            if exclusive or session_mode:
                raise ValueError("Vcq: cmp_id goes neither with exclusive nor "
                                 "with session_mode")
            c_cmp_id = whole(cmp_id, "cmp_id", 0xffff)
        with nogil:
            if chosen:
                ret = fn.create_vcq_with_cmp_id(c_tni, c_cmp_id, flags, &hdl)
            else:
                ret = fn.create_vcq(c_tni, flags, &hdl)
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_create_vcq_with_cmp_id" if chosen
                 else "utofu_create_vcq", ret,
                 f"TNI {tni}, flags {flags:#x}"
                 + (f", cmp_id {cmp_id}" if chosen else ""))
        call = "utofu_query_vcq_id"
        ret = fn.query_vcq_id(hdl, &vcq_id)
        if ret == c.UTOFU_SUCCESS:
            call = "utofu_query_vcq_info"
            ret = fn.query_vcq_info(vcq_id, xyzabc, &cq_tni, &cq, &extra)
        if ret != c.UTOFU_SUCCESS:
            fn.free_vcq(hdl)
            fail(call, ret, f"a new VCQ on TNI {tni}")
        if self.is_open:  # by another thread, meanwhile
            fn.free_vcq(hdl)
            raise RuntimeError("the VCQ exists already")
        self.backend = backend
        self.fn = fn
        self.tni = c_tni
        self.lock = cq_lock(cq_tni, cq)
        self.hdl = hdl
        self.vcq_id = vcq_id
        self.num_registered = self.num_waits = 0
        self.generation = fork_generation
        self.is_open = True

    cdef object describe(self):
        return f"VCQ {<uintptr_t>self.hdl:#x} on TNI {self.tni}"

    def __repr__(self):
        return f"<{self.describe()}{'' if self.is_open else ', freed'}>"

    def __reduce__(self):
        raise TypeError("a Vcq cannot be copied or pickled; send its id")

    cdef int check(self) except -1:
        if not self.is_open:
            raise RuntimeError("the VCQ was freed")
        return check_generation(self.generation, self.describe())

    cdef int enter(self) except -1:
        """Check, and take the lock of the CQ; see _lock.pxi for its rules."""
        self.check()
        self.lock.acquire()
        if not self.is_open:  # freed by another thread, meanwhile
            self.lock.release()
            self.check()
        return 0

    cdef void leave(self) noexcept:
        self.lock.release()

    def free(self):
        """Free the VCQ; harmless when repeated.  May enter the kernel, without
        the GIL.

        Raises ``RuntimeError`` while memory is registered with it or a thread
        waits on it, and ``UtofuError``.

        Source: uTofu user's guide 3.3.1, utofu_free_vcq.
        """
        cdef Py_ssize_t num_registered, num_waits
        cdef int ret = c.UTOFU_SUCCESS
        if not self.is_open:
            return
        self.enter()
        num_registered = self.num_registered
        num_waits = self.num_waits
        if num_registered == 0 and num_waits == 0:
            self.is_open = False  # before the GIL goes: nobody starts a wait
            with nogil:
                ret = self.fn.free_vcq(self.hdl)
            self.is_open = ret != c.UTOFU_SUCCESS
        self.leave()
        if num_registered:
            raise RuntimeError(
                f"{self.describe()} still has {num_registered} registered "
                "memory objects; call their dereg() first")
        if num_waits:
            raise RuntimeError(f"a thread still waits on {self.describe()}")
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_free_vcq", ret, self.describe())

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        end_block(self.free, exc)

    def __del__(self):
        if self.is_open and self.generation == fork_generation:
            warn(f"{self!r} was not freed", ResourceWarning, stacklevel=2)

    def __dealloc__(self):
        if self.is_open and self.generation == fork_generation:
            self.fn.free_vcq(self.hdl)

    @property
    def id(self):
        """int : the VCQ's ID in the whole network.

        Source: uTofu user's guide 3.3.2, utofu_query_vcq_id.
        """
        self.check()
        return self.vcq_id

    def reg_mem(self, buffer, *, bint read_only=False, stag=None):
        """Register the memory of a buffer with this VCQ.

        Parameters
        ----------
        buffer : object with a contiguous buffer
            C- or F-contiguous, of any item type but Python objects, writable
            unless ``read_only``, not empty.
        read_only : bool
            The TNI may only read it.
        stag : int, optional
            Reserved STag; address and size must then be multiples of
            ``stag_address_alignment``.

        Returns
        -------
        RegisteredMemory

        Raises ``BufferError`` when the buffer does not qualify, ``TypeError``
        when it is none, ``UtofuError``.  May enter the kernel, without the GIL.

        Source: uTofu user's guide 3.6.1, utofu_reg_mem.
        """
        cdef RegisteredMemory mem = RegisteredMemory.__new__(RegisteredMemory)
        cdef bint chosen = stag is not None
        cdef unsigned long flags = 0
        cdef unsigned int c_stag = 0
        cdef int ret
        self.check()
        if read_only:
            flags = c.UTOFU_REG_MEM_FLAG_READ_ONLY
        if chosen:
            c_stag = stag
        get_contiguous(buffer, &mem.view, read_only)
        try:
            self.enter()
        except:
            PyBuffer_Release(&mem.view)
            raise
        with nogil:
            if chosen:
                ret = self.fn.reg_mem_with_stag(
                    self.hdl, mem.view.buf, mem.view.len, c_stag, flags,
                    &mem.stadd_value)
            else:
                ret = self.fn.reg_mem(
                    self.hdl, mem.view.buf, mem.view.len, flags,
                    &mem.stadd_value)
        if ret == c.UTOFU_SUCCESS:
            self.num_registered += 1
        self.leave()
        if ret != c.UTOFU_SUCCESS:
            detail = (f"{mem.view.len} bytes at {<uintptr_t>mem.view.buf:#x} "
                      f"with {self.describe()}")
            if chosen:
                detail += f", STag {stag}"
            PyBuffer_Release(&mem.view)
            fail("utofu_reg_mem_with_stag" if chosen else "utofu_reg_mem", ret,
                 detail)
        mem.vcq = self
        mem.read_only = read_only
        mem.is_open = True
        return mem

    def put(self, uint64_t rmt_vcq_id, uint64_t lcl_stadd, uint64_t rmt_stadd,
            size_t length, uint64_t edata=0, unsigned long flags=0,
            uintptr_t cbdata=0):
        """Post: local memory to remote memory.

        Source: uTofu user's guide 3.7.1, utofu_put.
        """
        cdef int ret
        self.enter()
        ret = self.fn.put(self.hdl, rmt_vcq_id, lcl_stadd, rmt_stadd, length,
            edata, flags, <void *>cbdata)
        self.leave()
        self.posted("utofu_put", ret, rmt_vcq_id, length)

    def put_gap(self, uint64_t rmt_vcq_id, uint64_t lcl_stadd, uint64_t rmt_stadd,
                size_t length, size_t mtu, size_t gap, uint64_t edata=0,
                unsigned long flags=0, uintptr_t cbdata=0):
        """Post: local memory to remote memory, in packets of ``mtu`` bytes with a
        ``gap`` between them that lowers the bandwidth to 8 / (gap + 8).

        Source: uTofu user's guide 3.7.1, utofu_put_gap.
        """
        cdef int ret
        self.enter()
        ret = self.fn.put_gap(self.hdl, rmt_vcq_id, lcl_stadd, rmt_stadd, length,
            edata, flags, mtu, gap, <void *>cbdata)
        self.leave()
        self.posted("utofu_put_gap", ret, rmt_vcq_id, length)

    def put_stride(self, uint64_t rmt_vcq_id, uint64_t lcl_stadd,
                   uint64_t rmt_stadd, size_t length, size_t stride,
                   size_t num_blocks, uint64_t edata=0, unsigned long flags=0,
                   uintptr_t cbdata=0):
        """Post: ``num_blocks`` blocks of local memory to remote memory, each of
        ``length`` bytes and ``stride`` bytes after the one before, on both sides;
        each is an operation of its own with its own notices.

        Source: uTofu user's guide 3.7.1, utofu_put_stride.
        """
        cdef int ret
        self.enter()
        ret = self.fn.put_stride(self.hdl, rmt_vcq_id, lcl_stadd, rmt_stadd,
            length, stride, num_blocks, edata, flags, <void *>cbdata)
        self.leave()
        self.posted("utofu_put_stride", ret, rmt_vcq_id, length)

    def put_stride_gap(self, uint64_t rmt_vcq_id, uint64_t lcl_stadd,
                       uint64_t rmt_stadd, size_t length, size_t stride,
                       size_t num_blocks, size_t mtu, size_t gap, uint64_t edata=0,
                       unsigned long flags=0, uintptr_t cbdata=0):
        """Post: as ``put_stride``, with ``mtu`` and ``gap`` of ``put_gap``.

        Source: uTofu user's guide 3.7.1, utofu_put_stride_gap.
        """
        cdef int ret
        self.enter()
        ret = self.fn.put_stride_gap(self.hdl, rmt_vcq_id, lcl_stadd, rmt_stadd,
            length, stride, num_blocks, edata, flags, mtu, gap, <void *>cbdata)
        self.leave()
        self.posted("utofu_put_stride_gap", ret, rmt_vcq_id, length)

    def put_piggyback(self, uint64_t rmt_vcq_id, data, uint64_t rmt_stadd,
                      uint64_t edata=0, unsigned long flags=0, uintptr_t cbdata=0):
        """Post: the bytes of ``data``, a contiguous buffer of at most
        ``max_piggyback_size`` bytes, to remote memory; ``data`` is free at return.

        Source: uTofu user's guide 3.7.1, utofu_put_piggyback.
        """
        cdef Py_buffer view
        cdef size_t size
        cdef int ret
        get_contiguous(data, &view, True)
        size = view.len
        try:
            self.enter()
            ret = self.fn.put_piggyback(self.hdl, rmt_vcq_id, view.buf, rmt_stadd,
                view.len, edata, flags, <void *>cbdata)
            self.leave()
        finally:
            PyBuffer_Release(&view)
        self.posted("utofu_put_piggyback", ret, rmt_vcq_id, size)

    def put_piggyback8(self, uint64_t rmt_vcq_id, uint64_t value,
                       uint64_t rmt_stadd, size_t length=8, uint64_t edata=0,
                       unsigned long flags=0, uintptr_t cbdata=0):
        """Post: the low ``length`` bytes (at most 8) of ``value`` to remote
        memory.

        Source: uTofu user's guide 3.7.1, utofu_put_piggyback8.
        """
        cdef int ret
        self.enter()
        ret = self.fn.put_piggyback8(self.hdl, rmt_vcq_id, value, rmt_stadd,
            length, edata, flags, <void *>cbdata)
        self.leave()
        self.posted("utofu_put_piggyback8", ret, rmt_vcq_id, length)

    def get(self, uint64_t rmt_vcq_id, uint64_t lcl_stadd, uint64_t rmt_stadd,
            size_t length, uint64_t edata=0, unsigned long flags=0,
            uintptr_t cbdata=0):
        """Post: remote memory to local memory.

        Source: uTofu user's guide 3.7.1, utofu_get.
        """
        cdef int ret
        self.enter()
        ret = self.fn.get(self.hdl, rmt_vcq_id, lcl_stadd, rmt_stadd, length,
            edata, flags, <void *>cbdata)
        self.leave()
        self.posted("utofu_get", ret, rmt_vcq_id, length)

    def get_gap(self, uint64_t rmt_vcq_id, uint64_t lcl_stadd, uint64_t rmt_stadd,
                size_t length, size_t mtu, size_t gap, uint64_t edata=0,
                unsigned long flags=0, uintptr_t cbdata=0):
        """Post: remote memory to local memory, in packets of ``mtu`` bytes with a
        ``gap`` between them that lowers the bandwidth to 8 / (gap + 8).

        Source: uTofu user's guide 3.7.1, utofu_get_gap.
        """
        cdef int ret
        self.enter()
        ret = self.fn.get_gap(self.hdl, rmt_vcq_id, lcl_stadd, rmt_stadd, length,
            edata, flags, mtu, gap, <void *>cbdata)
        self.leave()
        self.posted("utofu_get_gap", ret, rmt_vcq_id, length)

    def get_stride(self, uint64_t rmt_vcq_id, uint64_t lcl_stadd,
                   uint64_t rmt_stadd, size_t length, size_t stride,
                   size_t num_blocks, uint64_t edata=0, unsigned long flags=0,
                   uintptr_t cbdata=0):
        """Post: ``num_blocks`` blocks of remote memory to local memory, each of
        ``length`` bytes and ``stride`` bytes after the one before, on both sides;
        each is an operation of its own with its own notices.

        Source: uTofu user's guide 3.7.1, utofu_get_stride.
        """
        cdef int ret
        self.enter()
        ret = self.fn.get_stride(self.hdl, rmt_vcq_id, lcl_stadd, rmt_stadd,
            length, stride, num_blocks, edata, flags, <void *>cbdata)
        self.leave()
        self.posted("utofu_get_stride", ret, rmt_vcq_id, length)

    def get_stride_gap(self, uint64_t rmt_vcq_id, uint64_t lcl_stadd,
                       uint64_t rmt_stadd, size_t length, size_t stride,
                       size_t num_blocks, size_t mtu, size_t gap, uint64_t edata=0,
                       unsigned long flags=0, uintptr_t cbdata=0):
        """Post: as ``get_stride``, with ``mtu`` and ``gap`` of ``get_gap``.

        Source: uTofu user's guide 3.7.1, utofu_get_stride_gap.
        """
        cdef int ret
        self.enter()
        ret = self.fn.get_stride_gap(self.hdl, rmt_vcq_id, lcl_stadd, rmt_stadd,
            length, stride, num_blocks, edata, flags, mtu, gap, <void *>cbdata)
        self.leave()
        self.posted("utofu_get_stride_gap", ret, rmt_vcq_id, length)

    def armw4(self, uint64_t rmt_vcq_id, int op, uint32_t value,
              uint64_t rmt_stadd, uint64_t edata=0, unsigned long flags=0,
              uintptr_t cbdata=0):
        """Post: atomic ``ArmwOp`` on an aligned remote 4-byte word; the old value
        is in the local MRQ notice.

        Source: uTofu user's guide 3.7.1, utofu_armw4.
        """
        cdef int ret
        self.enter()
        ret = self.fn.armw4(self.hdl, rmt_vcq_id, <c.utofu_armw_op>op, value,
            rmt_stadd, edata, flags, <void *>cbdata)
        self.leave()
        self.posted("utofu_armw4", ret, rmt_vcq_id, 4)

    def armw8(self, uint64_t rmt_vcq_id, int op, uint64_t value,
              uint64_t rmt_stadd, uint64_t edata=0, unsigned long flags=0,
              uintptr_t cbdata=0):
        """Post: atomic ``ArmwOp`` on an aligned remote 8-byte word; the old value
        is in the local MRQ notice.

        Source: uTofu user's guide 3.7.1, utofu_armw8.
        """
        cdef int ret
        self.enter()
        ret = self.fn.armw8(self.hdl, rmt_vcq_id, <c.utofu_armw_op>op, value,
            rmt_stadd, edata, flags, <void *>cbdata)
        self.leave()
        self.posted("utofu_armw8", ret, rmt_vcq_id, 8)

    def cswap4(self, uint64_t rmt_vcq_id, uint32_t old_value, uint32_t new_value,
               uint64_t rmt_stadd, uint64_t edata=0, unsigned long flags=0,
               uintptr_t cbdata=0):
        """Post: atomic compare and swap of an aligned remote 4-byte word; the old
        value is in the local MRQ notice.

        Source: uTofu user's guide 3.7.1, utofu_cswap4.
        """
        cdef int ret
        self.enter()
        ret = self.fn.cswap4(self.hdl, rmt_vcq_id, old_value, new_value, rmt_stadd,
            edata, flags, <void *>cbdata)
        self.leave()
        self.posted("utofu_cswap4", ret, rmt_vcq_id, 4)

    def cswap8(self, uint64_t rmt_vcq_id, uint64_t old_value, uint64_t new_value,
               uint64_t rmt_stadd, uint64_t edata=0, unsigned long flags=0,
               uintptr_t cbdata=0):
        """Post: atomic compare and swap of an aligned remote 8-byte word; the old
        value is in the local MRQ notice.

        Source: uTofu user's guide 3.7.1, utofu_cswap8.
        """
        cdef int ret
        self.enter()
        ret = self.fn.cswap8(self.hdl, rmt_vcq_id, old_value, new_value, rmt_stadd,
            edata, flags, <void *>cbdata)
        self.leave()
        self.posted("utofu_cswap8", ret, rmt_vcq_id, 8)

    def nop(self, unsigned long flags=0, uintptr_t cbdata=0):
        """Post an operation that does nothing.

        Source: uTofu user's guide 3.7.1, utofu_nop.
        """
        cdef int ret
        self.enter()
        ret = self.fn.nop(self.hdl, flags, <void *>cbdata)
        self.leave()
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_nop", ret, self.describe())

    def post_toq(self, Descriptors descriptors=None, uintptr_t cbdata=0):
        """Post prepared descriptors at once, and start what DELAY_START held back.

        Parameters
        ----------
        descriptors : Descriptors, optional
            Prepared for this VCQ; it can be posted any number of times.  None or an
            empty one only starts what was held back.
        cbdata : int
            The same for each of them.

        Raises ``ValueError`` for descriptors of another VCQ, ``UtofuBusyError`` when
        the queue has no room for all, ``UtofuError``.

        Source: uTofu user's guide 3.7.3.1, utofu_post_toq.
        """
        cdef void *memory = NULL
        cdef size_t size = 0
        cdef int ret
        if descriptors is not None and descriptors.vcq is not self:
            raise ValueError(f"post_toq: {descriptors!r} belongs to another VCQ than "
                             f"{self!r}")
        self.enter()
        if descriptors is not None:  # not before: another thread may add to them
            memory = descriptors.memory
            size = descriptors.used
        ret = self.fn.post_toq(self.hdl, memory, size, <void *>cbdata)
        self.leave()
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_post_toq", ret,
                 f"{size} bytes of descriptors, {self.describe()}")

    cdef int posted(self, call, int ret, uint64_t rmt_vcq_id,
                    size_t length) except -1:
        if ret != c.UTOFU_SUCCESS:
            fail(call, ret, f"{length} bytes, {self.describe()} to VCQ ID "
                            f"{rmt_vcq_id:#x}")
        return 0

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
        cdef int ret
        self.enter()
        ret = self.fn.poll_tcq(self.hdl, 0, &cbdata)
        self.leave()
        if ret == c.UTOFU_ERR_NOT_FOUND:
            return None
        return tcq_result(self, ret, cbdata)

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
        cdef int ret
        self.enter()
        ret = self.fn.poll_mrq(self.hdl, 0, &notice)
        self.leave()
        if ret == c.UTOFU_ERR_NOT_FOUND:
            return None
        return mrq_result(self, ret, &notice)

    def wait_tcq(self, timeout=None):
        """Wait for the next entry of the TCQ.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever.

        Returns
        -------
        int
            As ``poll_tcq``, whose exceptions it raises, too.

        Raises ``TimeoutError``.  Polls without the GIL and is interruptible; the VCQ
        cannot be freed meanwhile.

        Source: uTofu user's guide 3.7.4, utofu_poll_tcq.
        """
        cdef wait w
        w.cbdata = NULL
        cdef int ret = wait_queue(self, &w, WAIT_TCQ, timeout)
        return tcq_result(self, ret, w.cbdata)

    def wait_mrq(self, timeout=None):
        """Wait for the next notice of the MRQ.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever.

        Returns
        -------
        MrqNotice
            As ``poll_mrq``, whose exceptions it raises, too.

        Raises ``TimeoutError``.  Polls without the GIL and is interruptible; the VCQ
        cannot be freed meanwhile.

        Source: uTofu user's guide 3.7.4, utofu_poll_mrq.
        """
        cdef wait w
        cdef int ret = wait_queue(self, &w, WAIT_MRQ, timeout)
        return mrq_result(self, ret, &w.notice)

    def num_unread_tcq(self):
        """int : operations of the CQ whose TCQ entry was not read yet.

        Source: uTofu user's guide 3.7.5.1, utofu_query_num_unread_tcq.
        """
        cdef size_t count = 0
        cdef int ret
        self.enter()
        ret = self.fn.query_num_unread_tcq(self.hdl, &count)
        self.leave()
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_query_num_unread_tcq", ret, self.describe())
        return count

    def num_unread_mrq(self):
        """int : notices waiting in the MRQ.

        Raises ``NotImplementedError`` when the library has no such function, which
        the guide does not know.

        Source: utofu.h, utofu_query_num_unread_mrq.
        """
        cdef size_t count = 0
        cdef int ret
        self.check()
        if self.fn.query_num_unread_mrq == NULL:
            raise NotImplementedError(
                f"utofu_query_num_unread_mrq: {self.backend.path} has no such "
                "function")
        self.enter()
        ret = self.fn.query_num_unread_mrq(self.hdl, &count)
        self.leave()
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_query_num_unread_mrq", ret, self.describe())
        return count
