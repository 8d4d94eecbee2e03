# SPDX-License-Identifier: BSD-3-Clause
# What Endpoint does for buffers of any size, and for atomics


cdef class _Iov:
    """Pieces of registered memory as the core wants them."""

    def __cinit__(self, local, Iface iface not None):
        cdef Memory memory
        cdef size_t start, length
        if isinstance(local, Memory):
            pieces = [(local, 0, len(local))]
        elif isinstance(local, tuple):
            pieces = [local]
        elif (isinstance(local, (str, dict)) or PyObject_CheckBuffer(local)
              or not hasattr(local, "__iter__")):
            # an empty one would pass as a list without pieces
            raise TypeError("local must be a Memory, (Memory, offset, length) or a "
                            f"list of these, not {type(local).__name__}")
        else:
            pieces = list(local)
        self.iov = <c.tofu_iov_t *>PyMem_Malloc(
            max(len(pieces), 1) * sizeof(c.tofu_iov_t))
        if self.iov == NULL:
            raise MemoryError()
        self.memories = []
        for piece in pieces:
            if not (isinstance(piece, tuple) and len(piece) == 3
                    and isinstance(piece[0], Memory)):
                raise TypeError("a piece is (Memory, offset, length), not "
                                f"{type(piece).__name__}")
            item, first, size = piece
            first = integer(first, "a piece's offset")
            size = integer(size, "a piece's length")
            memory = item
            memory.check()
            if memory.md is not iface.md:
                refuse(TofuKeyError, "Endpoint", f"{memory!r} belongs to another "
                       "MemoryDomain than the endpoint")
            if not (0 <= first <= memory.size and 0 <= size
                    and first + size <= memory.size):
                refuse(TofuRangeError, "Endpoint", f"{shown(size)} bytes at offset "
                       f"{shown(first)} are not inside {memory!r}")
            length = size
            start = first
            self.iov[self.count].buffer = <char *>memory.start + start
            self.iov[self.count].length = length
            self.iov[self.count].memh = memory.memh
            self.iov[self.count].stride = 0
            self.iov[self.count].count = 1
            self.count += 1
            self.length += length
            self.memories.append(memory)

    def __dealloc__(self):
        PyMem_Free(self.iov)


cdef uint64_t operand(value, unsigned size, str name="value") except? 0:
    """A signed or unsigned integer of 4 or 8 bytes."""
    if size != 4 and size != 8:
        raise ValueError(f"size must be 4 or 8, not {size}")
    value = integer(value, name)        # NumPy's integers know 64 bits only
    bits = 8 * size
    if not -(1 << (bits - 1)) <= value < (1 << bits):
        outside(value, name, -(1 << (bits - 1)), (1 << bits) - 1)
    return value & ((1 << bits) - 1)


cdef Request put_or_get(Endpoint self, str call, object local, object remote,
                        object offset, bint is_put):
    cdef RemoteMemory target
    cdef Request request
    cdef _Registration registration = None
    cdef _Iov pieces
    cdef size_t short_limit, bcopy_limit
    if offset is not None:
        offset = integer(offset, "offset")
    self.check()
    if type(remote) is not RemoteMemory:
        raise TypeError(f"{call}: remote must be a RemoteMemory, not "
                        f"{type(remote).__name__}")
    target = <RemoteMemory>remote
    request = self.new_request(call, target.key, KIND_PUT_ZCOPY if is_put
                               else KIND_GET_ZCOPY)
    if type(local) is list or type(local) is tuple:
        pieces = _Iov(local, self.iface)
        if pieces.count > (self.iface.limits.put_max_iov if is_put
                           else self.iface.limits.get_max_iov):
            refuse(TofuCallerError, call, f"{pieces.count} pieces, at most "
                   f"{self.iface.limits.put_max_iov} can go at once")
        for item in pieces.memories:
            if not is_put and (<Memory>item).read_only:
                refuse(TofuReadOnlyError, call, f"{item!r} is read-only")
        request.pieces = pieces
        request.length = pieces.length
        request.remote = target.locate(self.iface, call, offset, request.length,
                                       is_put)
        request.submit()
        return request
    # first the commonest of what is large: an array that was used before
    if is_ndarray(local):
        registration = self.iface.md.kept.find(local)
    acquire(local, &request.view, not is_put, call, registration is not None)
    request.has_view = True
    # from here on the request releases the buffer, if need be in its __dealloc__
    request.start = <char *>request.view.buf
    request.length = request.view.len
    request.remote = target.locate(self.iface, call, offset, request.length,
                                   is_put)
    if is_put:
        short_limit = self.iface.limits.max_put_short
        bcopy_limit = self.iface.limits.max_put_bcopy
    else:
        short_limit = 0
        bcopy_limit = self.iface.limits.max_get_bcopy
    if request.length <= short_limit and is_put:
        request.kind = KIND_PUT_SHORT
    elif request.length <= bcopy_limit:
        request.kind = KIND_PUT_BCOPY if is_put else KIND_GET_BCOPY
    else:
        request.iov.buffer = request.start
        request.iov.length = request.length
        request.iov.count = 1
        attach(request, local, self.iface.md, registration, not is_put)
    request.submit()
    return request


cdef Request atomic(Endpoint self, str call, object remote, object offset, object value,
                    object compare, object word_size, int kind, int op):
    cdef RemoteMemory target
    cdef Request request
    cdef unsigned size = whole(word_size, "size", 0xffffffff)
    cdef uint64_t word = operand(value, size)
    cdef uint64_t compare_word = 0
    if kind == KIND_ATOMIC_CSWAP:
        compare_word = operand(compare, size, "compare")
    if offset is not None:
        offset = integer(offset, "offset")
    self.check()
    if type(remote) is not RemoteMemory:
        raise TypeError(f"{call}: remote must be a RemoteMemory, not "
                        f"{type(remote).__name__}")
    target = <RemoteMemory>remote
    request = self.new_request(call, target.key, kind)
    request.remote = target.locate(self.iface, call, offset, size, True)
    if request.remote % size:
        refuse(TofuRangeError, call, f"the word at offset {offset or 0} of "
               f"{target!r} is not aligned to its {size} bytes")
    request.operand = word
    request.flags = size
    request.atomic_op = op
    if kind == KIND_ATOMIC_CSWAP:
        request.swap = word
        request.operand = compare_word
    if kind != KIND_ATOMIC_POST:
        request.word_size = size
    request.submit()
    return request
