# SPDX-License-Identifier: BSD-3-Clause
# Endpoint


@cython.no_gc_clear
cdef class EpHandle:
    """UCX's side of an endpoint; the worker keeps it until UCX is done with it.

    Source: UCX v1.22, ucp_ep_create.
    """


cdef str ADDRESSES = "a worker's address (bytes-like), or (host, port)"


cdef object no_endpoint():
    return None


cdef EpHandle open_ep(Worker worker, ucp_ep_params_t *params, str peer,
                      bint error_handling, on_error):
    """Create the endpoint that the parameters describe."""
    cdef:
        EpHandle handle = EpHandle.__new__(EpHandle)
        ucs_status_t status
    if on_error is not None and not callable(on_error):
        raise TypeError("on_error must be callable, or None")
    handle.peer = peer
    handle.error_handling = error_handling
    handle.on_error = on_error
    handle.endpoint = no_endpoint
    handle.failure.event.kind = c.GLUE_FAILURE
    handle.failure.event.owner = <void *>handle
    handle.failure.list = &worker.list
    if error_handling:
        c.glue_ep_failure(params, &handle.failure)
    worker.busy += 1
    with nogil:
        status = c.ucp_ep_create(worker.worker, params, &handle.ep)
    worker.busy -= 1
    if status != c.UCS_OK:
        handle.ep = NULL
        detail = f"{peer}, UCX_TLS={os.environ.get('UCX_TLS', 'all')}"
        if status == c.UCS_ERR_UNREACHABLE and error_handling:
            detail += ("; transports that can't handle errors were left out, "
                       "error_handling=False on both sides allows them")
        fail("ucp_ep_create", status, detail)
    worker.eps.add(handle)
    return handle


cdef str advice(EpHandle handle, int status):
    """What helps against that failure of the endpoint, if that is known."""
    if handle is not None and handle.by_port and status == c.UCS_ERR_UNREACHABLE:
        return "; (host, port) needs tcp in UCX_TLS on both sides"
    return ""


cdef Endpoint make_endpoint(Worker worker, EpHandle handle):
    cdef Endpoint endpoint = Endpoint.__new__(Endpoint)
    endpoint.worker = worker
    endpoint.handle = handle
    handle.endpoint = weakref.ref(endpoint)
    return endpoint


cdef Request post_tag_recv(Worker worker, Endpoint ep, buffer, uint64_t tag,
                           uint64_t mask):
    cdef:
        ucp_request_param_t param
        Request request = worker.take("ucp_tag_recv_nbx")
        ucs_status_ptr_t ptr
    request.acquire(buffer, "buffer", True)
    request.is_recv = True
    request.is_tag = True
    if ep is not None:
        request.ep = ep
        request.bound = ep.handle
    c.glue_param_tag_recv(&param, &request.op)
    if request.is_large:
        worker.busy += 1
        with nogil:
            ptr = c.ucp_tag_recv_nbx(worker.worker, request.view.buf,
                                     request.view.len, tag, mask, &param)
        worker.busy -= 1
    else:
        ptr = c.ucp_tag_recv_nbx(worker.worker, request.view.buf,
                                 request.view.len, tag, mask, &param)
    if ptr == NULL:
        request.op.length = request.op.info.length
    return worker.settle(request, ptr)


