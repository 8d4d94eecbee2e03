# SPDX-License-Identifier: BSD-3-Clause
# RemoteKey, put and get, atomics

cdef int range_status = -19     # UCS_ERR_OUT_OF_RANGE


@cython.no_gc_clear
cdef class RemoteKey:
    """RemoteKey(ep, packed)\n--\n\nA peer's memory, as one endpoint reaches it.

    Parameters
    ----------
    ep : Endpoint
    packed : bytes-like
        From the peer's ``Memory.pack_rkey``.

    Attributes
    ----------
    ep : Endpoint
    address : int
        Of the first byte, in the peer.
    size : int
        Bytes.
    read_only : bool

    Raises ``ValueError`` for bytes that are no such key, ``UcpError``.

    Source: UCX v1.22, ucp_ep_rkey_unpack.
    """

    def __init__(self, Endpoint ep not None, packed):
        cdef int status
        if self.rkey != NULL:
            raise RuntimeError("the remote key is open already")
        data = unseal(b"UGLK", as_bytes(packed, "packed"), "a remote key")
        if len(data) < 17:
            raise ValueError("a remote key is too short")
        ep.check()
        self.base, self.size, self.read_only = struct.unpack_from("<QQB", data)
        self.address = self.base
        status = c.ucp_ep_rkey_unpack(ep.handle.ep, PyBytes_AS_STRING(data) + 17,
                                      &self.rkey)
        if status != c.UCS_OK:
            self.rkey = NULL
            fail("ucp_ep_rkey_unpack", status, f"{len(data)} bytes, {ep!r}")
        self.ep = ep
        ep.worker.rkeys.add(<uintptr_t>self.rkey)

    def __repr__(self):
        if self.rkey == NULL or self.ep.handle.ep == NULL:
            return "<RemoteKey, closed>"
        return f"<RemoteKey for {self.size} bytes at {self.base:#x}>"

    def __len__(self):
        return self.size

    cdef int check(self) except -1:
        if self.rkey == NULL or self.ep.handle.ep == NULL:
            raise UcpClosedError("the remote key is closed")
        return 0

    def close(self):
        """Release the key; harmless when repeated.

        Raises ``RuntimeError`` while operations use it.

        Source: UCX v1.22, ucp_rkey_destroy.
        """
        cdef ucp_rkey_h rkey = self.rkey
        if rkey == NULL:
            return
        if self.ep.worker.worker == NULL:
            self.rkey = NULL            # went with the worker
            return
        self.ep.worker.check_open()
        if self.num_operations:
            raise RuntimeError(f"{self!r} is used by {self.num_operations} "
                               "operations in flight; complete them first")
        self.ep.worker.check()
        self.rkey = NULL
        if <uintptr_t>rkey in self.ep.worker.rkeys:
            self.ep.worker.rkeys.discard(<uintptr_t>rkey)
            c.ucp_rkey_destroy(rkey)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def __del__(self):
        if (self.rkey != NULL and self.ep.worker.worker != NULL and
                self.ep.worker.generation == fork_generation):
            # perhaps not on the worker's thread: it releases it later
            self.ep.worker.orphans.append((True, <uintptr_t>self.rkey))


cdef Request post_rma(Endpoint self, buffer, RemoteKey remote, Py_ssize_t offset,
                      bint is_get):
    cdef:
        ucp_request_param_t param
        Py_buffer view
        Request request
        ucs_status_ptr_t ptr
        uint64_t address
        ucp_rkey_h rkey = remote.rkey
        ucp_ep_h ep
        str call = "ucp_get_nbx" if is_get else "ucp_put_nbx"
    self.check()
    if remote.read_only and not is_get:
        raise ValueError(f"{call}: {remote!r} is read-only")
    get_buffer(buffer, "buffer", &view, is_get)
    try:
        request = self.remote(call, remote, offset, view.len, 1)
    except BaseException:
        PyBuffer_Release(&view)
        raise
    # The exporters' fields are valid wherever they are; shapes are not used.
    request.view = view
    request.has_view = True
    request.is_large = <size_t>view.len >= LARGE
    address = remote.base + offset
    ep = self.handle.ep
    c.glue_param(&param, &request.op)
    if request.is_large:
        self.worker.busy += 1
        with nogil:
            if is_get:
                ptr = c.ucp_get_nbx(ep, request.view.buf, request.view.len, address,
                                    rkey, &param)
            else:
                ptr = c.ucp_put_nbx(ep, request.view.buf, request.view.len, address,
                                    rkey, &param)
        self.worker.busy -= 1
    elif is_get:
        ptr = c.ucp_get_nbx(ep, request.view.buf, request.view.len, address, rkey,
                            &param)
    else:
        ptr = c.ucp_put_nbx(ep, request.view.buf, request.view.len, address, rkey,
                            &param)
    return self.worker.settle(request, ptr)


cdef uint64_t as_word(value, str name, int size) except? 0:
    """The value as an unsigned word of so many bytes."""
    value = integer(value, name)        # NumPy's integers know 64 bits only
    bits = 8 * size
    if not -(1 << (bits - 1)) <= value < 1 << bits:
        outside(value, name, -(1 << (bits - 1)), (1 << bits) - 1)
    return value & ((1 << bits) - 1)


cdef Request post_atomic(Endpoint self, int op, RemoteKey remote, value, at,
                         word_size, bint fetch, swap):
    cdef:
        ucp_request_param_t param
        Request request
        Py_ssize_t offset = signed_whole(at, "offset")
        int size = signed_int(word_size, "size")
        uint64_t word, reply = 0
    if size != 4 and size != 8:
        raise ValueError(f"size {size}: words have 4 or 8 bytes")
    word = as_word(value, "value" if swap is None else "compare", size)
    if swap is not None:
        reply = as_word(swap, "value", size)
    self.check()
    feature = "amo32" if size == 4 else "amo64"
    if feature not in self.worker.context.features:
        raise ValueError(f"the context was made without the feature {feature!r}")
    if self.handle.error_handling and ucx_version() < (1, 23):
        fail("ucp_atomic_op_nbx", c.UCS_ERR_UNSUPPORTED,
             f"UCX 1.22 has no atomics for endpoints with error handling, as {self!r} "
             "is; error_handling=False on both sides allows them")
    if remote.read_only:
        raise ValueError(f"ucp_atomic_op_nbx: {remote!r} is read-only")
    request = self.remote("ucp_atomic_op_nbx", remote, offset, size, size)
    # A post that is not fetched takes its operand from here until it is over.
    request.words[0] = word
    request.words[1] = reply
    request.word_size = size if fetch else 0
    c.glue_param(&param, &request.op)
    c.glue_param_atomic(&param, size, &request.words[1] if fetch else NULL)
    return self.worker.settle(request, c.ucp_atomic_op_nbx(
        self.handle.ep, <c.ucp_atomic_op_t>op, &request.words[0], 1,
        remote.base + offset, remote.rkey, &param))
