# SPDX-License-Identifier: BSD-3-Clause
# Vcq


# What methods that post take, and the library with it; 0 where one has no such thing
cdef struct post_t:
    uint64_t vcq_id, lcl, stadd, edata
    size_t length
    unsigned long flags
    void *cbdata

# As in _whole.pxi, once for all of them: together they cost no more than typed ones.
ctypedef int (*convert_t)(post_t *, object, object, object, object, object, object,
                          object) noexcept


cdef inline int convert_post(post_t *post, rmt_vcq_id, lcl_stadd, rmt_stadd, length,
                             edata, flags, cbdata) except -1:
    post.vcq_id = rmt_vcq_id
    post.lcl = lcl_stadd
    post.stadd = rmt_stadd
    post.length = length
    post.edata = edata
    post.flags = flags
    post.cbdata = <void *><uintptr_t>cbdata
    return 0


cdef int convert_named(post_t *post, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata,
                       flags, cbdata) except -1:
    """Once more, for the name of what is wrong."""
    if not clear_error():
        return -1
    post.vcq_id = whole(rmt_vcq_id, "rmt_vcq_id")
    post.lcl = whole(lcl_stadd, "lcl_stadd")
    post.stadd = whole(rmt_stadd, "rmt_stadd")
    post.length = whole(length, "length")
    post.edata = whole(edata, "edata")
    post.flags = whole(flags, "flags")
    post.cbdata = <void *><uintptr_t>whole(cbdata, "cbdata")
    return 0