cdef class Endpoint:
    """Endpoint(worker, address, *, error_handling=True, on_error=None)\n--\n\nA connection to one peer.

    Parameters
    ----------
    worker : Worker
    address : bytes or tuple
        The peer's ``Worker.address``, or (host, port) of a peer's ``Listener``; the
        latter needs a transport with a connection manager: "tcp" in ``UCX_TLS``.
    error_handling : bool
        A peer that dies or leaves makes operations fail, instead of waiting for
        ever.  Both sides must say the same.  Leaves out transports that can't do it
        (UCX's own shared memory).
    on_error : callable, optional
        ``on_error(endpoint, exception)``, called once from progress when the
        endpoint fails.

    Raises ``UcpError`` (``UcpUnreachableError`` when no allowed transport fits),
    ``ValueError`` for bytes that are no address.  Does not wait for the peer: a
    connection that can't be made fails later.

    Source: UCX v1.22, ucp_ep_create.
    """

    def __init__(self, Worker worker not None, address, *,
                 bint error_handling=True, on_error=None):
        cdef ucp_ep_params_t params
        if self.handle is not None:
            raise RuntimeError("the endpoint is open already")
        worker.check()
        memset(&params, 0, sizeof(params))
        if isinstance(address, tuple):
            if len(address) != 2:
                raise ValueError(f"address must be {ADDRESSES}, not a tuple of "
                                 f"{len(address)}")
            host, port = address
            data = pack_sockaddr(host, port)
            params.field_mask = (c.UCP_EP_PARAM_FIELD_SOCK_ADDR |
                                 c.UCP_EP_PARAM_FIELD_FLAGS)
            params.flags = c.UCP_EP_PARAMS_FLAGS_CLIENT_SERVER
            params.sockaddr.addr = <const c.sockaddr_t *>PyBytes_AS_STRING(data)
            params.sockaddr.addrlen = len(data)
            peer = f"{host}:{port}"
        else:
            data = unseal(b"UGLA", as_bytes(address, "address", ADDRESSES),
                          "a worker's address")
            params.field_mask = c.UCP_EP_PARAM_FIELD_REMOTE_ADDRESS
            params.address = <const c.ucp_address_t *>PyBytes_AS_STRING(data)
            peer = f"a worker with an address of {len(data)} bytes"
        self.worker = worker
        self.handle = open_ep(worker, &params, peer, error_handling, on_error)
        self.handle.by_port = isinstance(address, tuple)
        self.handle.endpoint = weakref.ref(self)

    def __repr__(self):
        if self.handle is None or self.handle.ep == NULL:
            return "<Endpoint, closed>"
        state = ""
        if self.handle.status:
            state = f", failed with {STATUS_NAMES.get(self.handle.status, self.handle.status)}"
        return f"<Endpoint to {self.handle.peer}{state}>"

    cdef int check_made(self) except -1:
        """Not from Endpoint.__new__ alone."""
        if self.handle is None:
            raise UcpClosedError("the endpoint was never opened")
        return 0

    cdef int check(self) except -1:
        self.check_made()
        self.worker.check()
        if self.handle.ep == NULL:
            raise UcpClosedError(f"the endpoint to {self.handle.peer} is closed")
        if self.handle.status != c.UCS_OK:
            fail("the endpoint", self.handle.status,
                 f"{self!r} failed before; close it")
        return 0

    @property
    def alive(self):
        """bool : open and not failed.

        Source: UCX v1.22, ucp_err_handler_cb_t.
        """
        self.check_made()
        return self.handle.ep != NULL and self.handle.status == c.UCS_OK

    @property
    def transports(self):
        """list of str : "transport/device" of the lanes, e.g. "utofu/tofu0".

        Source: UCX v1.22, ucp_ep_query, UCP_EP_ATTR_FIELD_TRANSPORTS.
        """
        cdef:
            c.ucp_ep_attr_t attr
            c.ucp_transport_entry_t entries[64]
            unsigned i
        self.check()
        attr.field_mask = c.UCP_EP_ATTR_FIELD_TRANSPORTS
        attr.transports.entries = entries
        attr.transports.num_entries = 64
        attr.transports.entry_size = sizeof(c.ucp_transport_entry_t)
        status = c.ucp_ep_query(self.handle.ep, &attr)
        if status != c.UCS_OK:
            fail("ucp_ep_query", status, repr(self))
        return [f"{(<bytes>entries[i].transport_name).decode()}/"
                f"{(<bytes>entries[i].device_name).decode()}"
                for i in range(attr.transports.num_entries)]

    # ------------------------------------------------------------ two sides
    def tag_send(self, buffer, tag=0, *, bint sync=False):
        """Send a tagged message.

        Parameters
        ----------
        buffer : contiguous buffer
            Must not change until the operation is over.
        tag : int
            64 bits.
        sync : bool
            Over only when the peer has matched it with a receive.

        Returns
        -------
        Request

        Raises ``UcpError``, ``BufferError``, ``TypeError``.  Does not block.

        Source: UCX v1.22, ucp_tag_send_nbx, ucp_tag_send_sync_nbx.
        """
        cdef:
            uint64_t number = whole(tag, "tag")
            ucp_request_param_t param
            Request request
            ucs_status_ptr_t ptr
            ucp_ep_h ep
        self.check()
        ep = self.handle.ep
        request = self.worker.take("ucp_tag_send_sync_nbx" if sync else
                                   "ucp_tag_send_nbx")
        request.acquire(buffer, "buffer", False)
        request.ep = self
        c.glue_param(&param, &request.op)
        if request.is_large:
            self.worker.busy += 1
            with nogil:
                if sync:
                    ptr = c.ucp_tag_send_sync_nbx(ep, request.view.buf,
                                                  request.view.len, number, &param)
                else:
                    ptr = c.ucp_tag_send_nbx(ep, request.view.buf,
                                             request.view.len, number, &param)
            self.worker.busy -= 1
        elif sync:
            ptr = c.ucp_tag_send_sync_nbx(ep, request.view.buf, request.view.len,
                                          number, &param)
        else:
            ptr = c.ucp_tag_send_nbx(ep, request.view.buf, request.view.len, number,
                                     &param)
        return self.worker.settle(request, ptr)

    def tag_recv(self, buffer, tag=0, mask=FULL_MASK):
        """As ``Worker.tag_recv``, and it fails when this endpoint does.

        UCX matches tags of all peers: put the peer into the tag when it matters.

        Source: UCX v1.22, ucp_tag_recv_nbx.
        """
        cdef uint64_t number = whole(tag, "tag")
        cdef uint64_t bits = whole(mask, "mask")
        self.check()
        return post_tag_recv(self.worker, self, buffer, number, bits)

    def stream_send(self, buffer):
        """Send bytes into the stream of this endpoint.

        Returns
        -------
        Request

        Raises ``UcpError``, ``BufferError``, ``TypeError``.  Does not block.

        Source: UCX v1.22, ucp_stream_send_nbx.
        """
        cdef:
            ucp_request_param_t param
            Request request
            ucs_status_ptr_t ptr
            ucp_ep_h ep
        self.check()
        ep = self.handle.ep
        request = self.worker.take("ucp_stream_send_nbx")
        request.acquire(buffer, "buffer", False)
        request.ep = self
        c.glue_param(&param, &request.op)
        self.worker.busy += 1
        with nogil:
            ptr = c.ucp_stream_send_nbx(ep, request.view.buf, request.view.len,
                                        &param)
        self.worker.busy -= 1
        return self.worker.settle(request, ptr)

    def stream_recv(self, buffer):
        """Fill the buffer from the stream of this endpoint.

        Parameters
        ----------
        buffer : writable, contiguous buffer
            Not empty.

        Returns
        -------
        Request
            Its result is the number of bytes, that of the whole buffer.

        Raises ``UcpError``, ``BufferError``, ``TypeError``, ``ValueError``.

        Source: UCX v1.22, ucp_stream_recv_nbx, UCP_STREAM_RECV_FLAG_WAITALL.
        """
        cdef:
            ucp_request_param_t param
            Request request
            ucs_status_ptr_t ptr
            ucp_ep_h ep
        self.check()
        ep = self.handle.ep
        request = self.worker.take("ucp_stream_recv_nbx")
        request.acquire(buffer, "buffer", True)
        if request.view.len == 0:
            request.release()
            raise ValueError("stream_recv: the buffer is empty")
        request.is_recv = True
        request.ep = self
        request.bound = self.handle
        c.glue_param_stream_recv(&param, &request.op)
        self.worker.busy += 1
        with nogil:
            ptr = c.ucp_stream_recv_nbx(ep, request.view.buf, request.view.len,
                                        &request.op.length, &param)
        self.worker.busy -= 1
        return self.worker.settle(request, ptr)

    def am_send(self, am_id, payload=b"", *, header=b"", bint reply=False,
                protocol=None):
        """Send an active message, for which the peer has a handler.

        Parameters
        ----------
        am_id : int
            0 to 65535.
        payload : contiguous buffer
            Must not change until the operation is over.
        header : bytes-like
            At most ``Worker.max_am_header`` bytes.
        reply : bool
            Tell the peer which endpoint an answer goes to (``AmMessage.endpoint``).
        protocol : str, optional
            "eager": the data goes at once; "rndv": it is announced and fetched;
            None: UCX decides by the size.

        Returns
        -------
        Request

        Raises ``UcpError``, ``ValueError``, ``BufferError``, ``TypeError``.

        Source: UCX v1.22, ucp_am_send_nbx.
        """
        cdef:
            int number = signed_int(am_id, "am_id")
            ucp_request_param_t param
            Request request
            ucs_status_ptr_t ptr
            ucp_ep_h ep
            uint32_t flags = c.UCP_AM_SEND_FLAG_REPLY if reply else 0
            char *start
            size_t length
        self.check()
        ep = self.handle.ep
        if not 0 <= number <= 0xffff:
            raise ValueError(f"am_id {number}: 0 to 65535 can be")
        if protocol == "eager":
            flags |= c.UCP_AM_SEND_FLAG_EAGER
        elif protocol == "rndv":
            flags |= c.UCP_AM_SEND_FLAG_RNDV
        elif protocol is not None:
            raise ValueError(f"protocol {protocol!r}: 'eager', 'rndv' or None")
        header = as_bytes(header, "header")
        start = PyBytes_AS_STRING(header)
        length = len(header)
        if length > 128 and length > <size_t>self.worker.max_am_header:
            raise ValueError(f"am_send: a header of {length} bytes; the limit is "
                             f"{self.worker.max_am_header}")
        request = self.worker.take("ucp_am_send_nbx")
        request.acquire(payload, "payload", False)
        request.ep = self
        request.keep = header
        c.glue_param(&param, &request.op)
        if flags:
            c.glue_param_flags(&param, flags)
        if request.is_large:
            self.worker.busy += 1
            with nogil:
                ptr = c.ucp_am_send_nbx(ep, number, start, length, request.view.buf,
                                        request.view.len, &param)
            self.worker.busy -= 1
        else:
            ptr = c.ucp_am_send_nbx(ep, number, start, length, request.view.buf,
                                    request.view.len, &param)
        return self.worker.settle(request, ptr)

    # -------------------------------------------------------------- one side
    def unpack(self, packed):
        """Make a ``RemoteKey`` of what a peer's ``Memory.pack_rkey`` gave.

        Source: UCX v1.22, ucp_ep_rkey_unpack.
        """
        return RemoteKey(self, packed)

    cdef Request remote(self, str call, RemoteKey key, Py_ssize_t offset,
                        size_t length, int alignment):
        """A request for remote memory, after checking the range and then that the
        address is a multiple of the alignment; not posted."""
        cdef Request request
        self.check()
        key.check()
        if key.ep is not self:
            raise ValueError(f"{call}: {key!r} belongs to another endpoint "
                             f"({key.ep!r}) than {self!r}")
        if (offset < 0 or <size_t>offset > <size_t>key.size or
                length > <size_t>key.size - <size_t>offset):
            raise status_class(range_status)(
                call, range_status,
                f"{length} bytes at offset {offset} of {key!r}")
        if alignment > 1 and (key.base + <size_t>offset) % alignment:
            raise ValueError(f"offset {offset}: the address is no multiple of "
                             f"{alignment}")
        request = self.worker.take(call)
        request.ep = self
        request.rkey = key
        key.num_operations += 1
        return request

    def put(self, buffer, RemoteKey remote not None, *, offset=0):
        """Write a buffer into the peer's memory.

        Over when the buffer may be used again; ``flush`` tells when the peer's
        memory is written.

        Parameters
        ----------
        buffer : contiguous buffer
        remote : RemoteKey
            Of this endpoint.
        offset : int
            Bytes from the start of the remote memory.

        Returns
        -------
        Request

        Raises ``UcpError`` (out of range: ``UcpCallerError``), ``BufferError``,
        ``TypeError``.  Does not block.

        Source: UCX v1.22, ucp_put_nbx.
        """
        return post_rma(self, buffer, remote, signed_whole(offset, "offset"), False)

    def get(self, buffer, RemoteKey remote not None, *, offset=0):
        """Read the peer's memory into a buffer.

        Parameters
        ----------
        buffer : writable, contiguous buffer
        remote : RemoteKey
            Of this endpoint.
        offset : int
            Bytes from the start of the remote memory.

        Returns
        -------
        Request
            Over when the data is in the buffer.

        Raises as ``put``.

        Source: UCX v1.22, ucp_get_nbx.
        """
        return post_rma(self, buffer, remote, signed_whole(offset, "offset"), True)

    cdef Request atomic(self, int op, RemoteKey key, value, offset, size, bint fetch,
                        swap):
        return post_atomic(self, op, key, value, offset, size, fetch, swap)

    def add(self, RemoteKey remote not None, value, *, offset=0, size=8):
        """Add to a word of the peer's memory; see ``fetch_add``.

        Brings nothing back: over when it is under way, complete after ``flush``.

        Source: UCX v1.22, ucp_atomic_op_nbx, UCP_ATOMIC_OP_ADD.
        """
        return self.atomic(c.UCP_ATOMIC_OP_ADD, remote, value, offset, size, False,
                           None)

    def and_(self, RemoteKey remote not None, value, *, offset=0, size=8):
        """And into a word of the peer's memory; see ``fetch_add``.

        Brings nothing back: over when it is under way, complete after ``flush``.

        Source: UCX v1.22, ucp_atomic_op_nbx, UCP_ATOMIC_OP_AND.
        """
        return self.atomic(c.UCP_ATOMIC_OP_AND, remote, value, offset, size, False,
                           None)

    def or_(self, RemoteKey remote not None, value, *, offset=0, size=8):
        """Or into a word of the peer's memory; see ``fetch_add``.

        Brings nothing back: over when it is under way, complete after ``flush``.

        Source: UCX v1.22, ucp_atomic_op_nbx, UCP_ATOMIC_OP_OR.
        """
        return self.atomic(c.UCP_ATOMIC_OP_OR, remote, value, offset, size, False,
                           None)

    def xor(self, RemoteKey remote not None, value, *, offset=0, size=8):
        """Exclusive-or into a word of the peer's memory; see ``fetch_add``.

        Brings nothing back: over when it is under way, complete after ``flush``.

        Source: UCX v1.22, ucp_atomic_op_nbx, UCP_ATOMIC_OP_XOR.
        """
        return self.atomic(c.UCP_ATOMIC_OP_XOR, remote, value, offset, size, False,
                           None)

    def fetch_add(self, RemoteKey remote not None, value, *, offset=0, size=8):
        """Add to a word of the peer's memory and bring back what it was.

        Parameters
        ----------
        remote : RemoteKey
            Of this endpoint.
        value : int
            Of ``size`` bytes, signed or unsigned; sums wrap around.
        offset : int
            Bytes from the start of the remote memory; a multiple of ``size`` must
            come out as address.
        size : int
            Bytes of the word: 4 or 8.

        Returns
        -------
        Request
            Its result is the old value, unsigned.

        Raises ``UcpError`` (out of range: ``UcpCallerError``), ``ValueError``,
        ``OverflowError``.  Does not block.

        Source: UCX v1.22, ucp_atomic_op_nbx, UCP_ATOMIC_OP_ADD.
        """
        return self.atomic(c.UCP_ATOMIC_OP_ADD, remote, value, offset, size, True,
                           None)

    def fetch_and(self, RemoteKey remote not None, value, *, offset=0, size=8):
        """And into a word and bring back what it was; see ``fetch_add``.

        Source: UCX v1.22, ucp_atomic_op_nbx, UCP_ATOMIC_OP_AND.
        """
        return self.atomic(c.UCP_ATOMIC_OP_AND, remote, value, offset, size, True,
                           None)

    def fetch_or(self, RemoteKey remote not None, value, *, offset=0, size=8):
        """Or into a word and bring back what it was; see ``fetch_add``.

        Source: UCX v1.22, ucp_atomic_op_nbx, UCP_ATOMIC_OP_OR.
        """
        return self.atomic(c.UCP_ATOMIC_OP_OR, remote, value, offset, size, True,
                           None)

    def fetch_xor(self, RemoteKey remote not None, value, *, offset=0, size=8):
        """Exclusive-or into a word and bring back what it was; see ``fetch_add``.

        Source: UCX v1.22, ucp_atomic_op_nbx, UCP_ATOMIC_OP_XOR.
        """
        return self.atomic(c.UCP_ATOMIC_OP_XOR, remote, value, offset, size, True,
                           None)

    def swap(self, RemoteKey remote not None, value, *, offset=0, size=8):
        """Put a value into a word and bring back what it was; see ``fetch_add``.

        Source: UCX v1.22, ucp_atomic_op_nbx, UCP_ATOMIC_OP_SWAP.
        """
        return self.atomic(c.UCP_ATOMIC_OP_SWAP, remote, value, offset, size, True,
                           None)

    def compare_swap(self, RemoteKey remote not None, compare, value, *, offset=0,
                     size=8):
        """Put ``value`` into a word if it is ``compare``, and bring back what it was;
        see ``fetch_add``.

        Source: UCX v1.22, ucp_atomic_op_nbx, UCP_ATOMIC_OP_CSWAP.
        """
        return self.atomic(c.UCP_ATOMIC_OP_CSWAP, remote, compare, offset, size,
                           True, integer(value, "value"))

    def flush(self):
        """Complete all that was posted on this endpoint, at the peer too.

        Returns
        -------
        Request

        Source: UCX v1.22, ucp_ep_flush_nbx.
        """
        cdef ucp_request_param_t param
        cdef Request request
        self.check()
        request = self.worker.take("ucp_ep_flush_nbx")
        request.ep = self
        c.glue_param(&param, &request.op)
        return self.worker.settle(request,
                                  c.ucp_ep_flush_nbx(self.handle.ep, &param))

    # --------------------------------------------------------------- closing
    def close_nb(self, *, bint force=False):
        """Begin to close; afterwards nothing can be posted.

        Parameters
        ----------
        force : bool
            Do not complete what is in flight: it ends with ``UcpCanceledError``.
            Without error handling there is no force, and it is ignored.

        Returns
        -------
        Request
            Harmless when repeated.

        Source: UCX v1.22, ucp_ep_close_nbx.
        """
        self.check_made()
        self.worker.check_open()
        if self.handle.ep == NULL:
            return DONE
        self.worker.check()
        return self.worker.close_handle(self.handle, force)

    def close(self, *, bint force=False, timeout=10.0):
        """Close and wait until it is closed; harmless when repeated.

        Receives of this endpoint are cancelled, its remote keys can't be used any more.

        Parameters
        ----------
        force : bool
            As for ``close_nb``.
        timeout : float or None
            Seconds; None waits for ever.

        Raises ``TimeoutError`` (it goes on closing), ``UcpError`` when what was in
        flight could not be completed; it is closed then.

        Source: UCX v1.22, ucp_ep_close_nbx.
        """
        if self.handle is None or self.worker.worker == NULL:
            return
        request = self.close_nb(force=force)
        try:
            request.wait(timeout)
        except TimeoutError:
            if not request.done:
                raise
        except ConnectionError:
            # told already by on_error, or the peer was faster to close
            pass

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.close(force=kind is not None)

    def __del__(self):
        cdef Worker worker = self.worker
        if (self.handle is None or self.handle.ep == NULL or worker.worker == NULL
                or worker.generation != fork_generation):
            return
        warn_unclosed(self)
        # perhaps not on the worker's thread: it closes it later
        worker.orphans.append(self.handle)
