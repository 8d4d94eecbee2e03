# SPDX-License-Identifier: BSD-3-Clause
# Memory


cdef Memory map_buffer(Context context, buffer, bint read_only):
    cdef:
        Memory memory = Memory.__new__(Memory)
        c.ucp_mem_map_params_t params
        int status
    context.check()
    get_buffer(buffer, "buffer", &memory.view, not read_only)
    if memory.view.len == 0:
        PyBuffer_Release(&memory.view)
        raise ValueError("map: the buffer is empty")
    params.field_mask = (c.UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                         c.UCP_MEM_MAP_PARAM_FIELD_LENGTH)
    params.address = memory.view.buf
    params.length = memory.view.len
    if read_only:
        params.field_mask |= c.UCP_MEM_MAP_PARAM_FIELD_PROT
        params.prot = c.UCP_MEM_MAP_PROT_LOCAL_READ | c.UCP_MEM_MAP_PROT_REMOTE_READ
    with nogil:
        status = c.ucp_mem_map(context.context, &params, &memory.memh)
    if status != c.UCS_OK:
        memory.memh = NULL
        detail = f"{memory.view.len} bytes at {<uintptr_t>memory.view.buf:#x}"
        PyBuffer_Release(&memory.view)
        fail("ucp_mem_map", status, detail)
    memory.context = context
    memory.read_only = read_only
    memory.start = memory.view.buf
    memory.size = memory.view.len
    context.memories.add(memory)
    return memory


cdef Memory map_new(Context context, size_t length):
    cdef:
        Memory memory = Memory.__new__(Memory)
        c.ucp_mem_map_params_t params
        c.ucp_mem_attr_t attr
        int status
    context.check()
    if length == 0:
        raise ValueError("alloc: at least 1 byte")
    params.field_mask = (c.UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                         c.UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                         c.UCP_MEM_MAP_PARAM_FIELD_FLAGS)
    params.address = NULL
    params.length = length
    params.flags = c.UCP_MEM_MAP_ALLOCATE
    with nogil:
        status = c.ucp_mem_map(context.context, &params, &memory.memh)
    if status != c.UCS_OK:
        memory.memh = NULL
        fail("ucp_mem_map", status, f"to allocate {length} bytes")
    memory.context = context
    attr.field_mask = c.UCP_MEM_ATTR_FIELD_ADDRESS
    status = c.ucp_mem_query(memory.memh, &attr)
    if status != c.UCS_OK:
        fail("ucp_mem_query", status, f"{length} bytes")
    memory.allocated = True
    memory.start = attr.address
    memory.size = length
    memset(memory.start, 0, length)
    context.memories.add(memory)
    return memory


@cython.no_gc_clear
cdef class Memory:
    """Registered memory: made by ``Context.map`` or ``Context.alloc``.

    It has a buffer of its own (``memoryview(memory)``, ``numpy.frombuffer(memory)``),
    which is the memory itself.

    Source: UCX v1.22, ucp_mem_map.
    """

    def __init__(self):
        raise TypeError("use Context.map() or Context.alloc()")

    def __repr__(self):
        if self.memh == NULL:
            return "<Memory, closed>"
        kind = "allocated" if self.allocated else "mapped"
        return f"<Memory {kind}, {self.size} bytes at {<uintptr_t>self.start:#x}>"

    cdef int check(self) except -1:
        if self.memh == NULL:
            raise UcpClosedError("the memory is closed")
        return self.context.check()

    @property
    def address(self):
        """int : address of the first byte in this process.

        Source: UCX v1.22, ucp_mem_query.
        """
        self.check()
        return <uintptr_t>self.start

    def __len__(self):
        self.check()
        return self.size

    def pack_rkey(self):
        """bytes : what peers need to reach this memory, for ``Endpoint.unpack``.

        Holds the address, the length and UCX's remote key.

        Source: UCX v1.22, ucp_rkey_pack.
        """
        cdef:
            void *packed = NULL
            size_t size = 0
            int status
        self.check()
        status = c.ucp_rkey_pack(self.context.context, self.memh, &packed, &size)
        if status != c.UCS_OK:
            fail("ucp_rkey_pack", status, repr(self))
        try:
            key = PyBytes_FromStringAndSize(<char *>packed, size)
        finally:
            c.ucp_rkey_buffer_release(packed)
        return seal(b"UGLK", struct.pack("<QQB", <uintptr_t>self.start, self.size,
                                         self.read_only) + key)

    def __getbuffer__(self, Py_buffer *view, int flags):
        self.check()
        PyBuffer_FillInfo(view, self, self.start, self.size,
                          0 if self.allocated else self.view.readonly, flags)
        self.num_exports += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.num_exports -= 1

    def close(self):
        """Unmap, and free what was allocated; harmless when repeated.

        A peer that uses its key afterwards gets an error, or reaches nothing that
        is defined: first tell the peers.

        Raises ``BufferError`` while views of allocated memory exist, ``UcpError``.
        Enters the kernel.

        Source: UCX v1.22, ucp_mem_unmap.
        """
        cdef int status
        if self.memh == NULL:
            return
        self.check()
        if self.allocated and self.num_exports:
            raise BufferError(f"{self!r} has {self.num_exports} views; delete "
                              "the arrays and memoryviews of it first")
        self.context.memories.discard(self)
        text = repr(self)
        status = unmap_status(self)
        if status != c.UCS_OK:
            fail("ucp_mem_unmap", status, text)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        try:
            self.close()
        except BufferError:
            if not exc or exc[0] is None:   # else what stopped the block comes first
                raise

    def __del__(self):
        if self.memh != NULL and self.context.generation == fork_generation:
            warn_unclosed(self)

    def __dealloc__(self):
        # no_gc_clear keeps self.context valid here, and it is open.
        if self.memh == NULL:
            return
        if self.context.generation == fork_generation:
            unmap_status(self)
        elif not self.allocated:
            PyBuffer_Release(&self.view)


cdef int unmap_status(Memory memory) noexcept:
    cdef c.ucp_mem_h memh = memory.memh
    cdef int status
    memory.memh = NULL
    with nogil:
        status = c.ucp_mem_unmap(memory.context.context, memh)
    if not memory.allocated:
        PyBuffer_Release(&memory.view)
    return status
