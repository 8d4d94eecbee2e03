# SPDX-License-Identifier: BSD-3-Clause
# Worker


@cython.no_gc_clear
cdef class Worker:
    """Worker(context, *, multi_thread=None)\n--\n\nProgress engine and meeting place: endpoints, messages, handlers.

    Parameters
    ----------
    context : Context
    multi_thread : bool, optional
        Several threads may use it at the same time; None is the context's default.
        Otherwise only the thread that made it may.

    Raises ``UcpError``.  Enters the kernel.

    Source: UCX v1.22, ucp_worker_create.
    """

    def __cinit__(self):
        self.fd = -1
        self.errors = []
        self.orphans = []
        self.eps = set()
        self.held = set()
        self.rkeys = set()
        self.listeners = set()
        self.am_handlers = {}
        self.am_sources = {}

    def __init__(self, Context context not None, *, multi_thread=None):
        cdef:
            c.ucp_worker_params_t params
            c.ucp_worker_attr_t attr
            int status
        if self.worker != NULL:
            raise RuntimeError("the worker is open already")
        context.check()
        multi_thread = context.multi_thread if multi_thread is None else multi_thread
        params.field_mask = (c.UCP_WORKER_PARAM_FIELD_THREAD_MODE |
                             c.UCP_WORKER_PARAM_FIELD_FLAGS)
        params.thread_mode = (c.UCS_THREAD_MODE_MULTI if multi_thread else
                              c.UCS_THREAD_MODE_SINGLE)
        # close() says itself what was in flight
        params.flags = c.UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK
        with nogil:
            status = c.ucp_worker_create(context.context, &params, &self.worker)
        if status != c.UCS_OK:
            self.worker = NULL
            fail("ucp_worker_create", status, repr(context))
        self.context = context
        self.multi_thread = multi_thread
        self.thread = PyThread_get_thread_ident()
        self.generation = fork_generation
        context.workers.add(self)
        if multi_thread:
            attr.field_mask = c.UCP_WORKER_ATTR_FIELD_THREAD_MODE
            status = c.ucp_worker_query(self.worker, &attr)
            if status != c.UCS_OK or attr.thread_mode != c.UCS_THREAD_MODE_MULTI:
                self.shut(True, 0)
                raise RuntimeError("this UCX was built without multi-threading")
        if ("wakeup" in context.features and
                c.ucp_worker_get_efd(self.worker, &self.fd) != c.UCS_OK):
            self.fd = -1

    def __repr__(self):
        if self.worker == NULL:
            return "<Worker, closed>"
        return f"<Worker, {len(self.eps)} endpoints, {self.num_requests} in flight>"

    cdef int check_open(self) except -1:
        if self.worker == NULL:
            raise UcpClosedError("the worker is closed")
        return check_generation(self.generation, "the worker")

    cdef int check(self) except -1:
        if self.worker == NULL or self.generation != fork_generation:
            self.check_open()
        if not self.multi_thread and self.thread != PyThread_get_thread_ident():
            raise UcpThreadError(
                f"{self!r} belongs to thread {self.thread}, this is thread "
                f"{PyThread_get_thread_ident()}; multi_thread=True allows several")
        return 0

    # ------------------------------------------------------------- properties
    @property
    def address(self):
        """bytes : what peers connect to with ``Worker.connect``.

        Source: UCX v1.22, ucp_worker_query, UCP_WORKER_ATTR_FIELD_ADDRESS.
        """
        cdef c.ucp_worker_attr_t attr
        self.check()
        attr.field_mask = c.UCP_WORKER_ATTR_FIELD_ADDRESS
        status = c.ucp_worker_query(self.worker, &attr)
        if status != c.UCS_OK:
            fail("ucp_worker_query", status, repr(self))
        try:
            data = PyBytes_FromStringAndSize(<char *>attr.address,
                                             attr.address_length)
        finally:
            c.ucp_worker_release_address(self.worker, attr.address)
        return seal(b"UGLA", data)

    @property
    def max_am_header(self):
        """int : bytes that the header of an active message may have.

        Source: UCX v1.22, ucp_worker_query, UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER.
        """
        cdef c.ucp_worker_attr_t attr
        self.check()
        attr.field_mask = c.UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER
        status = c.ucp_worker_query(self.worker, &attr)
        if status != c.UCS_OK:
            fail("ucp_worker_query", status, repr(self))
        return attr.max_am_header

    @property
    def event_fd(self):
        """int or None : readable when there is something to do; first ``arm``.

        None without the feature "wakeup", or when a transport has none.

        Source: UCX v1.22, ucp_worker_get_efd.
        """
        self.check()
        return None if self.fd < 0 else self.fd

    # ---------------------------------------------------------------- progress
    def progress(self):
        """Let UCX work, run handlers and callbacks of what has happened.

        Returns
        -------
        bool
            Something happened; call it again.

        Raises what a handler or callback raised: one exception each time, none is
        lost.  Does not block.

        Source: UCX v1.22, ucp_worker_progress.
        """
        self.check()
        return self.step() != 0

    cdef int step(self) except -1:
        cdef unsigned count
        if self.num_large:
            self.busy += 1
            with nogil:
                count = c.ucp_worker_progress(self.worker)
            self.busy -= 1
        else:
            count = c.ucp_worker_progress(self.worker)
        if (self.list.head != NULL or self.ready != NULL or self.orphans
                or self.errors):
            self.drain()
            return 1
        return count != 0

    cdef int drain(self) except -1:
        """Act on what the callbacks noted; raises one of what handlers raised."""
        cdef:
            glue_event_t *event
            Request request
            Listener listener
            uint64_t before = self.events
        if self.orphans:
            self.adopt()
        while True:
            if self.ready == NULL:
                self.ready = c.glue_take(&self.list)
                if self.ready == NULL:
                    break
            event = self.ready
            self.ready = event.next
            self.events += 1
            if event.kind == c.GLUE_OP:
                request = <Request>event.owner
                request.finish()
            elif event.kind == c.GLUE_AM:
                self.on_am(<glue_am_t *>event)
            elif event.kind == c.GLUE_FAILURE:
                self.on_failure(<EpHandle>event.owner)
            else:
                listener = <Listener>event.owner    # its handler may drop it
                listener.on_connection(<glue_connection_t *>event)
        # Another thread may sleep until what was just done.
        if self.sleepers and self.events != before and self.worker != NULL:
            c.ucp_worker_signal(self.worker)
        return self.raise_kept()

    cdef int keep(self, exception) except -1:
        self.errors.append(exception)
        return 0

    cdef int raise_kept(self) except -1:
        if self.errors:
            raise self.errors.pop(0)
        return 0

    cdef int wait_event(self, double deadline) except -1:
        """Progress until something was acted on: 1; 0 when the deadline came."""
        cdef:
            uint64_t seen = self.events
            unsigned i
            int found, ms
            double left
            pollfd fds
        for i in range(SPIN_WITH_GIL):
            self.step()
            if self.events != seen:
                return 1
            if self.num_large:
                break
        while True:
            self.check_open()           # a handler or a thread may have closed it
            self.busy += 1
            with nogil:
                found = c.glue_spin(self.worker, &self.list, SPIN_WITHOUT_GIL)
            self.busy -= 1
            if found or self.ready != NULL or self.orphans:
                self.drain()
            if self.events != seen:
                return 1
            PyErr_CheckSignals()
            left = deadline - now()
            if left <= 0:
                return 0
            if self.fd >= 0 and c.ucp_worker_arm(self.worker) == c.UCS_OK:
                ms = SLEEP_MS if left > SLEEP_MS * 1e-3 else <int>(left * 1e3) + 1
                fds.fd = self.fd
                fds.events = POLLIN
                self.busy += 1
                self.sleepers += 1
                with nogil:
                    poll(&fds, 1, ms)
                self.sleepers -= 1
                self.busy -= 1

    def wait(self, timeout=None):
        """Progress until something happened: an operation ended, a message or a
        connection came.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever.

        Returns
        -------
        bool
            False when the time was over.

        Raises what a handler raised.  Blocks without the GIL, sleeps when nothing
        happens, interruptible.

        Source: UCX v1.22, ucp_worker_progress, ucp_worker_arm.
        """
        self.check()
        return self.wait_event(deadline_of(timeout)) != 0

    def arm(self):
        """Make ``event_fd`` readable at the next event.

        Returns
        -------
        bool
            False: there is something to do already; progress, then try again.

        Raises ``UcpError`` without an event descriptor.

        Source: UCX v1.22, ucp_worker_arm.
        """
        self.check()
        if self.fd < 0:
            fail("ucp_worker_arm", c.UCS_ERR_UNSUPPORTED, repr(self))
        if (self.list.head != NULL or self.ready != NULL or self.orphans
                or self.errors):
            return False
        status = c.ucp_worker_arm(self.worker)
        if status == c.UCS_ERR_BUSY:
            return False
        if status != c.UCS_OK:
            fail("ucp_worker_arm", status, repr(self))
        return True

    def signal(self):
        """Wake a thread that sleeps on ``event_fd`` or in ``wait``; from any thread.

        Source: UCX v1.22, ucp_worker_signal.
        """
        self.check_open()
        status = c.ucp_worker_signal(self.worker)
        if status != c.UCS_OK:
            fail("ucp_worker_signal", status, repr(self))

    def drive(self):
        """Let the running asyncio loop progress this worker from now on.

        Awaiting anything of the worker does the same; call it in a coroutine when
        only handlers shall run.  The loop sleeps on ``event_fd`` when idle; without
        one it polls, more and more slowly.  Ends with the worker or the loop.

        Raises ``RuntimeError`` without a running loop.

        Source: UCX v1.22, ucp_worker_arm.
        """
        self.check()
        _driver.attach(self).kick()

    @property
    def _driver(self):
        return self.driver

    @_driver.setter
    def _driver(self, value):
        self.driver = value

    @property
    def _has_requests(self):
        return self.num_requests != 0

    # -------------------------------------------------------------- operations
    cdef Request take(self, str call):
        """A request to be posted; then settle() it."""
        cdef Request request
        if self.spare is not None:
            request = self.spare
            self.spare = None
        else:
            request = Request.__new__(Request)
            request.op.list = &self.list
            request.op.event.kind = c.GLUE_OP
            request.op.event.owner = <void *>request
        # From settle() on the worker's list of those in flight holds it, and only
        # that: so the collector sees who needs whom.
        request.worker = self
        request.call = call
        return request

    cdef Request settle(self, Request request, ucs_status_ptr_t ptr):
        """After posting: what the call returned decides."""
        cdef int status
        if c.UCS_PTR_IS_PTR(ptr):
            if not request.is_done:     # another thread may have been faster
                request.op.request = ptr
                request.is_linked = True
                request.next = self.first
                if self.first is not None:
                    self.first.previous = request
                self.first = request
                self.num_requests += 1
                self.num_large += request.is_large
            if self.driver is not None:
                self.driver.kick()
            return request
        status = c.UCS_PTR_STATUS(ptr)
        if request.closes is not None:
            request.op.event.status = status
            request.finish()
            return request
        if status != c.UCS_OK:
            where = request.where()
            request.release()
            fail(request.call, status, where)
        if request.is_recv or request.word_size:
            request.op.event.status = c.UCS_OK
            request.finish()
            return request
        request.release()
        request.is_large = False
        request.worker = None
        self.spare = request
        return DONE

    def flush(self):
        """Complete all puts, gets, atomics and sends of this worker's endpoints.

        Returns
        -------
        Request

        Source: UCX v1.22, ucp_worker_flush_nbx.
        """
        cdef ucp_request_param_t param
        self.check()
        cdef Request request = self.take("ucp_worker_flush_nbx")
        c.glue_param(&param, &request.op)
        return self.settle(request, c.ucp_worker_flush_nbx(self.worker, &param))

    def fence(self):
        """Later operations of this worker take effect after earlier ones, for each
        endpoint.  Does not wait.

        Source: UCX v1.22, ucp_worker_fence.
        """
        self.check()
        status = c.ucp_worker_fence(self.worker)
        if status != c.UCS_OK:
            fail("ucp_worker_fence", status, repr(self))

    def tag_recv(self, buffer, tag=0, mask=FULL_MASK):
        """Receive a tagged message of any peer.

        Parameters
        ----------
        buffer : writable, contiguous buffer
            For instance a NumPy array; longer than the message is allowed.
        tag, mask : int
            Those bits of the tag that are set in the mask (default: all) must match.

        Returns
        -------
        Request
            Its result is the number of bytes, ``sender_tag`` the tag; fails with
            ``UcpTruncatedError`` when the message is longer than the buffer.

        Raises ``UcpError``, ``BufferError``, ``TypeError``.  Does not block.

        Source: UCX v1.22, ucp_tag_recv_nbx.
        """
        cdef uint64_t number = whole(tag, "tag")
        cdef uint64_t bits = whole(mask, "mask")
        self.check()
        return post_tag_recv(self, None, buffer, number, bits)

    def tag_probe(self, tag=0, mask=FULL_MASK):
        """Look whether a tagged message waits to be received.  Does not progress.

        Returns
        -------
        tuple of int or None
            (tag, length in bytes).

        Source: UCX v1.22, ucp_tag_probe_nb.
        """
        cdef:
            uint64_t number = whole(tag, "tag")
            uint64_t bits = whole(mask, "mask")
            c.ucp_tag_recv_info_t info
        self.check()
        if c.ucp_tag_probe_nb(self.worker, number, bits, 0, &info) == NULL:
            return None
        return info.sender_tag, info.length

    # --------------------------------------------------------- active messages
    def set_am_handler(self, am_id, handler, *, rendezvous="auto"):
        """Name who gets the active messages of one id; None: nobody.

        Parameters
        ----------
        am_id : int
            0 to 65535.
        handler : callable or None
            ``handler(message)`` with an ``AmMessage``, called from progress.
        rendezvous : str
            "auto": large payloads are fetched first, so ``message.data`` is there
            (such messages may be overtaken by later small ones).  "explicit": the
            handler gets the announcement and calls ``message.recv(buffer)``.

        Messages that no handler is set for are dropped; UCX warns.

        Raises ``ValueError``, ``TypeError``, ``UcpError``.

        Source: UCX v1.22, ucp_worker_set_am_recv_handler.
        """
        cdef int number = signed_int(am_id, "am_id")
        self.check()
        if rendezvous not in ("auto", "explicit"):
            raise ValueError(f"rendezvous {rendezvous!r}: 'auto' or 'explicit'")
        set_am_handler(self, number, handler, rendezvous == "auto", None)

    def am_messages(self, am_id, *, rendezvous="auto", backlog=BACKLOG):
        """Collect the active messages of one id.

        Parameters
        ----------
        am_id, rendezvous :
            As for ``set_am_handler``, which this takes the place of.
        backlog : int
            Bytes that messages may occupy which nobody takes, 256 for each besides
            header and payload.  What comes beyond is dropped, and ``progress``
            raises ``UcpSystemError`` for the first; see ``Inbox``.

        Returns
        -------
        Inbox
            ``get(timeout)`` waits for a message; ``async for message in inbox``.

        Raises as ``set_am_handler``; ``ValueError`` for a negative backlog.

        Source: UCX v1.22, ucp_worker_set_am_recv_handler.
        """
        cdef int number = signed_int(am_id, "am_id")
        backlog = integer(backlog, "backlog")
        self.check()
        if rendezvous not in ("auto", "explicit"):
            raise ValueError(f"rendezvous {rendezvous!r}: 'auto' or 'explicit'")
        if backlog < 0:
            raise ValueError(f"backlog {shown(backlog)}: a number of bytes")
        inbox = Inbox(self, number, backlog)
        set_am_handler(self, number, inbox.put, rendezvous == "auto", inbox)
        return inbox

    def connect(self, address, *, bint error_handling=True, on_error=None):
        """Make an ``Endpoint``; the parameters are those of the class.

        Source: UCX v1.22, ucp_ep_create.
        """
        return Endpoint(self, address, error_handling=error_handling,
                        on_error=on_error)

    def listen(self, port=0, host="0.0.0.0", handler=None, *,
               bint error_handling=True, on_error=None):
        """Make a ``Listener``; the parameters are those of the class.

        Source: UCX v1.22, ucp_listener_create.
        """
        return Listener(self, port, host, handler, error_handling=error_handling,
                        on_error=on_error)

    # ----------------------------------------------------------------- closing
    cdef int adopt(self) except -1:
        """Close what the program forgot: keys as int, endpoints, messages."""
        while self.orphans:
            item = self.orphans.pop()
            if isinstance(item, EpHandle):
                if (<EpHandle>item).ep != NULL:
                    self.close_handle(item, False)
                continue
            is_key, address = item
            if is_key and address in self.rkeys:
                self.rkeys.discard(address)
                c.ucp_rkey_destroy(<ucp_rkey_h><uintptr_t>address)
            elif not is_key and address in self.held:
                self.held.discard(address)
                c.ucp_am_data_release(self.worker, <void *><uintptr_t>address)
        return 0

    cdef Request close_handle(self, EpHandle handle, bint force):
        """Begin to close an endpoint that is open; UCX wants force if it failed."""
        cdef:
            ucp_request_param_t param
            Request request = self.take("ucp_ep_close_nbx")
            ucp_ep_h ep = handle.ep
            ucs_status_ptr_t ptr
        handle.ep = NULL
        self.cancel_receives(handle, 0)
        request.closes = handle
        c.glue_param(&param, &request.op)
        if (handle.status != c.UCS_OK or handle.failure.is_queued or
                (force and handle.error_handling)):
            c.glue_param_flags(&param, c.UCP_EP_CLOSE_FLAG_FORCE)
        self.busy += 1
        with nogil:
            ptr = c.ucp_ep_close_nbx(ep, &param)
        self.busy -= 1
        return self.settle(request, ptr)

    # ------------------------------------------------------------------ events
    cdef int on_am(self, glue_am_t *am) except -1:
        """An active message came."""
        try:
            deliver(self, am)
        except BaseException as exception:
            self.keep(exception)
        if am.held != NULL and self.worker != NULL:
            c.ucp_am_data_release(self.worker, am.held)
        free(am)
        return 0

    cdef int on_failure(self, EpHandle handle) except -1:
        """UCX gave an endpoint up."""
        handle.failure.is_queued = 0
        if handle.is_closed:
            self.eps.discard(handle)
            return 0
        handle.status = handle.failure.event.status
        self.cancel_receives(handle, handle.status)
        endpoint = handle.endpoint()
        if handle.on_error is not None and endpoint is not None:
            try:
                handle.on_error(endpoint, status_error(
                    "the endpoint", handle.status,
                    handle.peer + advice(handle, handle.status)))
            except BaseException as exception:
                self.keep(exception)
        return 0

    cdef int cancel_receives(self, EpHandle handle, int status) except -1:
        """Cancel the receives of an endpoint, or all."""
        cdef Request request = self.first
        cdef Request following
        while request is not None:
            # a cancelled request may leave the list only in drain()
            following = request.next
            if request.is_recv and request.op.request != NULL and (
                    handle is None or request.bound is handle):
                request.instead_of_cancel = status
                c.ucp_request_cancel(self.worker, request.op.request)
            request = following
        return 0

    cdef int run_down(self, double deadline, list late) except -1:
        """Progress until nothing is in flight and no endpoint is left."""
        while self.num_requests or self.eps:
            try:
                if not self.wait_event(deadline):
                    return 0
            except Exception as exception:
                late.append(exception)
                if now() > deadline:
                    return 0
        return 1

    cdef int discard_events(self, bint destroyed) except -1:
        """Take what was not acted on off the list, for the worker goes."""
        cdef:
            glue_event_t *event
            glue_am_t *am
            Request request
        while True:
            if self.ready == NULL:
                self.ready = c.glue_take(&self.list)
                if self.ready == NULL:
                    return 0
            event = self.ready
            self.ready = event.next
            if event.kind == c.GLUE_OP:
                request = <Request>event.owner
                if destroyed:
                    request.op.request = NULL       # went with the worker
                request.finish()
            elif event.kind == c.GLUE_AM:
                am = <glue_am_t *>event
                if am.held != NULL and not destroyed:
                    c.ucp_am_data_release(self.worker, am.held)
                free(am)
            elif event.kind == c.GLUE_CONNECTION:
                free(event)
            else:
                (<EpHandle>event.owner).failure.is_queued = 0

    cdef int shut(self, bint force, double timeout) except -1:
        """close() without its checks; what handlers raise is kept."""
        cdef:
            EpHandle handle
            Request request
            c.ucp_worker_h worker
            list late = []
            double deadline = now() + timeout
        if self.worker == NULL or self.closing:
            return 0
        self.closing = True
        try:
            for listener in list(self.listeners):
                (<Listener>listener).shut()
            self.cancel_receives(None, 0)
            for handle in list(self.eps):
                if handle.ep != NULL:
                    self.close_handle(handle, force)
            self.run_down(deadline, late)
            for address in self.held:
                c.ucp_am_data_release(self.worker, <void *><uintptr_t>address)
            self.held.clear()
            self.discard_events(False)
        finally:
            self.closing = False
        # UCX still looks at the keys of what is in flight: rather leak those.
        if self.num_requests == 0:
            for address in self.rkeys:
                c.ucp_rkey_destroy(<ucp_rkey_h><uintptr_t>address)
        self.rkeys.clear()
        for handle in self.eps:
            handle.ep = NULL
        if self.driver is not None:
            self.driver.close()
            self.driver = None
        worker = self.worker
        self.worker = NULL
        self.context.workers.discard(self)
        with nogil:
            c.ucp_worker_destroy(worker)
        self.discard_events(True)
        while self.first is not None:
            request = self.first
            request.op.request = NULL
            request.op.event.status = c.UCS_ERR_CANCELED
            request.finish()
        self.eps.clear()
        self.orphans.clear()
        self.am_handlers.clear()
        self.errors.extend(late)
        return 0

    def close(self, *, bint force=False, timeout=10.0):
        """Close listeners and endpoints, then the worker; harmless when repeated.

        What is in flight is completed first; receives that match nothing are
        cancelled.  After the timeout, or at once with ``force``, the rest ends with
        ``UcpCanceledError``.

        Parameters
        ----------
        force : bool
            Do not wait for peers.
        timeout : float or None
            Seconds to wait for them; None waits for ever.

        Raises what handlers raised meanwhile, after it is closed; ``RuntimeError``
        in a handler while it is being closed, or while another thread is inside;
        ``TypeError`` or ``ValueError`` for what is no time.

        Source: UCX v1.22, ucp_worker_destroy.
        """
        if self.worker == NULL:
            return
        self.check()
        if self.closing:
            raise RuntimeError(f"{self!r} is being closed")
        if self.busy:
            raise RuntimeError(f"another thread uses {self!r}; end it first")
        left = seconds(timeout)
        self.shut(force, 0.2 if force else float("inf") if left is None else left)
        self.raise_kept()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        self.close(force=kind is not None)

    def __del__(self):
        if self.worker != NULL and self.generation == fork_generation:
            warn_unclosed(self)
            self.shut(True, 0.2)
