# SPDX-License-Identifier: BSD-3-Clause
# Descriptors


cdef class Descriptors:
    """Descriptors(vcq)\n--\n\nPrepared operations of one VCQ, posted at once by ``Vcq.post_toq``.

    Parameters
    ----------
    vcq : Vcq
        The only one with which they can be posted.

    The methods have the parameters of those of ``Vcq`` that post, without
    ``cbdata``, and add to what is there; nothing is sent.  ``len()`` is the number
    of descriptors, which is that of TOQ entries.  It needs no end: it holds
    memory of this process only.  Raises ``RuntimeError`` when the VCQ was freed,
    ``UtofuError`` when the library refuses an operation; what was added before
    stays.  May be used from any thread.

    Source: uTofu user's guide 3.7.2.
    """

    def __init__(self, Vcq vcq not None):
        if self.vcq is not None:
            raise RuntimeError("the descriptors exist already")
        vcq.check()
        self.desc_size = vcq.backend.onesided_caps(vcq.tni)["max_toq_desc_size"]
        self.vcq = vcq

    def __dealloc__(self):
        PyMem_RawFree(self.memory)

    def __repr__(self):
        return (f"<Descriptors, {self.num} of {self.used} bytes for "
                f"{'no VCQ' if self.vcq is None else self.vcq.describe()}>")

    def __reduce__(self):
        raise TypeError("Descriptors cannot be copied or pickled: they are for "
                        "one VCQ of this process")

    def __len__(self):
        return self.num

    @property
    def nbytes(self):
        """int : bytes of all descriptors.

        Source: uTofu user's guide 3.7.2.
        """
        return self.used

    def clear(self):
        """Forget all descriptors; the memory stays for the next ones.

        Source: uTofu user's guide 3.7.2.
        """
        self.num = self.used = 0

    cdef int begin(self, size_t blocks) except -1:
        """Take the VCQ's lock, and make room for so many descriptors."""
        cdef size_t need
        cdef void *memory
        if self.vcq is None:
            raise RuntimeError("the descriptors have no VCQ")
        self.vcq.enter()
        if blocks == 0:
            blocks = 1  # the library refuses it; that needs no less room
        if blocks <= (<size_t>SIZE_MAX // 2 - self.used) // self.desc_size:
            need = self.used + blocks * self.desc_size
            if need <= self.capacity:
                return 0
            memory = PyMem_RawRealloc(self.memory, need + need // 2)
            if memory != NULL:
                self.memory = memory
                self.capacity = need + need // 2
                return 0
        self.vcq.leave()
        raise MemoryError(f"no memory for {blocks} descriptors of up to "
                          f"{self.desc_size} bytes")

    cdef void *free_space(self) noexcept:
        return <char *>self.memory + self.used

    cdef int finish(self, int ret, size_t desc_size, size_t blocks) noexcept:
        """Count what was added, and leave the lock."""
        cdef void *memory
        if ret == c.UTOFU_SUCCESS:
            self.used += desc_size
            self.num += blocks
        elif self.capacity - self.used > 64 * self.desc_size:
            # room for many blocks, which the library refused
            memory = PyMem_RawRealloc(self.memory, self.used + self.desc_size)
            if memory != NULL:
                self.memory = memory
                self.capacity = self.used + self.desc_size
        self.vcq.leave()
        return 0

    def put(self, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata=0, flags=0):
        """Add: local memory to remote memory.

        Source: uTofu user's guide 3.7.2.1, utofu_prepare_put.
        """
        cdef:
            post_t post
            int ret
            size_t desc_size = 0
        read_post(&post, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, 0)
        self.begin(1)
        ret = self.vcq.fn.prepare_put(self.vcq.hdl, post.vcq_id, post.lcl, post.stadd,
            post.length, post.edata, post.flags, self.free_space(), &desc_size)
        self.finish(ret, desc_size, 1)
        self.vcq.posted("utofu_prepare_put", ret, post.vcq_id, post.length)

    def put_gap(self, rmt_vcq_id, lcl_stadd, rmt_stadd, length, mtu, gap, edata=0,
                flags=0):
        """Add: local memory to remote memory, in packets of ``mtu`` bytes with a
        ``gap`` between them that lowers the bandwidth to 8 / (gap + 8).

        Source: uTofu user's guide 3.7.2.2, utofu_prepare_put_gap.
        """
        cdef:
            post_t post
            size_t c_mtu = whole(mtu, "mtu")
            size_t c_gap = whole(gap, "gap")
            int ret
            size_t desc_size = 0
        read_post(&post, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, 0)
        self.begin(1)
        ret = self.vcq.fn.prepare_put_gap(self.vcq.hdl, post.vcq_id, post.lcl,
            post.stadd, post.length, post.edata, post.flags, c_mtu, c_gap,
            self.free_space(), &desc_size)
        self.finish(ret, desc_size, 1)
        self.vcq.posted("utofu_prepare_put_gap", ret, post.vcq_id, post.length)

    def put_stride(self, rmt_vcq_id, lcl_stadd, rmt_stadd, length, stride, num_blocks,
                   edata=0, flags=0):
        """Add: ``num_blocks`` blocks of local memory to remote memory, each of
        ``length`` bytes and ``stride`` bytes after the one before, on both sides;
        each is an operation of its own with its own notices.

        Source: uTofu user's guide 3.7.2.3, utofu_prepare_put_stride.
        """
        cdef:
            post_t post
            size_t c_stride = whole(stride, "stride")
            size_t c_blocks = whole(num_blocks, "num_blocks")
            int ret
            size_t desc_size = 0
        read_post(&post, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, 0)
        self.begin(c_blocks)
        ret = self.vcq.fn.prepare_put_stride(self.vcq.hdl, post.vcq_id, post.lcl,
            post.stadd, post.length, c_stride, c_blocks, post.edata, post.flags,
            self.free_space(), &desc_size)
        self.finish(ret, desc_size, c_blocks)
        self.vcq.posted("utofu_prepare_put_stride", ret, post.vcq_id, post.length)

    def put_stride_gap(self, rmt_vcq_id, lcl_stadd, rmt_stadd, length, stride,
                       num_blocks, mtu, gap, edata=0, flags=0):
        """Add: as ``put_stride``, with ``mtu`` and ``gap`` of ``put_gap``.

        Source: uTofu user's guide 3.7.2.4, utofu_prepare_put_stride_gap.
        """
        cdef:
            post_t post
            size_t c_stride = whole(stride, "stride")
            size_t c_blocks = whole(num_blocks, "num_blocks")
            size_t c_mtu = whole(mtu, "mtu")
            size_t c_gap = whole(gap, "gap")
            int ret
            size_t desc_size = 0
        read_post(&post, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, 0)
        self.begin(c_blocks)
        ret = self.vcq.fn.prepare_put_stride_gap(self.vcq.hdl, post.vcq_id, post.lcl,
            post.stadd, post.length, c_stride, c_blocks, post.edata, post.flags, c_mtu,
            c_gap, self.free_space(), &desc_size)
        self.finish(ret, desc_size, c_blocks)
        self.vcq.posted("utofu_prepare_put_stride_gap", ret, post.vcq_id, post.length)

    def put_piggyback(self, rmt_vcq_id, data, rmt_stadd, edata=0, flags=0):
        """Add: the bytes of ``data``, a contiguous buffer of at most
        ``max_piggyback_size`` bytes, to remote memory; ``data`` is free at return.

        Source: uTofu user's guide 3.7.2.5, utofu_prepare_put_piggyback.
        """
        cdef:
            post_t post
            Py_buffer view
            size_t size
            int ret
            size_t desc_size = 0
        read_post(&post, rmt_vcq_id, 0, rmt_stadd, 0, edata, flags, 0)
        get_contiguous(data, "data", &view, True)
        size = view.len
        try:
            self.begin(1)
            ret = self.vcq.fn.prepare_put_piggyback(self.vcq.hdl, post.vcq_id, view.buf,
                post.stadd, view.len, post.edata, post.flags, self.free_space(),
                &desc_size)
            self.finish(ret, desc_size, 1)
        finally:
            PyBuffer_Release(&view)
        self.vcq.posted("utofu_prepare_put_piggyback", ret, post.vcq_id, size)

    def put_piggyback8(self, rmt_vcq_id, value, rmt_stadd, length=8, edata=0, flags=0):
        """Add: the low ``length`` bytes (at most 8) of ``value`` to remote memory.

        Source: uTofu user's guide 3.7.2.6, utofu_prepare_put_piggyback8.
        """
        cdef:
            post_t post
            uint64_t c_value = whole(value, "value")
            int ret
            size_t desc_size = 0
        read_post(&post, rmt_vcq_id, 0, rmt_stadd, length, edata, flags, 0)
        self.begin(1)
        ret = self.vcq.fn.prepare_put_piggyback8(self.vcq.hdl, post.vcq_id, c_value,
            post.stadd, post.length, post.edata, post.flags, self.free_space(),
            &desc_size)
        self.finish(ret, desc_size, 1)
        self.vcq.posted("utofu_prepare_put_piggyback8", ret, post.vcq_id, post.length)

    def get(self, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata=0, flags=0):
        """Add: remote memory to local memory.

        Source: uTofu user's guide 3.7.2.7, utofu_prepare_get.
        """
        cdef:
            post_t post
            int ret
            size_t desc_size = 0
        read_post(&post, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, 0)
        self.begin(1)
        ret = self.vcq.fn.prepare_get(self.vcq.hdl, post.vcq_id, post.lcl, post.stadd,
            post.length, post.edata, post.flags, self.free_space(), &desc_size)
        self.finish(ret, desc_size, 1)
        self.vcq.posted("utofu_prepare_get", ret, post.vcq_id, post.length)

    def get_gap(self, rmt_vcq_id, lcl_stadd, rmt_stadd, length, mtu, gap, edata=0,
                flags=0):
        """Add: remote memory to local memory, in packets of ``mtu`` bytes with a
        ``gap`` between them that lowers the bandwidth to 8 / (gap + 8).

        Source: uTofu user's guide 3.7.2.8, utofu_prepare_get_gap.
        """
        cdef:
            post_t post
            size_t c_mtu = whole(mtu, "mtu")
            size_t c_gap = whole(gap, "gap")
            int ret
            size_t desc_size = 0
        read_post(&post, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, 0)
        self.begin(1)
        ret = self.vcq.fn.prepare_get_gap(self.vcq.hdl, post.vcq_id, post.lcl,
            post.stadd, post.length, post.edata, post.flags, c_mtu, c_gap,
            self.free_space(), &desc_size)
        self.finish(ret, desc_size, 1)
        self.vcq.posted("utofu_prepare_get_gap", ret, post.vcq_id, post.length)

    def get_stride(self, rmt_vcq_id, lcl_stadd, rmt_stadd, length, stride, num_blocks,
                   edata=0, flags=0):
        """Add: ``num_blocks`` blocks of remote memory to local memory, each of
        ``length`` bytes and ``stride`` bytes after the one before, on both sides;
        each is an operation of its own with its own notices.

        Source: uTofu user's guide 3.7.2.9, utofu_prepare_get_stride.
        """
        cdef:
            post_t post
            size_t c_stride = whole(stride, "stride")
            size_t c_blocks = whole(num_blocks, "num_blocks")
            int ret
            size_t desc_size = 0
        read_post(&post, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, 0)
        self.begin(c_blocks)
        ret = self.vcq.fn.prepare_get_stride(self.vcq.hdl, post.vcq_id, post.lcl,
            post.stadd, post.length, c_stride, c_blocks, post.edata, post.flags,
            self.free_space(), &desc_size)
        self.finish(ret, desc_size, c_blocks)
        self.vcq.posted("utofu_prepare_get_stride", ret, post.vcq_id, post.length)

    def get_stride_gap(self, rmt_vcq_id, lcl_stadd, rmt_stadd, length, stride,
                       num_blocks, mtu, gap, edata=0, flags=0):
        """Add: as ``get_stride``, with ``mtu`` and ``gap`` of ``get_gap``.

        Source: uTofu user's guide 3.7.2.10, utofu_prepare_get_stride_gap.
        """
        cdef:
            post_t post
            size_t c_stride = whole(stride, "stride")
            size_t c_blocks = whole(num_blocks, "num_blocks")
            size_t c_mtu = whole(mtu, "mtu")
            size_t c_gap = whole(gap, "gap")
            int ret
            size_t desc_size = 0
        read_post(&post, rmt_vcq_id, lcl_stadd, rmt_stadd, length, edata, flags, 0)
        self.begin(c_blocks)
        ret = self.vcq.fn.prepare_get_stride_gap(self.vcq.hdl, post.vcq_id, post.lcl,
            post.stadd, post.length, c_stride, c_blocks, post.edata, post.flags, c_mtu,
            c_gap, self.free_space(), &desc_size)
        self.finish(ret, desc_size, c_blocks)
        self.vcq.posted("utofu_prepare_get_stride_gap", ret, post.vcq_id, post.length)

    def armw4(self, rmt_vcq_id, op, value, rmt_stadd, edata=0, flags=0):
        """Add: atomic ``ArmwOp`` on an aligned remote 4-byte word; the old value
        is in the local MRQ notice.

        Source: uTofu user's guide 3.7.2.11, utofu_prepare_armw4.
        """
        cdef:
            post_t post
            int c_op = signed_int(op, "op")
            uint32_t c_value = whole(value, "value", 0xffffffff)
            int ret
            size_t desc_size = 0
        read_post(&post, rmt_vcq_id, 0, rmt_stadd, 0, edata, flags, 0)
        self.begin(1)
        ret = self.vcq.fn.prepare_armw4(self.vcq.hdl, post.vcq_id,
            <c.utofu_armw_op>c_op, c_value, post.stadd, post.edata, post.flags,
            self.free_space(), &desc_size)
        self.finish(ret, desc_size, 1)
        self.vcq.posted("utofu_prepare_armw4", ret, post.vcq_id, 4)

    def armw8(self, rmt_vcq_id, op, value, rmt_stadd, edata=0, flags=0):
        """Add: atomic ``ArmwOp`` on an aligned remote 8-byte word; the old value
        is in the local MRQ notice.

        Source: uTofu user's guide 3.7.2.12, utofu_prepare_armw8.
        """
        cdef:
            post_t post
            int c_op = signed_int(op, "op")
            uint64_t c_value = whole(value, "value")
            int ret
            size_t desc_size = 0
        read_post(&post, rmt_vcq_id, 0, rmt_stadd, 0, edata, flags, 0)
        self.begin(1)
        ret = self.vcq.fn.prepare_armw8(self.vcq.hdl, post.vcq_id,
            <c.utofu_armw_op>c_op, c_value, post.stadd, post.edata, post.flags,
            self.free_space(), &desc_size)
        self.finish(ret, desc_size, 1)
        self.vcq.posted("utofu_prepare_armw8", ret, post.vcq_id, 8)

    def cswap4(self, rmt_vcq_id, old_value, new_value, rmt_stadd, edata=0, flags=0):
        """Add: atomic compare and swap of an aligned remote 4-byte word; the old
        value is in the local MRQ notice.

        Source: uTofu user's guide 3.7.2.13, utofu_prepare_cswap4.
        """
        cdef:
            post_t post
            uint32_t c_old = whole(old_value, "old_value", 0xffffffff)
            uint32_t c_new = whole(new_value, "new_value", 0xffffffff)
            int ret
            size_t desc_size = 0
        read_post(&post, rmt_vcq_id, 0, rmt_stadd, 0, edata, flags, 0)
        self.begin(1)
        ret = self.vcq.fn.prepare_cswap4(self.vcq.hdl, post.vcq_id, c_old, c_new,
            post.stadd, post.edata, post.flags, self.free_space(), &desc_size)
        self.finish(ret, desc_size, 1)
        self.vcq.posted("utofu_prepare_cswap4", ret, post.vcq_id, 4)

    def cswap8(self, rmt_vcq_id, old_value, new_value, rmt_stadd, edata=0, flags=0):
        """Add: atomic compare and swap of an aligned remote 8-byte word; the old
        value is in the local MRQ notice.

        Source: uTofu user's guide 3.7.2.14, utofu_prepare_cswap8.
        """
        cdef:
            post_t post
            uint64_t c_old = whole(old_value, "old_value")
            uint64_t c_new = whole(new_value, "new_value")
            int ret
            size_t desc_size = 0
        read_post(&post, rmt_vcq_id, 0, rmt_stadd, 0, edata, flags, 0)
        self.begin(1)
        ret = self.vcq.fn.prepare_cswap8(self.vcq.hdl, post.vcq_id, c_old, c_new,
            post.stadd, post.edata, post.flags, self.free_space(), &desc_size)
        self.finish(ret, desc_size, 1)
        self.vcq.posted("utofu_prepare_cswap8", ret, post.vcq_id, 8)

    def nop(self, flags=0):
        """Add: an operation that does nothing.

        Source: uTofu user's guide 3.7.2.15, utofu_prepare_nop.
        """
        cdef unsigned long c_flags = whole(flags, "flags")
        cdef int ret
        cdef size_t desc_size = 0
        self.begin(1)
        ret = self.vcq.fn.prepare_nop(self.vcq.hdl, c_flags, self.free_space(),
                                      &desc_size)
        self.finish(ret, desc_size, 1)
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_prepare_nop", ret, self.vcq.describe())
