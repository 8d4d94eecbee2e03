# SPDX-License-Identifier: BSD-3-Clause
# Iface


cdef void on_ep_error(void *arg, c.tofu_ep_t *ep,
                      c.tofu_status_t status) noexcept with gil:
    """An endpoint failed."""
    cdef Iface iface = <Iface>arg
    cdef void *user = c.tofu_ep_user(ep)
    cdef int code = status
    # the core leaves it to us to end what waits for resources
    c.tofu_ep_pending_purge(ep, on_purge, &code)
    if iface.on_error is None or user == NULL:
        return
    try:
        iface.on_error(<Endpoint>user,
                       status_error("tofu_ep", status, repr(<Endpoint>user)))
    except BaseException as exception:
        iface.keep_exception(exception)


# Address -> iface of this process: a target that has to work in the thread that waits.
own_ifaces = weakref.WeakValueDictionary()


@cython.no_gc_clear
cdef class Iface:
    """Iface(md, *, am_seg_size=None, rx_slots=None, rx_short_slots=None, \
tx_bounce=None, tx_notified=None, am_polled=None, am_in_place=None, \
rndv_split=None, strong_order=None, \
am_backlog=1073741824, on_error=None)\n--\n\nOne communication interface: one VCQ, and everything that uses it.

    Parameters
    ----------
    md : MemoryDomain
    am_seg_size : int, optional
        Largest active message, bytes.
    rx_slots, rx_short_slots : int, optional
        Receive slots for large and small active messages.
    tx_bounce : int, optional
        Bounce buffers for bcopy operations.
    tx_notified : int, optional
        Operations with a local notice in flight.
    am_polled : int, optional
        Senders, 0 to 8, that may send small active messages without a notice, so
        that progress looks at memory for each.
    am_in_place : bool, optional
        Pack messages to a process of this host into the receive slot itself, which is
        mapped for it: bcopy and zcopy of 256 bytes and more, and short ones that go
        without a notice.  Both sides must want it.
    rndv_split : int, optional
        Bytes of one uTofu operation; larger ones are split.
    strong_order : bool, optional
        STRONG_ORDER on zcopy operations without a fence too.
    am_backlog : int
        Bytes that messages of ``Endpoint.am`` may occupy here which are not
        complete, together, and which nobody takes, of each stream of ``messages``.
        What goes beyond is dropped (of the incomplete ones the longest idle, as
        its sender may have died; a message that is larger than all this; the
        newest of a stream), and ``progress`` raises ``TofuOperationError``.
    on_error : callable, optional
        ``on_error(endpoint, exception)``, once per failed endpoint, from
        progress.

    What is not given keeps the core's default.  Raises ``TofuError``.  Enters the
    kernel.  An iface and its endpoints belong to the thread that makes it, until
    another calls ``claim``.

    Received messages go to handlers (``set_message_handler``) or are iterated over
    (``messages``).  Something must progress the iface for that: ``progress()``, a
    ``wait()``, or an asyncio event loop in which something is awaited.

    Source: cython/core/tofu.h, tofu_iface_open.
    """

    def __init__(self, MemoryDomain md not None, *, am_seg_size=None,
                 rx_slots=None, rx_short_slots=None, tx_bounce=None,
                 tx_notified=None, am_polled=None, am_in_place=None,
                 rndv_split=None, strong_order=None,
                 am_backlog=1 << 30, on_error=None):
        cdef:
            c.tofu_iface_config_t config
            c.tofu_iface_t *iface = NULL
            c.tofu_md_t *c_md
            size_t backlog
            int status
        if self.iface != NULL:
            refuse(TofuCallerError, "Iface", "it is open already")
        if on_error is not None and not callable(on_error):
            raise TypeError("on_error must be callable")
        backlog = whole(am_backlog, "am_backlog")
        md.check()
        c.tofu_iface_config_default(&config)
        if am_seg_size is not None:
            config.am_seg_size = whole(am_seg_size, "am_seg_size")
        if rx_slots is not None:
            config.rx_slots = whole(rx_slots, "rx_slots", 0xffffffff)
        if rx_short_slots is not None:
            config.rx_short_slots = whole(rx_short_slots, "rx_short_slots", 0xffffffff)
        if tx_bounce is not None:
            config.tx_bounce = whole(tx_bounce, "tx_bounce", 0xffffffff)
        if tx_notified is not None:
            config.tx_notified = whole(tx_notified, "tx_notified", 0xffffffff)
        if am_polled is not None:
            config.am_polled = whole(am_polled, "am_polled", 0xffffffff)
        if am_in_place is not None:
            config.am_in_place = bool(am_in_place)
        if rndv_split is not None:
            config.rndv_split = whole(rndv_split, "rndv_split")
        if strong_order is not None:
            config.strong_order = bool(strong_order)
        config.rx_desc = <void *>self       # handlers may keep messages
        config.err_cb = on_ep_error
        config.err_arg = <void *>self
        c_md = md.md
        md.num_ifaces += 1              # keeps the md open meanwhile
        with nogil:
            status = c.tofu_iface_open(c_md, &config, &iface)
        if status != c.TOFU_OK:
            md.num_ifaces -= 1
            fail("tofu_iface_open", status, repr(md))
        c.tofu_iface_query(iface, &self.limits)
        for i in range(<int>c.TOFU_AM_ID_MAX):
            self.am_args[i].iface = <void *>self
            self.am_args[i].id = i
        self.am_handlers = [None] * c.TOFU_AM_ID_MAX
        self.on_error = on_error
        self.doomed = []
        self.flushes = []
        self.am_backlog = backlog
        self.partial = {}
        self.streams = {}
        self.owner = PyThread_get_thread_ident()
        self.generation = fork_generation
        self.network = md.backend.backend.network_id
        self.md = md
        self.iface = iface
        own_ifaces[self.address] = self

    def __reduce__(self):
        raise TypeError("an Iface cannot be copied or pickled; "
                        "send its address")

    def __repr__(self):
        return (f"<Iface at {<uintptr_t><void *>self:#x}"
                f"{'' if self.iface != NULL else ', closed'}>")

    cdef int check(self) except -1:
        """Open, and of this thread and process."""
        if (self.iface == NULL or self.generation != fork_generation
                or PyThread_get_thread_ident() != self.owner):
            return self.refuse()
        return 0

    cdef int check_open(self) except -1:
        """For what any thread may ask: it never changes."""
        if self.iface == NULL or self.generation != fork_generation:
            return self.refuse()
        return 0

    cdef int refuse(self) except -1:
        if self.iface == NULL:
            refuse(TofuClosedError, "Iface", "the iface is closed")
        check_generation(self.generation, "the iface")
        return refuse(TofuThreadError, "Iface",
                      f"{self!r} belongs to thread {self.owner:#x}, this is "
                      f"{PyThread_get_thread_ident():#x}; see Iface.claim")

    def claim(self):
        """Make the calling thread the one that uses the iface and its endpoints.

        The thread that used it before must not be inside a call of it, and is
        refused from now on.

        Raises ``TofuThreadError`` when it can be seen to be inside one.

        Source: cython/core/tofu.h, thread rules.
        """
        self.check_open()
        if (self.outside or self.progress_depth) and (
                PyThread_get_thread_ident() != self.owner):
            refuse(TofuThreadError, "Iface.claim",
                   f"{self!r} is being used by thread {self.owner:#x}")
        self.owner = PyThread_get_thread_ident()

    cdef int run_deferred(self) except -1:
        """Free what went while the core could not be called."""
        self.has_deferred = False
        doomed = self.doomed
        self.doomed = []
        for is_ep, address in doomed:
            if is_ep:
                c.tofu_ep_destroy(<c.tofu_ep_t *><uintptr_t>address)
                self.num_eps -= 1
            else:
                c.tofu_iface_release_desc(self.iface, <void *><uintptr_t>address)
        return 0

    cdef int forget_partial(self, key) except -1:
        """Drop what came of a message."""
        cdef _Partial partial = self.partial.pop(key)
        self.partial_bytes -= partial.occupied()
        return 0

    cdef void keep_exception(self, exception) noexcept:
        """Keep what a callback raised for the next progress to raise."""
        if self.exception is None:
            self.exception = exception
            self.has_exception = True
        else:
            # Only one can be raised; the others must not vanish.
            PyErr_SetObject(type(exception), exception)
            PyErr_WriteUnraisable(self)

    cdef int raise_kept(self) except -1:
        exception = self.exception
        if exception is not None:
            self.exception = None
            self.has_exception = False
            raise exception
        return 0

    def query(self):
        """Dict of limits: sizes in bytes, times in seconds, bandwidth in bytes
        per second.

        The keys are the fields of ``tofu_iface_attr_t``.

        Source: cython/core/tofu.h, tofu_iface_query.
        """
        cdef c.tofu_iface_attr_t attr = self.limits
        self.check_open()
        return attr

    def stats(self):
        """Dict of counters since the iface was opened.

        The keys are the fields of ``tofu_iface_stats_t``.

        Source: cython/core/tofu.h, tofu_iface_get_stats.
        """
        cdef c.tofu_iface_stats_t stats
        self.check()
        c.tofu_iface_get_stats(self.iface, &stats)
        return stats

    @property
    def device_address(self):
        """bytes : which network the iface is on.

        Source: cython/core/tofu.h, tofu_iface_get_device_address.
        """
        self.check_open()
        data = PyBytes_FromStringAndSize(NULL, self.limits.device_addr_len)
        c.tofu_iface_get_device_address(self.iface, PyBytes_AS_STRING(data))
        return data

    @property
    def address(self):
        """bytes : the iface in its network, for ``Endpoint``.

        Source: cython/core/tofu.h, tofu_iface_get_address.
        """
        self.check_open()
        data = PyBytes_FromStringAndSize(NULL, self.limits.iface_addr_len)
        c.tofu_iface_get_address(self.iface, PyBytes_AS_STRING(data))
        return data

    def unreachable_reason(self, device_address, address=None):
        """str or None : why no endpoint can lead there; None when one can.

        Parameters
        ----------
        device_address : bytes-like
            The peer's ``device_address``.
        address : bytes-like, optional
            The peer's ``address``.

        No communication: the peer may be dead all the same.

        Source: cython/core/tofu.h, tofu_iface_is_reachable.
        """
        cdef:
            char reason[512]
            const char *c_address = NULL
            size_t length = 0
        self.check()
        device_data = as_bytes(device_address, "device_address")
        # To the core a length of 0 means "not told", here it means no bytes.
        if not device_data:
            return "the device address is empty"
        if address is not None:
            data = as_bytes(address, "address")
            if not data:
                return "the iface address is empty"
            c_address = PyBytes_AS_STRING(data)
            length = len(data)
        reason[0] = 0
        if c.tofu_iface_is_reachable(
                self.iface, PyBytes_AS_STRING(device_data), len(device_data),
                c_address, length, reason, sizeof(reason)):
            return None
        return reason.decode("utf-8", "replace") or "unreachable"

    cdef void set_callback(self, str call, int am_id, object handler,
                           int mode) except *:
        cdef c.tofu_am_cb_t callback = NULL
        cdef int status
        self.check()
        if not 0 <= am_id < <int>c.TOFU_AM_ID_MAX:
            refuse(TofuRangeError, call, f"am_id must be 0 to "
                   f"{c.TOFU_AM_ID_MAX - 1}, not {am_id}")
        if handler is not None and not callable(handler):
            raise TypeError(f"{call}: handler must be callable or None, not "
                            f"{type(handler).__name__}")
        if handler is not None:
            callback = on_am
        status = c.tofu_iface_set_am_handler(self.iface, am_id, callback,
                                             &self.am_args[am_id])
        if status != c.TOFU_OK:
            fail("tofu_iface_set_am_handler", status, f"AM id {am_id}")
        self.am_args[am_id].mode = mode
        self.am_handlers[am_id] = handler
        if handler is None:             # the core drops the parts that follow
            for key in [key for key in self.partial if key[0] == am_id]:
                self.forget_partial(key)

    def _id_without_stream(self, call, am_id):
        """The id as a number.  A stream whose handler goes would wait for ever."""
        cdef int number = signed_int(am_id, "am_id")
        if number in self.streams:
            refuse(TofuInUseError, call, f"AM id {number} of {self!r} has a MessageStream")
        return number

    def set_am_handler(self, am_id, handler, *, bint view=False):
        """Set what receives the active messages that UCT's verbs send.

        Parameters
        ----------
        am_id : int
            0 to 31.
        handler : callable or None
            ``handler(data)``, called from progress; data is bytes.  A message of
            ``am_short`` starts with its 8-byte header in the byte order of the
            machine.  None: such messages are dropped and counted.
        view : bool
            data is a memoryview, see ``set_message_handler``.

        What the handler raises is raised from ``progress``.  Raises ``TofuInUseError``
        when the id has a ``MessageStream`` (``messages``).

        Source: cython/core/tofu.h, tofu_iface_set_am_handler.
        """
        call = "Iface.set_am_handler"
        self.set_callback(call, self._id_without_stream(call, am_id), handler,
                          MODE_DATA_VIEW if view else MODE_DATA)

    def set_message_handler(self, am_id, handler, *, bint view=False):
        """Set what receives the messages that ``Endpoint.am`` sends.

        Parameters
        ----------
        am_id : int
            0 to 31.
        handler : callable or None
            ``handler(header, payload)``, called from progress, both bytes.  None:
            such messages are dropped and counted.
        view : bool
            The payload is a read-only memoryview, for larger messages of the
            place where it came, without a copy.  It is released when the handler
            returns: use afterwards raises ``ValueError``.  To keep the message,
            keep a slice (``payload[:]``) or an array of it; it ends with that
            (``release()``, or when nobody refers to it any more).  Kept messages
            occupy receive buffers: when few are left, messages come as copies.

        What the handler raises is raised from ``progress``; other messages are not
        affected.  Raises ``TofuInUseError`` when the id has a ``MessageStream``.

        Source: cython/core/tofu.h, tofu_iface_set_am_handler, tofu_am_cb_t.
        """
        call = "Iface.set_message_handler"
        self.set_callback(call, self._id_without_stream(call, am_id), handler,
                          MODE_MESSAGE_VIEW if view else MODE_MESSAGE)

    def messages(self, am_id):
        """The messages that ``Endpoint.am`` sends with one id, to iterate over.

        ``async for message in iface.messages(3)`` in an asyncio event loop;
        ``iface.messages(3).get(timeout)`` outside of one.  A message is a named
        tuple (header: bytes, payload: bytes).

        Returns
        -------
        MessageStream
            The same for each call with that id until it is closed, so that no
            message between two loops is lost.  It ends with the iface.

        Raises ``TofuInUseError`` when a handler is set for the id.

        Source: cython/core/tofu.h, tofu_iface_set_am_handler.
        """
        cdef int number = signed_int(am_id, "am_id")
        self.check()
        stream = self.streams.get(number)
        if stream is None:
            if 0 <= number < 32 and self.am_handlers[number] is not None:
                refuse(TofuInUseError, "Iface.messages",
                       f"AM id {number} of {self!r} has a handler")
            from uct_tofu import _loop
            stream = _loop.MessageStream(self, number)
            self.streams[number] = stream
        return stream

    def _forget_stream(self, int am_id):
        """A stream is closed."""
        self.set_callback("MessageStream.close", am_id, None, MODE_MESSAGE)
        del self.streams[am_id]

    @property
    def event_fd(self):
        """int : a file descriptor that becomes readable when there may be
        something to do, after ``arm``.

        It is the iface's and is closed with it.  The first use enters the kernel;
        raises ``TofuError`` when the system has no descriptor left.

        Source: cython/core/tofu.h, tofu_iface_event_fd.
        """
        cdef int fd = -1
        cdef int status
        self.check()
        status = c.tofu_iface_event_fd(self.iface, &fd)
        if status != c.TOFU_OK:
            fail("tofu_iface_event_fd", status, repr(self))
        return fd

    def arm(self):
        """Ask for a sign on ``event_fd``; to be called before each sleep.

        Returns
        -------
        bool
            True: whatever comes or completes from now on makes ``event_fd``
            readable.  False: there is something to do; call ``progress`` first.

        Signs without a reason are normal.  Enters the kernel.  Raises
        ``TofuError``.

        Source: cython/core/tofu.h, tofu_iface_event_arm.
        """
        cdef int fd = -1
        cdef int status
        self.check()
        if self.has_deferred or self.has_exception or self.flushes:
            return False
        status = c.tofu_iface_event_fd(self.iface, &fd)
        if status == c.TOFU_OK:
            status = c.tofu_iface_event_arm(self.iface, ~0u)
        if status == c.TOFU_ERR_BUSY:
            return False
        if status != c.TOFU_OK:
            fail("tofu_iface_event_arm", status, repr(self))
        return True

    def _driver(self, loop):
        """The object that drives the iface in an event loop."""
        driver = self.driver
        if driver is None or driver.loop is not loop:
            from uct_tofu import _loop
            if driver is not None:
                driver.stop()
            driver = self.driver = _loop.Driver(self, loop)
        return driver

    def progress(self):
        """Drive completions, arrivals and credits; run callbacks.

        Returns
        -------
        int
            Events handled; 0 when there was nothing to do.

        Raises the first exception of a callback, after all have run.  Does not
        wait.  Callbacks may post operations and call progress.

        Source: cython/core/tofu.h, tofu_iface_progress.
        """
        cdef c.tofu_iface_t *iface = self.iface
        cdef unsigned count
        self.check()
        if self.has_deferred:
            self.run_deferred()
        self.progress_depth += 1
        if self.num_large:
            self.outside += 1
            with nogil:
                count = c.tofu_iface_progress(iface)
            self.outside -= 1
        else:
            count = c.tofu_iface_progress(iface)
        if self.flushes:
            count += retry_flushes(self)
        self.progress_depth -= 1
        if self.has_exception:
            self.raise_kept()
        return count

    def flush(self):
        """Complete when all operations posted before have reached their
        targets.

        Returns
        -------
        Request

        Raises ``TofuOperationError`` when an operation failed since the last flush.

        Source: cython/core/tofu.h, tofu_iface_flush.
        """
        cdef Request request
        self.check()
        request = make_request("tofu_iface_flush", self, None, None,
                               KIND_IFACE_FLUSH)
        request.submit()
        return request

    def fence(self):
        """Later operations of each endpoint take effect after earlier ones.

        Source: cython/core/tofu.h, tofu_iface_fence.
        """
        self.check()
        cdef int status = c.tofu_iface_fence(self.iface)
        if status != c.TOFU_OK:
            fail("tofu_iface_fence", status, repr(self))

    def close(self):
        """Close the iface; harmless when repeated.  Enters the kernel.

        Operations in flight end with TOFU_ERR_CANCELED, streams of messages end.
        Raises ``TofuInUseError`` while endpoints are open or from inside a
        callback, ``TofuBufferError`` while handlers' views of messages are kept.

        Source: cython/core/tofu.h, tofu_iface_close.
        """
        cdef c.tofu_iface_t *iface = self.iface
        if iface == NULL:
            return
        self.check()
        if self.has_deferred:
            self.run_deferred()
        if self.num_eps:
            refuse(TofuInUseError, "Iface.close",
                   f"{self!r} still has {self.num_eps} Endpoint open; close them "
                   "first")
        if self.progress_depth:
            refuse(TofuInUseError, "Iface.close",
                   f"{self!r} cannot be closed from one of its callbacks")
        if self.num_views:
            refuse(TofuBufferError, "Iface.close",
                   f"{self.num_views} messages of {self!r} are kept by views; "
                   "release them first")
        if self.driver is not None:
            self.driver.stop()
            self.driver = None
        self.iface = NULL
        c.tofu_iface_close(iface)
        self.md.num_ifaces -= 1
        flushes = self.flushes
        self.flushes = []
        for request in flushes:
            (<Request>request).finish(c.TOFU_ERR_CANCELED)
        for stream in list(self.streams.values()):
            stream.end()
        self.streams.clear()
        self.partial.clear()
        self.partial_bytes = 0
        self.raise_kept()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        end_block(self.close, exc)

    def __del__(self):
        if self.iface != NULL and self.generation == fork_generation:
            warn_unclosed(self)

    def __dealloc__(self):
        # no_gc_clear keeps self.md valid here; operations in flight would have
        # kept this object alive.
        if self.iface != NULL and self.md.generation == fork_generation:
            if self.doomed:
                self.run_deferred()
            c.tofu_iface_close(self.iface)
            self.md.num_ifaces -= 1


cdef unsigned retry_flushes(Iface iface) noexcept:
    """Flushes of the iface that found no resources; how many did now."""
    cdef Request request
    cdef unsigned count = 0
    cdef int status
    flushes = iface.flushes
    iface.flushes = []
    for item in flushes:
        request = <Request>item
        status = request.attempt()
        if status == c.TOFU_ERR_NO_RESOURCE:
            iface.flushes.append(request)
        else:
            request.settle(status)
            count += 1
    return count
