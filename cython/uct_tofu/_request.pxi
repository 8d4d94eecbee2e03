# SPDX-License-Identifier: BSD-3-Clause
# Request: one operation

cdef enum:
    KIND_PLAIN                  # posted by a verb of UCT, which passes its status
    KIND_PUT_SHORT
    KIND_PUT_BCOPY
    KIND_PUT_ZCOPY
    KIND_GET_BCOPY
    KIND_GET_ZCOPY
    KIND_ATOMIC_POST
    KIND_ATOMIC_FETCH
    KIND_ATOMIC_CSWAP
    KIND_AM
    KIND_FLUSH
    KIND_IFACE_FLUSH

# From so many bytes on, the GIL is released for a post (copying them takes longer
# than switching threads) and for progress while such a transfer is in flight.
cdef enum:
    LARGE_BYTES = 65536

# How long Request.wait polls at a time before it looks after signals, and for how
# long an await polls before it leaves to the event loop.
cdef enum:
    WAIT_US = 1000
    AWAIT_US = 10
    OWN_TARGET_US = 20

# Of spin(): polls between two looks at the clock, and after how long it lets other
# processes run between polls: ranks may outnumber the cores.
cdef enum:
    SPIN_POLLS = 32
    SPIN_YIELD_US = 50


cdef struct pack_arg_t:
    const void *data
    size_t length


cdef size_t pack_copy(void *dest, void *arg) noexcept nogil:
    """The data is one piece: copy it."""
    cdef pack_arg_t *pack = <pack_arg_t *>arg
    if pack.length > 0:         # no bytes may be at NULL
        memcpy(dest, pack.data, pack.length)
    return pack.length


cdef void unpack_copy(void *arg, const void *data,
                      size_t length) noexcept nogil:
    """arg is the storage of the result, which has the length asked for."""
    if length > 0:              # no bytes may be at NULL
        memcpy(arg, data, length)


cdef inline long now_us() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec * 1000000 + now.tv_nsec // 1000


cdef void on_completion(c.tofu_completion_t *self) noexcept with gil:
    """The core completed an operation."""
    cdef Request request = <Request>(<completion_t *>self).owner
    request.finish(self.status)


cdef int8_t on_pending(c.tofu_pending_req_t *self) noexcept with gil:
    """There may be resources again for an operation that waits for them."""
    cdef Request request = <Request>(<waiter_t *>self).owner
    cdef size_t sent = request.sent
    cdef int status = request.attempt()
    if status == c.TOFU_ERR_NO_RESOURCE:
        return c.TOFU_INPROGRESS if request.sent != sent else status
    request.settle(status)
    return c.TOFU_OK


cdef void on_purge(c.tofu_pending_req_t *self, void *arg) noexcept with gil:
    """The endpoint is closed or failed, arg points to its status."""
    cdef Request request = <Request>(<waiter_t *>self).owner
    request.finish((<int *>arg)[0])


cdef struct unsent_t:
    Py_ssize_t unheld           # of which nobody will ask for the request


cdef void on_close(c.tofu_pending_req_t *self, void *arg) noexcept with gil:
    """The endpoint is closed before the operation left; arg points to an unsent_t."""
    cdef Request request = <Request>(<waiter_t *>self).owner
    # itself (hold) and this variable refer to a request that nobody has
    if request.kind != KIND_FLUSH:
        request.is_unsent = True
        if request.callbacks is None and Py_REFCNT(request) <= 2:
            (<unsent_t *>arg).unheld += 1
    request.finish(c.TOFU_ERR_CANCELED)


cdef class _Result:
    """What an await gets that need not wait."""

    cdef object value

    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration(self.value)


