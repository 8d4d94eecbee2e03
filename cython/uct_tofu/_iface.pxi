# SPDX-License-Identifier: BSD-3-Clause
# Iface


cdef int8_t on_am(void *arg, void *data, size_t length,
                  unsigned flags) noexcept with gil:
    """An active message came; the data is valid until we return."""
    cdef am_arg_t *am = <am_arg_t *>arg
    cdef Iface iface = <Iface>am.iface
    try:
        handler = iface.am_handlers[am.id]
        if handler is not None:
            handler(PyBytes_FromStringAndSize(<char *>data, length))
    except BaseException as exception:
        iface.keep_exception(exception)
    return c.TOFU_OK


cdef void on_ep_error(void *arg, c.tofu_ep_t *ep,
                      c.tofu_status_t status) noexcept with gil:
    """An endpoint failed."""
    cdef Iface iface = <Iface>arg
    cdef void *user = c.tofu_ep_user(ep)
    if iface.on_error is None or user == NULL:
        return
    try:
        iface.on_error(<Endpoint>user,
                       status_error("tofu_ep", status, repr(<Endpoint>user)))
    except BaseException as exception:
        iface.keep_exception(exception)


@cython.no_gc_clear
cdef class Iface:
    """One communication interface: one VCQ, and everything that uses it.

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
    rndv_split : int, optional
        Bytes of one uTofu operation; larger ones are split.
    strong_order : bool, optional
        STRONG_ORDER on zcopy operations without a fence too.
    on_error : callable, optional
        ``on_error(endpoint, exception)``, once per failed endpoint, from
        progress.

    What is not given keeps the core's default.  Raises ``TofuError``.  Enters the
    kernel.  An iface and its endpoints belong to one thread at a time.

    Source: cython/core/tofu.h, tofu_iface_open.
    """

    def __init__(self, MemoryDomain md not None, *, am_seg_size=None,
                 rx_slots=None, rx_short_slots=None, tx_bounce=None,
                 tx_notified=None, rndv_split=None, strong_order=None,
                 on_error=None):
        cdef:
            c.tofu_iface_config_t config
            c.tofu_iface_t *iface = NULL
            c.tofu_md_t *c_md
            int status
        if self.iface != NULL:
            raise RuntimeError("the iface is open already")
        if on_error is not None and not callable(on_error):
            raise TypeError("on_error must be callable")
        md.check()
        c.tofu_iface_config_default(&config)
        if am_seg_size is not None:
            config.am_seg_size = am_seg_size
        if rx_slots is not None:
            config.rx_slots = rx_slots
        if rx_short_slots is not None:
            config.rx_short_slots = rx_short_slots
        if tx_bounce is not None:
            config.tx_bounce = tx_bounce
        if tx_notified is not None:
            config.tx_notified = tx_notified
        if rndv_split is not None:
            config.rndv_split = rndv_split
        if strong_order is not None:
            config.strong_order = bool(strong_order)
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
        self.md = md
        self.iface = iface

    def __repr__(self):
        return (f"<Iface at {<uintptr_t><void *>self:#x}"
                f"{'' if self.iface != NULL else ', closed'}>")

    cdef int check(self) except -1:
        if self.iface == NULL:
            raise RuntimeError("the iface is closed")
        return self.md.check()

    cdef void keep_exception(self, exception) noexcept:
        """Keep what a callback raised for the next progress to raise."""
        if self.exception is None:
            self.exception = exception
        else:
            # Only one can be raised; the others must not vanish.
            sys.unraisablehook(sys.UnraisableHookArgs((
                type(exception), exception, exception.__traceback__,
                "Exception ignored in a callback of", self)))

    cdef int raise_kept(self) except -1:
        exception = self.exception
        if exception is not None:
            self.exception = None
            raise exception
        return 0

    def query(self):
        """Dict of limits: sizes in bytes, times in seconds, bandwidth in bytes
        per second.

        The keys are the fields of ``tofu_iface_attr_t``.

        Source: cython/core/tofu.h, tofu_iface_query.
        """
        cdef c.tofu_iface_attr_t attr = self.limits
        self.check()
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
        self.check()
        data = PyBytes_FromStringAndSize(NULL, self.limits.device_addr_len)
        c.tofu_iface_get_device_address(self.iface, PyBytes_AS_STRING(data))
        return data

    @property
    def address(self):
        """bytes : the iface in its network, for ``Endpoint``.

        Source: cython/core/tofu.h, tofu_iface_get_address.
        """
        self.check()
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
        device_data = as_bytes(device_address)
        # To the core a length of 0 means "not told", here it means no bytes.
        if not device_data:
            return "the device address is empty"
        if address is not None:
            data = as_bytes(address)
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

    def set_am_handler(self, int am_id, handler):
        """Set what receives the active messages of one id.

        Parameters
        ----------
        am_id : int
            0 to 31.
        handler : callable or None
            ``handler(data: bytes)``, called from progress.  A message of
            ``am_short`` starts with its 8-byte header in the byte order of the
            machine.  None: such messages are dropped and counted.

        What the handler raises is raised from ``progress``.

        Source: cython/core/tofu.h, tofu_iface_set_am_handler.
        """
        cdef c.tofu_am_cb_t callback = NULL
        cdef int status
        self.check()
        if not 0 <= am_id < <int>c.TOFU_AM_ID_MAX:
            raise ValueError(f"am_id must be 0 to {c.TOFU_AM_ID_MAX - 1}, "
                             f"not {am_id}")
        if handler is not None and not callable(handler):
            raise TypeError("handler must be callable or None")
        if handler is not None:
            callback = on_am
        status = c.tofu_iface_set_am_handler(self.iface, am_id, callback,
                                             &self.am_args[am_id])
        if status != c.TOFU_OK:
            fail("tofu_iface_set_am_handler", status, f"AM id {am_id}")
        self.am_handlers[am_id] = handler

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
        cdef unsigned count
        self.check()
        self.progress_depth += 1
        count = c.tofu_iface_progress(self.iface)
        self.progress_depth -= 1
        self.raise_kept()
        return count

    def flush(self):
        """Complete when all operations posted before have reached their
        targets.

        Returns
        -------
        Completion

        Raises ``TofuRetryError`` (progress and call again) and
        ``TofuOperationError`` when an operation failed since the last flush.

        Source: cython/core/tofu.h, tofu_iface_flush.
        """
        cdef Completion comp
        self.check()
        comp = make_completion("tofu_iface_flush", self, None, None)
        comp.started(c.tofu_iface_flush(self.iface, &comp.completion.super))
        return comp

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

        Operations in flight end with TOFU_ERR_CANCELED.  Raises
        ``RuntimeError`` while endpoints are open or from inside a callback.

        Source: cython/core/tofu.h, tofu_iface_close.
        """
        cdef c.tofu_iface_t *iface = self.iface
        if iface == NULL:
            return
        self.check()
        if self.num_eps:
            raise RuntimeError(f"{self!r} still has {self.num_eps} Endpoint "
                               "open; close them first")
        if self.progress_depth:
            raise RuntimeError(f"{self!r} cannot be closed from one of its "
                               "callbacks")
        self.iface = NULL
        c.tofu_iface_close(iface)
        self.md.num_ifaces -= 1
        self.raise_kept()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def __del__(self):
        if self.iface != NULL and self.md.generation == fork_generation:
            warn_unclosed(self)

    def __dealloc__(self):
        # no_gc_clear keeps self.md valid here; operations in flight would have
        # kept this object alive.
        if self.iface != NULL and self.md.generation == fork_generation:
            c.tofu_iface_close(self.iface)
            self.md.num_ifaces -= 1
