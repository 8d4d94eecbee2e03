# SPDX-License-Identifier: BSD-3-Clause
# Socket addresses and Listener


cdef bytes pack_sockaddr(host, port):
    """A struct sockaddr for a numeric or named host; looking up a name may block."""
    port = integer(port, "port")
    if not 0 <= port <= 0xffff:
        raise ValueError(f"port {shown(port)}: 0 to 65535 can be")
    if host is not None and not isinstance(host, (str, bytes)):
        raise TypeError(f"host must be a str, not {type(host).__name__}")
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM)[0]
    if family == socket.AF_INET:
        return struct.pack("=H", family) + struct.pack(
            "!H4s8x", address[1], socket.inet_pton(family, address[0]))
    if family == socket.AF_INET6:
        number = socket.inet_pton(family, address[0].partition("%")[0])
        return struct.pack("=H", family) + struct.pack(
            "!HI16s", address[1], address[2], number) + struct.pack("=I", address[3])
    raise ValueError(f"{host}: neither IPv4 nor IPv6")


cdef tuple unpack_sockaddr(bytes data):
    """(host, port) of a struct sockaddr."""
    family, = struct.unpack_from("=H", data)
    port, = struct.unpack_from("!H", data, 2)
    if family == socket.AF_INET:
        return socket.inet_ntop(family, data[4:8]), port
    return socket.inet_ntop(family, data[8:24]), port