@cython.freelist(64)
cdef class Request:
    """One operation: done, failed, or in flight.

    Returned by the methods of Endpoint that send, and by ``flush``.  Done means: of
    ``put`` and the atomics, the peer's memory is written; of ``get``, the data is
    here; of ``am``, the message is on its way and the buffer free; of ``flush``,
    all before it is done.

    ``await request`` waits in a running asyncio event loop, ``wait()`` outside of
    one.  Both return what ``result()`` returns and drive the iface.  While it is in
    flight, an operation keeps the endpoint, the remote key, the buffer (which can
    be neither resized nor freed) and itself alive, whatever the program does; also
    when an await of it is cancelled.

    A small put asks for no confirmation when it is posted, which makes it cheap.
    The first look at such a request (``done``, ``wait``, ``await``,
    ``add_done_callback``) asks for it, for all earlier ones at once.

    Source: cython/core/tofu.h, tofu_completion_t.
    """

    def __init__(self):
        raise TypeError("requests are made by operations")

    def __reduce__(self):
        raise TypeError("a Request cannot be copied or pickled")

    def __repr__(self):
        if not self.is_done:
            state = "in flight"
        elif self.final_status == c.TOFU_OK:
            state = "done"
        else:
            state = f"failed with {_STATUS_NAMES.get(self.final_status, self.final_status)}"
        return f"<Request of {self.call}, {state}>"

    @property
    def done(self):
        """bool : the operation is over, well or badly.  Does not progress.

        Source: cython/core/tofu.h, tofu_completion_t.
        """
        if self.unconfirmed:
            self.confirm()
        return self.is_done

    @property
    def status(self):
        """int : 0 done, 1 in flight, negative: failed.

        Source: cython/core/tofu.h, tofu_completion_t.
        """
        if self.unconfirmed:
            self.confirm()
        return self.final_status if self.is_done else c.TOFU_INPROGRESS

    def result(self):
        """What the operation brought: bytes of ``get_bcopy``, the old value of
        a fetching atomic (unsigned), otherwise None.

        Raises ``RuntimeError`` while it is in flight, ``TofuError`` when it
        failed.

        Source: cython/core/tofu.h, tofu_completion_t.
        """
        if self.unconfirmed:
            self.confirm()
        if not self.is_done:
            raise RuntimeError(f"{self!r}")
        return self.outcome()

    cdef object outcome(self):
        """What it brought, once it is over; raises why it failed."""
        if self.final_status != c.TOFU_OK:
            fail(self.call, self.final_status, (
                "the endpoint was closed before it left, flush() first: "
                if self.is_unsent else "the operation failed: ") + self.words())
        if self.word_size == 4:
            return (<uint32_t *>&self.word)[0]
        if self.word_size == 8:
            return self.word
        if self.kind == KIND_PLAIN:
            return self.data
        return None

    def wait(self, timeout=None):
        """Progress the iface until the operation is over.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever.

        Returns what ``result`` returns.

        A target that is an iface of this thread, too, makes progress with it.

        Raises ``TimeoutError`` (the operation goes on), ``TofuError`` when it
        failed, and whatever a callback raised.  Interruptible.  Other threads run
        meanwhile; only for the thread that owns the iface.

        Source: cython/core/tofu.h, tofu_iface_progress.
        """
        cdef long budget
        cdef double deadline = 0, left
        cdef bint limited = timeout is not None
        cdef Iface target = None
        if limited:
            left = seconds(timeout)
            deadline = time.monotonic() + left
        while True:
            if self.unconfirmed:        # now, or since resources came for it
                self.confirm()
            if self.is_done:
                return self.outcome()
            budget = WAIT_US
            if limited:
                left = deadline - time.monotonic()
                if left < WAIT_US * 1e-6:
                    budget = max(<long>(left * 1e6), 0)
            self.spin(budget if target is None else OWN_TARGET_US)
            if not self.is_done:
                target = self._target()
                if target is not None:
                    target.progress()
            PyErr_CheckSignals()
            if (limited and not (self.is_done or self.unconfirmed)
                    and time.monotonic() >= deadline):
                raise TimeoutError(f"{self!r} after {timeout} s: {self.words()}")

    def _target(self):
        """The iface that the operation goes to, if it is another one of this
        thread; None."""
        cdef Iface target
        if self.ep is None:
            return None
        target = own_ifaces.get(self.ep.address)
        if (target is None or target is self.iface or target.iface == NULL
                or target.generation != fork_generation or target.outside
                or target.owner != PyThread_get_thread_ident()):
            return None
        return target

    def __await__(self):
        if self.unconfirmed:
            self.confirm()
        if not self.is_done:
            if self.iface is None:
                raise TypeError("requests are made by operations")
            self.iface.check()
            try:
                self.spin(AWAIT_US)
            except BaseException as error:  # of a handler: not this request's
                from uct_tofu import _loop
                _loop.tell(self.iface, error)
            if not self.is_done:        # also when it only now left
                from uct_tofu import _loop
                return _loop.wait_for(self).__await__()
        value = self.outcome()
        if value is None:
            return iter(())
        result = _Result.__new__(_Result)
        (<_Result>result).value = value
        return result

    def add_done_callback(self, callback):
        """Call ``callback(request)`` when the operation is over, from
        progress; at once when it is over already.

        What it raises is raised from ``Iface.progress``.

        Source: cython/core/tofu.h, tofu_completion_t.
        """
        if not callable(callback):
            raise TypeError("callback must be callable")
        if self.unconfirmed:
            self.confirm()
        if self.is_done:
            callback(self)
        else:
            if self.callbacks is None:
                self.callbacks = []
            self.callbacks.append(callback)

    def words(self):
        """str : what the operation is, for messages.

        Source: cython/uct_tofu/_request.pxi.
        """
        where = repr(self.ep if self.ep is not None else self.iface)
        kind, length = self.kind, self.length
        if self.is_confirmed_by_flush:
            kind, length = self.was_kind, self.was_length
        if KIND_PUT_SHORT <= kind <= KIND_GET_ZCOPY:
            return f"{length} bytes at {self.remote:#x} of the peer, {where}"
        if KIND_ATOMIC_POST <= kind <= KIND_ATOMIC_CSWAP:
            return f"the word at {self.remote:#x} of the peer, {where}"
        if kind == KIND_AM:
            return (f"AM id {self.am_id}, {len(self.data)} bytes of header and "
                    f"{length} of payload, {where}")
        return where

    def __dealloc__(self):
        # refused before it was posted; one in flight would not be here
        if self.has_view:
            PyBuffer_Release(&self.view)

    # ------------------------------------------------- in flight, and not any more

    cdef void hold(self) noexcept:
        """It goes to the core: nothing that it uses may go."""
        self.held = True
        self.iface.num_operations += 1
        if self.length >= LARGE_BYTES:
            self.iface.num_large += 1
        if self.rkey is not None:
            self.rkey.num_operations += 1
        if self.memory is not None:
            self.memory.num_operations += 1
        if self.pieces is not None:
            for item in self.pieces.memories:
                (<Memory>item).num_operations += 1
        Py_INCREF(self)

    cdef void release(self) noexcept:
        """Let go of what the operation held; the caller holds the request."""
        if not self.held:
            return
        self.held = False
        self.iface.num_operations -= 1
        if self.length >= LARGE_BYTES:
            self.iface.num_large -= 1
        if self.rkey is not None:
            self.rkey.num_operations -= 1
            self.rkey = None
        if self.memory is not None:
            self.memory.num_operations -= 1
            self.memory = None
        if self.pieces is not None:
            for item in self.pieces.memories:
                (<Memory>item).num_operations -= 1
            self.pieces = None
        self.registration = None
        if self.has_view:
            self.has_view = False
            PyBuffer_Release(&self.view)
        Py_DECREF(self)

    cdef int attempt(self) noexcept:
        """Post it; returns the core's status."""
        cdef Endpoint endpoint = self.ep
        cdef c.tofu_ep_t *ep
        cdef c.tofu_rkey_t *key = NULL
        cdef pack_arg_t pack
        cdef intptr_t status
        cdef uint8_t kind = self.kind
        if kind == KIND_IFACE_FLUSH:
            return c.tofu_iface_flush(self.iface.iface, 0, &self.completion.super)
        ep = endpoint.ep
        if self.rkey is not None:
            key = self.rkey.rkey
        if kind == KIND_PUT_SHORT:
            return c.tofu_ep_put_short(ep, self.start, self.length, self.remote,
                                       key)
        if kind == KIND_PUT_BCOPY:
            pack.data = self.start
            pack.length = self.length
            status = c.tofu_ep_put_bcopy(ep, pack_copy, &pack, self.remote, key)
            return status if status < 0 else c.TOFU_OK
        if kind == KIND_GET_BCOPY:
            return c.tofu_ep_get_bcopy(ep, unpack_copy, self.start, self.length,
                                       self.remote, key, &self.completion.super)
        if kind == KIND_PUT_ZCOPY or kind == KIND_GET_ZCOPY:
            return self.post_zcopy(kind, key)
        if kind == KIND_ATOMIC_POST:
            return c.tofu_ep_atomic_post(ep, <c.tofu_atomic_op_t>self.atomic_op,
                                         self.flags, self.operand, self.remote,
                                         key)
        if kind == KIND_ATOMIC_FETCH:
            return c.tofu_ep_atomic_fetch(ep, <c.tofu_atomic_op_t>self.atomic_op,
                                          self.flags, self.operand, &self.word,
                                          self.remote, key,
                                          &self.completion.super)
        if kind == KIND_ATOMIC_CSWAP:
            return c.tofu_ep_atomic_cswap(ep, self.flags, self.operand,
                                          self.swap, &self.word, self.remote, key,
                                          &self.completion.super)
        if kind == KIND_AM:
            return send_am(self)
        self.cover = endpoint.seq
        return c.tofu_ep_flush(ep, self.flags, &self.completion.super)

    cdef int post_zcopy(self, int kind, c.tofu_rkey_t *key) noexcept:
        """Post a put or get of registered memory, a large one without the GIL."""
        cdef Iface iface = self.iface
        cdef c.tofu_ep_t *ep = self.ep.ep
        cdef c.tofu_iov_t *iov = &self.iov
        cdef size_t count = 1
        cdef int status
        if self.pieces is not None:
            iov = self.pieces.iov
            count = self.pieces.count
        if self.length < LARGE_BYTES:
            return post_iov(kind, ep, iov, count, self.remote, key,
                            &self.completion.super)
        iface.outside += 1
        with nogil:
            status = post_iov(kind, ep, iov, count, self.remote, key,
                              &self.completion.super)
        iface.outside -= 1
        return status

    cdef int submit(self) except -1:
        """Post it, or queue it for when there are resources.

        Raises what is wrong with it at once."""
        cdef int status
        self.hold()
        while True:
            status = self.attempt()
            if status != c.TOFU_ERR_NO_RESOURCE:
                break
            if self.kind == KIND_IFACE_FLUSH:
                self.iface.flushes.append(self)
                return 0
            self.waiter.super.func = on_pending
            self.waiter.owner = <void *>self
            # BUSY: by now there are resources, or there is an error to tell
            if c.tofu_ep_pending_add(self.ep.ep,
                                     &self.waiter.super) == c.TOFU_OK:
                return 0
        return self.started(status)

    cdef int started(self, int status) except -1:
        """After posting: settle what the call returned, raise an error."""
        self.settle(status)
        if status < 0:
            words = self.words()
            if self.ep is not None and ep_status(self.ep) != c.TOFU_OK:
                words += " failed before; close it"
            fail(self.call, status, words)
        return 0

    cdef void settle(self, int status) noexcept:
        """After posting: the operation is in flight, or it is over."""
        if status == c.TOFU_INPROGRESS:
            return
        if status == c.TOFU_OK and (self.kind == KIND_PUT_SHORT
                                    or self.kind == KIND_PUT_BCOPY
                                    or self.kind == KIND_ATOMIC_POST):
            self.ep.seq += 1
            self.seq = self.ep.seq
            self.unconfirmed = True
            self.release()
            if self.callbacks is not None:      # somebody looked while it waited
                try:
                    self.confirm()
                except BaseException as exception:
                    self.iface.keep_exception(exception)
            return
        if (status == c.TOFU_OK and self.kind == KIND_AM
                and c.tofu_ep_has_unsent(self.ep.ep)):
            # taken before the peer lent slots: it leaves from progress only
            self.release()
            self.become_flush()
            return
        self.finish(status)

    cdef void become_flush(self) noexcept:
        """From now on it is a flush, of what was posted before."""
        cdef Endpoint ep = self.ep
        self.unconfirmed = False
        self.is_confirmed_by_flush = True
        self.was_kind = self.kind
        self.was_length = self.length
        self.kind = KIND_FLUSH
        self.length = 0
        self.flags = 0
        self.cover = ep.seq
        ep.flusher = self
        try:
            self.submit()
        except TofuError:
            pass                # it is this request's own status
        except BaseException as exception:
            self.iface.keep_exception(exception)

    cdef int confirm(self) except -1:
        """See to it that a put without a notice is found to be over."""
        cdef Endpoint ep = self.ep
        cdef int status = c.TOFU_OK
        if self.is_done or not self.unconfirmed:
            return 0
        if ep.ep == NULL and ep.confirmed < self.seq:
            # closed before a flush: nobody can tell
            self.finish(c.TOFU_ERR_CANCELED)
            return 0
        if ep.confirmed >= self.seq:
            if ep.failures is not None:
                for first, last, failure in ep.failures:
                    if first <= self.seq <= last:
                        status = failure
            self.finish(status)
            return 0
        ep.check()
        if ep.flusher is not None and ep.flusher.cover >= self.seq:
            self.unconfirmed = False
            if ep.flusher.joined is None:
                ep.flusher.joined = []
            ep.flusher.joined.append(self)
            return 0
        self.become_flush()
        return 0

    cdef void finish(self, int status) noexcept:
        """It is over: let go of what it held, then tell who asked."""
        cdef Iface iface = self.iface
        cdef Endpoint ep = self.ep
        cdef Request other
        cdef int put_status
        if self.is_done:
            return
        callbacks = self.callbacks
        joined = self.joined
        put_status = status
        if (self.kind == KIND_FLUSH and status == c.TOFU_ERR_IO_ERROR
                and ep is not None and ep.ep != NULL):
            # A put without a notice, or a message, fails with its endpoint.  What the flush
            # tells otherwise is an earlier operation's, whose own request has told it.
            put_status = ep_status(ep)
            if self.is_confirmed_by_flush:
                status = put_status
        self.final_status = status
        self.is_done = True
        self.unconfirmed = False
        self.callbacks = None
        self.joined = None
        if ep is not None and self.kind == KIND_FLUSH:
            if ep.flusher is self:
                ep.flusher = None
            if self.cover > ep.confirmed:
                if put_status != c.TOFU_OK:
                    if ep.failures is None:
                        ep.failures = []
                    ep.failures.append((ep.confirmed + 1, self.cover, put_status))
                ep.confirmed = self.cover
        self.release()
        if joined is not None:
            for item in joined:
                other = <Request>item
                other.finish(put_status)
        if callbacks is not None:
            for callback in callbacks:
                try:
                    callback(self)
                except BaseException as exception:
                    iface.keep_exception(exception)

    cdef int spin(self, long microseconds) except -1:
        """Poll until it is over, for so long at most, without the GIL."""
        cdef Iface iface = self.iface
        cdef c.tofu_iface_t *c_iface
        cdef long start, elapsed
        cdef int i
        if iface is None:
            raise TypeError("requests are made by operations")
        iface.check()
        if iface.has_deferred:
            iface.run_deferred()
        if iface.flushes:               # they need the loop in progress()
            iface.progress()
            return 0
        c_iface = iface.iface
        iface.progress_depth += 1
        iface.outside += 1
        with nogil:
            start = now_us()
            while not (self.is_done or self.unconfirmed or iface.has_exception
                       or iface.has_deferred):
                for i in range(SPIN_POLLS):
                    c.tofu_iface_progress(c_iface)
                    if self.is_done or iface.has_exception:
                        break
                elapsed = now_us() - start
                if elapsed >= microseconds:
                    break
                if elapsed >= SPIN_YIELD_US and not self.is_done:
                    sched_yield()
        iface.outside -= 1
        iface.progress_depth -= 1
        if iface.has_exception:
            iface.raise_kept()
        return 0


cdef inline int ep_status(Endpoint ep) noexcept:
    """What an endpoint failed by; OK also when it is closed."""
    return c.tofu_ep_status(ep.ep) if ep.ep != NULL else c.TOFU_OK


cdef int post_iov(int kind, c.tofu_ep_t *ep, const c.tofu_iov_t *iov,
                  size_t count, uint64_t remote, const c.tofu_rkey_t *key,
                  c.tofu_completion_t *completion) noexcept nogil:
    if kind == KIND_PUT_ZCOPY:
        return c.tofu_ep_put_zcopy(ep, iov, count, remote, key, completion)
    return c.tofu_ep_get_zcopy(ep, iov, count, remote, key, completion)


cdef Request make_request(str call, Iface iface, Endpoint ep, RemoteKey rkey,
                          int kind):
    """A request; submit() posts it.

    A verb of UCT calls hold(), passes it to the core itself, and then calls
    started() with what the core returned."""
    cdef Request self = Request.__new__(Request)
    self.call = call
    self.iface = iface
    self.ep = ep
    self.rkey = rkey
    self.kind = kind
    self.completion.super.func = on_completion
    self.completion.super.count = 1
    self.completion.super.status = c.TOFU_OK
    self.completion.owner = <void *>self
    return self