cdef inline int read_post(post_t *post, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata,
                          flags, cbdata) except -1:
    if (<convert_t>convert_post)(post, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata,
                                 flags, cbdata) < 0:
        convert_named(post, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags,
                      cbdata)
    return 0


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
        cdef unsigned int c_stag = whole(stag, "stag", 0xffffffff) if chosen else 0
        cdef int ret
        self.check()
        if read_only:
            flags = c.UTOFU_REG_MEM_FLAG_READ_ONLY
        get_contiguous(buffer, "buffer", &mem.view, read_only)
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
                detail += f", STag {c_stag}"
            PyBuffer_Release(&mem.view)
            fail("utofu_reg_mem_with_stag" if chosen else "utofu_reg_mem", ret,
                 detail)
        mem.vcq = self
        mem.read_only = read_only
        mem.is_open = True
        return mem

    def put(self, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata=0, flags=0, cbdata=0):
        """Post: local memory to remote memory.

        Source: uTofu user's guide 3.7.1, utofu_put.
        """
        cdef:
            post_t post
            int ret
        read_post(&post, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, cbdata)
        self.enter()
        ret = self.fn.put(self.hdl, post.vcq_id, post.lcl, post.stadd, post.length,
            post.edata, post.flags, post.cbdata)
        self.leave()
        self.posted("utofu_put", ret, post.vcq_id, post.length)

    def put_gap(self, rmt_vcq_id, lcl_stadd, rmt_stadd, length, mtu, gap, edata=0,
                flags=0, cbdata=0):
        """Post: local memory to remote memory, in packets of ``mtu`` bytes with a
        ``gap`` between them that lowers the bandwidth to 8 / (gap + 8).

        Source: uTofu user's guide 3.7.1, utofu_put_gap.
        """
        cdef:
            post_t post
            size_t c_mtu = whole(mtu, "mtu")
            size_t c_gap = whole(gap, "gap")
            int ret
        read_post(&post, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, cbdata)
        self.enter()
        ret = self.fn.put_gap(self.hdl, post.vcq_id, post.lcl, post.stadd, post.length,
            post.edata, post.flags, c_mtu, c_gap, post.cbdata)
        self.leave()
        self.posted("utofu_put_gap", ret, post.vcq_id, post.length)

    def put_stride(self, rmt_vcq_id, lcl_stadd, rmt_stadd, length, stride, num_blocks,
                   edata=0, flags=0, cbdata=0):
        """Post: ``num_blocks`` blocks of local memory to remote memory, each of
        ``length`` bytes and ``stride`` bytes after the one before, on both sides;
        each is an operation of its own with its own notices.

        Source: uTofu user's guide 3.7.1, utofu_put_stride.
        """
        cdef:
            post_t post
            size_t c_stride = whole(stride, "stride")
            size_t c_blocks = whole(num_blocks, "num_blocks")
            int ret
        read_post(&post, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, cbdata)
        self.enter()
        ret = self.fn.put_stride(self.hdl, post.vcq_id, post.lcl, post.stadd,
            post.length, c_stride, c_blocks, post.edata, post.flags, post.cbdata)
        self.leave()
        self.posted("utofu_put_stride", ret, post.vcq_id, post.length)

    def put_stride_gap(self, rmt_vcq_id, lcl_stadd, rmt_stadd, length, stride,
                       num_blocks, mtu, gap, edata=0, flags=0, cbdata=0):
        """Post: as ``put_stride``, with ``mtu`` and ``gap`` of ``put_gap``.

        Source: uTofu user's guide 3.7.1, utofu_put_stride_gap.
        """
        cdef:
            post_t post
            size_t c_stride = whole(stride, "stride")
            size_t c_blocks = whole(num_blocks, "num_blocks")
            size_t c_mtu = whole(mtu, "mtu")
            size_t c_gap = whole(gap, "gap")
            int ret
        read_post(&post, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, cbdata)
        self.enter()
        ret = self.fn.put_stride_gap(self.hdl, post.vcq_id, post.lcl, post.stadd,
            post.length, c_stride, c_blocks, post.edata, post.flags, c_mtu, c_gap,
            post.cbdata)
        self.leave()
        self.posted("utofu_put_stride_gap", ret, post.vcq_id, post.length)

    def put_piggyback(self, rmt_vcq_id, data, rmt_stadd, edata=0, flags=0, cbdata=0):
        """Post: the bytes of ``data``, a contiguous buffer of at most
        ``max_piggyback_size`` bytes, to remote memory; ``data`` is free at return.

        Source: uTofu user's guide 3.7.1, utofu_put_piggyback.
        """
        cdef:
            post_t post
            Py_buffer view
            size_t size
            int ret
        read_post(&post, rmt_vcq_id, 0, rmt_stadd, 0, edata, flags, cbdata)
        get_contiguous(data, "data", &view, True)
        size = view.len
        try:
            self.enter()
            ret = self.fn.put_piggyback(self.hdl, post.vcq_id, view.buf, post.stadd,
                view.len, post.edata, post.flags, post.cbdata)
            self.leave()
        finally:
            PyBuffer_Release(&view)
        self.posted("utofu_put_piggyback", ret, post.vcq_id, size)

    def put_piggyback8(self, rmt_vcq_id, value, rmt_stadd, length=8, edata=0, flags=0,
                       cbdata=0):
        """Post: the low ``length`` bytes (at most 8) of ``value`` to remote
        memory.

        Source: uTofu user's guide 3.7.1, utofu_put_piggyback8.
        """
        cdef:
            post_t post
            uint64_t c_value = whole(value, "value")
            int ret
        read_post(&post, rmt_vcq_id, 0, rmt_stadd, length, edata, flags, cbdata)
        self.enter()
        ret = self.fn.put_piggyback8(self.hdl, post.vcq_id, c_value, post.stadd,
            post.length, post.edata, post.flags, post.cbdata)
        self.leave()
        self.posted("utofu_put_piggyback8", ret, post.vcq_id, post.length)

    def get(self, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata=0, flags=0, cbdata=0):
        """Post: remote memory to local memory.

        Source: uTofu user's guide 3.7.1, utofu_get.
        """
        cdef:
            post_t post
            int ret
        read_post(&post, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, cbdata)
        self.enter()
        ret = self.fn.get(self.hdl, post.vcq_id, post.lcl, post.stadd, post.length,
            post.edata, post.flags, post.cbdata)
        self.leave()
        self.posted("utofu_get", ret, post.vcq_id, post.length)

    def get_gap(self, rmt_vcq_id, lcl_stadd, rmt_stadd, length, mtu, gap, edata=0,
                flags=0, cbdata=0):
        """Post: remote memory to local memory, in packets of ``mtu`` bytes with a
        ``gap`` between them that lowers the bandwidth to 8 / (gap + 8).

        Source: uTofu user's guide 3.7.1, utofu_get_gap.
        """
        cdef:
            post_t post
            size_t c_mtu = whole(mtu, "mtu")
            size_t c_gap = whole(gap, "gap")
            int ret
        read_post(&post, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, cbdata)
        self.enter()
        ret = self.fn.get_gap(self.hdl, post.vcq_id, post.lcl, post.stadd, post.length,
            post.edata, post.flags, c_mtu, c_gap, post.cbdata)
        self.leave()
        self.posted("utofu_get_gap", ret, post.vcq_id, post.length)

    def get_stride(self, rmt_vcq_id, lcl_stadd, rmt_stadd, length, stride, num_blocks,
                   edata=0, flags=0, cbdata=0):
        """Post: ``num_blocks`` blocks of remote memory to local memory, each of
        ``length`` bytes and ``stride`` bytes after the one before, on both sides;
        each is an operation of its own with its own notices.

        Source: uTofu user's guide 3.7.1, utofu_get_stride.
        """
        cdef:
            post_t post
            size_t c_stride = whole(stride, "stride")
            size_t c_blocks = whole(num_blocks, "num_blocks")
            int ret
        read_post(&post, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, cbdata)
        self.enter()
        ret = self.fn.get_stride(self.hdl, post.vcq_id, post.lcl, post.stadd,
            post.length, c_stride, c_blocks, post.edata, post.flags, post.cbdata)
        self.leave()
        self.posted("utofu_get_stride", ret, post.vcq_id, post.length)

    def get_stride_gap(self, rmt_vcq_id, lcl_stadd, rmt_stadd, length, stride,
                       num_blocks, mtu, gap, edata=0, flags=0, cbdata=0):
        """Post: as ``get_stride``, with ``mtu`` and ``gap`` of ``get_gap``.

        Source: uTofu user's guide 3.7.1, utofu_get_stride_gap.
        """
        cdef:
            post_t post
            size_t c_stride = whole(stride, "stride")
            size_t c_blocks = whole(num_blocks, "num_blocks")
            size_t c_mtu = whole(mtu, "mtu")
            size_t c_gap = whole(gap, "gap")
            int ret
        read_post(&post, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, cbdata)
        self.enter()
        ret = self.fn.get_stride_gap(self.hdl, post.vcq_id, post.lcl, post.stadd,
            post.length, c_stride, c_blocks, post.edata, post.flags, c_mtu, c_gap,
            post.cbdata)
        self.leave()
        self.posted("utofu_get_stride_gap", ret, post.vcq_id, post.length)

    def armw4(self, rmt_vcq_id, op, value, rmt_stadd, edata=0, flags=0, cbdata=0):
        """Post: atomic ``ArmwOp`` on an aligned remote 4-byte word; the old value
        is in the local MRQ notice.

        Source: uTofu user's guide 3.7.1, utofu_armw4.
        """
        cdef:
            post_t post
            int c_op = signed_int(op, "op")
            uint32_t c_value = whole(value, "value", 0xffffffff)
            int ret
        read_post(&post, rmt_vcq_id, 0, rmt_stadd, 0, edata, flags, cbdata)
        self.enter()
        ret = self.fn.armw4(self.hdl, post.vcq_id, <c.utofu_armw_op>c_op, c_value,
            post.stadd, post.edata, post.flags, post.cbdata)
        self.leave()
        self.posted("utofu_armw4", ret, post.vcq_id, 4)

    def armw8(self, rmt_vcq_id, op, value, rmt_stadd, edata=0, flags=0, cbdata=0):
        """Post: atomic ``ArmwOp`` on an aligned remote 8-byte word; the old value
        is in the local MRQ notice.

        Source: uTofu user's guide 3.7.1, utofu_armw8.
        """
        cdef:
            post_t post
            int c_op = signed_int(op, "op")
            uint64_t c_value = whole(value, "value")
            int ret
        read_post(&post, rmt_vcq_id, 0, rmt_stadd, 0, edata, flags, cbdata)
        self.enter()
        ret = self.fn.armw8(self.hdl, post.vcq_id, <c.utofu_armw_op>c_op, c_value,
            post.stadd, post.edata, post.flags, post.cbdata)
        self.leave()
        self.posted("utofu_armw8", ret, post.vcq_id, 8)

    def cswap4(self, rmt_vcq_id, old_value, new_value, rmt_stadd, edata=0, flags=0,
               cbdata=0):
        """Post: atomic compare and swap of an aligned remote 4-byte word; the old
        value is in the local MRQ notice.

        Source: uTofu user's guide 3.7.1, utofu_cswap4.
        """
        cdef:
            post_t post
            uint32_t c_old = whole(old_value, "old_value", 0xffffffff)
            uint32_t c_new = whole(new_value, "new_value", 0xffffffff)
            int ret
        read_post(&post, rmt_vcq_id, 0, rmt_stadd, 0, edata, flags, cbdata)
        self.enter()
        ret = self.fn.cswap4(self.hdl, post.vcq_id, c_old, c_new, post.stadd,
            post.edata, post.flags, post.cbdata)
        self.leave()
        self.posted("utofu_cswap4", ret, post.vcq_id, 4)

    def cswap8(self, rmt_vcq_id, old_value, new_value, rmt_stadd, edata=0, flags=0,
               cbdata=0):
        """Post: atomic compare and swap of an aligned remote 8-byte word; the old
        value is in the local MRQ notice.

        Source: uTofu user's guide 3.7.1, utofu_cswap8.
        """
        cdef:
            post_t post
            uint64_t c_old = whole(old_value, "old_value")
            uint64_t c_new = whole(new_value, "new_value")
            int ret
        read_post(&post, rmt_vcq_id, 0, rmt_stadd, 0, edata, flags, cbdata)
        self.enter()
        ret = self.fn.cswap8(self.hdl, post.vcq_id, c_old, c_new, post.stadd,
            post.edata, post.flags, post.cbdata)
        self.leave()
        self.posted("utofu_cswap8", ret, post.vcq_id, 8)

    def nop(self, flags=0, cbdata=0):
        """Post an operation that does nothing.

        Source: uTofu user's guide 3.7.1, utofu_nop.
        """
        cdef:
            unsigned long c_flags = whole(flags, "flags")
            uintptr_t c_cbdata = whole(cbdata, "cbdata")
            int ret
        self.enter()
        ret = self.fn.nop(self.hdl, c_flags, <void *>c_cbdata)
        self.leave()
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_nop", ret, self.describe())

    def post_toq(self, Descriptors descriptors=None, cbdata=0):
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
        cdef uintptr_t c_cbdata = whole(cbdata, "cbdata")
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
        ret = self.fn.post_toq(self.hdl, memory, size, <void *>c_cbdata)
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