cdef class Listener:
    """Listener(worker, port=0, host='0.0.0.0', handler=None, *, \
error_handling=True, on_error=None)\n--\n\nAccepts connections by socket address.

    Parameters
    ----------
    worker : Worker
    port : int
        0 lets the system choose; see the attribute.
    host : str
        Address to listen on.
    handler : callable, optional
        ``handler(endpoint)``, called from progress for each connection.  Without
        one, connections wait for ``accept``.
    error_handling, on_error :
        For the endpoints, as for ``Endpoint``.

    Attributes
    ----------
    worker : Worker
    host : str
    port : int

    Raises ``UcpError``: without "tcp" in ``UCX_TLS`` there is nothing that listens.

    Source: UCX v1.22, ucp_listener_create.
    """

    def __init__(self, Worker worker not None, port=0, host="0.0.0.0", handler=None,
                 *, bint error_handling=True, on_error=None):
        cdef:
            c.ucp_listener_params_t params
            c.ucp_listener_attr_t attr
            int status
        if self.listener != NULL:
            raise RuntimeError("the listener is open already")
        if handler is not None and not callable(handler):
            raise TypeError("handler must be callable, or None")
        worker.check()
        data = pack_sockaddr(host, port)
        params.field_mask = (c.UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
                             c.UCP_LISTENER_PARAM_FIELD_CONN_HANDLER)
        params.sockaddr.addr = <const c.sockaddr_t *>PyBytes_AS_STRING(data)
        params.sockaddr.addrlen = len(data)
        params.conn_handler.cb = c.glue_connection_cb
        params.conn_handler.arg = &self.source
        self.source.list = &worker.list
        self.source.owner = <void *>self
        self.handler = handler
        self.inbox = Inbox(worker)
        self.error_handling = error_handling
        self.on_error = on_error
        with nogil:
            status = c.ucp_listener_create(worker.worker, &params, &self.listener)
        if status != c.UCS_OK:
            self.listener = NULL
            fail("ucp_listener_create", status,
                 f"{host}:{port}, UCX_TLS={os.environ.get('UCX_TLS', 'all')}, "
                 "which must allow tcp")
        self.worker = worker
        worker.listeners.add(self)      # events refer to it
        attr.field_mask = c.UCP_LISTENER_ATTR_FIELD_SOCKADDR
        status = c.ucp_listener_query(self.listener, &attr)
        if status != c.UCS_OK:
            fail("ucp_listener_query", status, f"{host}:{port}")
        self.address = (<char *>&attr.sockaddr)[:sizeof(attr.sockaddr)]
        self.host, self.port = unpack_sockaddr(self.address)

    def __repr__(self):
        if self.listener == NULL:
            return "<Listener, closed>"
        return f"<Listener on {self.host}:{self.port}>"

    cdef int check(self) except -1:
        if self.listener == NULL:
            raise UcpClosedError("the listener is closed")
        return self.worker.check()

    cdef int on_connection(self, glue_connection_t *connection) except -1:
        """A client has come: make an endpoint for it."""
        cdef:
            ucp_ep_params_t params
            c.ucp_conn_request_attr_t attr
            ucp_conn_request_h request = connection.request
            EpHandle handle
            Worker worker = self.worker
        free(connection)
        memset(&params, 0, sizeof(params))
        params.field_mask = c.UCP_EP_PARAM_FIELD_CONN_REQUEST
        params.conn_request = request
        memset(&attr, 0, sizeof(attr))
        attr.field_mask = c.UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR
        client = None               # open_ep frees the request
        if c.ucp_conn_request_query(request, &attr) == c.UCS_OK:
            client = (<char *>&attr.client_address)[:sizeof(attr.client_address)]
        try:
            self.accepting += 1         # while other threads may close
            try:
                handle = open_ep(worker, &params, f"a client of port {self.port}",
                                 self.error_handling, self.on_error)
                handle.client = client
            finally:
                self.accepting -= 1
            endpoint = make_endpoint(worker, handle)
            if self.handler is None:
                self.inbox.put(endpoint)
            else:
                self.handler(endpoint)
        except BaseException as exception:
            worker.keep(exception)
        return 0

    @property
    def pending(self):
        """int : connections that came and wait for ``accept``.

        Source: UCX v1.22, ucp_listener_conn_callback_t.
        """
        return len(self.inbox)

    def accept(self, timeout=None):
        """Wait for the next connection.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever.

        Returns
        -------
        Endpoint

        Raises ``TimeoutError``, ``RuntimeError`` when there is a handler, and what
        ``Worker.progress`` raises.  Blocks without the GIL.

        Source: UCX v1.22, ucp_listener_conn_callback_t.
        """
        self._check_no_handler()
        return self.inbox.get(timeout)

    async def accept_async(self):
        """Wait for the next connection in a coroutine; as ``accept``.

        Source: UCX v1.22, ucp_listener_conn_callback_t.
        """
        self._check_no_handler()
        return await self.inbox.get_async()

    def _check_no_handler(self):
        self.check()
        if self.handler is not None:
            raise RuntimeError("this listener has a handler that gets connections")

    cdef int refuse(self, c.ucp_listener_h listener) except -1:
        """Clients that came and have not been seen get no connection."""
        cdef:
            glue_event_t **link
            glue_event_t *event
            Worker worker = self.worker
        link = &worker.ready
        while link[0] != NULL:
            link = &link[0].next
        link[0] = c.glue_take(&worker.list)
        link = &worker.ready
        while link[0] != NULL:
            event = link[0]
            if event.kind == c.GLUE_CONNECTION and event.owner == <void *>self:
                link[0] = event.next
                c.ucp_listener_reject(listener,
                                      (<glue_connection_t *>event).request)
                free(event)
            else:
                link = &event.next
        return 0

    cdef int quiesce(self) except -1:
        """Bring UCX to forget the clients that are about to come, see
        glue_listener.h; for a while at most."""
        cdef:
            Worker worker = self.worker
            double deadline = now() + QUIESCE_S
            size_t count
            unsigned strange, calm = 0
            const c.sockaddr_storage_t *known
            const c.sockaddr_storage_t *address = (
                <const c.sockaddr_storage_t *>PyBytes_AS_STRING(self.address))
        clients = b"".join([(<EpHandle>item).client for item in worker.eps
                            if (<EpHandle>item).client is not None])
        known = <const c.sockaddr_storage_t *>PyBytes_AS_STRING(clients)
        count = len(clients) // sizeof(c.sockaddr_storage_t)
        while True:
            with nogil:
                c.ucp_worker_progress(worker.worker)    # only notes what happens
                strange = c.glue_shut_half_open(worker.worker, address, known, count)
            # twice: the first filter may come while the kernel lets somebody in
            calm = 0 if strange else calm + 1
            if calm == 2 or now() >= deadline:
                return 0
            with nogil:
                usleep(100)

    cdef int shut(self) except -1:
        cdef:
            c.ucp_listener_h listener = self.listener
            Worker worker = self.worker
        if listener == NULL:
            return 0
        self.listener = NULL
        c.glue_refuse_connections(&self.source, listener)
        self.refuse(listener)
        while self.accepting:       # another thread, of one that came before
            with nogil:
                usleep(100)
        worker.busy += 1
        try:
            self.quiesce()
            with nogil:
                c.ucp_listener_destroy(listener)
        finally:
            worker.busy -= 1
        worker.listeners.discard(self)
        if worker.list.head != NULL or worker.ready != NULL:
            # what came meanwhile raises no event any more
            if worker.driver is not None:
                worker.driver.kick()
            if worker.sleepers:
                c.ucp_worker_signal(worker.worker)
        for endpoint in self.inbox.close():
            if (<Endpoint>endpoint).handle.ep != NULL:
                worker.close_handle((<Endpoint>endpoint).handle, True)
        return 0

    def close(self):
        """Stop listening; endpoints live on.  Harmless when repeated.

        Connections that nobody has accepted are closed; a waiting ``accept`` raises
        ``UcpClosedError``.

        Source: UCX v1.22, ucp_listener_destroy.
        """
        if self.listener == NULL:
            return
        self.worker.check()
        self.shut()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
