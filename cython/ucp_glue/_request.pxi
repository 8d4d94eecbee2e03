# SPDX-License-Identifier: BSD-3-Clause
# Buffers and Request


cdef bint holds_objects(const char *format) noexcept:
    """Whether a buffer's elements are Python objects; names are between colons."""
    cdef bint in_name = False
    if format == NULL:
        return False
    while format[0] != 0:
        if format[0] == b":":
            in_name = not in_name
        elif format[0] == b"O" and not in_name:
            return True
        format += 1
    return False


cdef int get_buffer(buffer, str name, Py_buffer *view, bint writable) except -1:
    """Fill in the view of a contiguous buffer of plain data, or say what is wrong."""
    try:
        PyObject_GetBuffer(buffer, view, PyBUF_ND | PyBUF_FORMAT |
                           (PyBUF_WRITABLE if writable else 0))
    except (BufferError, ValueError) as error:
        shape = getattr(buffer, "shape", None)
        what = f"{type(buffer).__name__}" + (f" of shape {shape}" if shape else "")
        need = "a writable, C-contiguous" if writable else "a C-contiguous"
        raise BufferError(f"{what}: {error}; needed is {need} buffer") from None
    except TypeError:
        raise TypeError(f"{name} must be a buffer, for example bytes or a NumPy "
                        f"array, not {type(buffer).__name__}") from None
    if holds_objects(view.format):
        PyBuffer_Release(view)
        raise TypeError(f"{type(buffer).__name__} holds Python objects, which mean "
                        "nothing in another process; needed is plain data")
    return 0


@cython.freelist(64)
cdef class Request:
    """One operation: done, failed, or in flight.

    Returned by all operations; those that are over at once return one that is done.
    While it is in flight it keeps its buffers, endpoint and remote key alive,
    whatever the program does; dropping or not awaiting it cancels nothing.

    Attributes
    ----------
    worker : Worker or None
        None for operations that were over at once.

    Source: UCX v1.22, ucp_request_param_t.
    """

    def __init__(self):
        raise TypeError("requests are made by operations")

    def __repr__(self):
        if not self.is_done:
            state = "in flight"
        elif self.final_status == c.UCS_OK:
            state = "done"
        else:
            state = f"failed with {STATUS_NAMES.get(self.final_status, self.final_status)}"
        return f"<Request of {self.call}, {state}>"

    @property
    def done(self):
        """bool : the operation is over, well or badly.  Does not progress.

        Source: UCX v1.22, ucp_request_check_status.
        """
        return self.is_done

    @property
    def status(self):
        """int : 0 done, 1 in flight, negative: failed.

        Source: UCX v1.22, ucp_request_check_status.
        """
        return self.final_status if self.is_done else c.UCS_INPROGRESS

    @property
    def sender_tag(self):
        """int or None : the tag of the message that a ``tag_recv`` received.

        Source: UCX v1.22, ucp_tag_recv_info_t.
        """
        if self.is_tag and self.is_done and self.final_status == c.UCS_OK:
            return self.op.info.sender_tag
        return None

    def result(self):
        """What the operation brought.

        Returns
        -------
        int
            Of ``tag_recv`` and ``stream_recv``: the received bytes; of fetching
            atomics: the old value, unsigned.
        buffer
            Of ``AmMessage.recv``: where the data is.
        None
            Otherwise.

        Raises ``RuntimeError`` while it is in flight, ``UcpError`` when it failed
        (always the same class, e.g. ``UcpTruncatedError``).

        Source: UCX v1.22, ucp_request_check_status.
        """
        if not self.is_done:
            raise RuntimeError(f"{self!r}")
        if self.final_status != c.UCS_OK:
            fail(self.call, self.final_status, self.value or "the operation failed")
        return self.value

    def wait(self, timeout=None):
        """Progress the worker until the operation is over.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever.

        Returns what ``result`` returns.

        Raises ``TimeoutError`` (the operation goes on), ``UcpError`` when it failed,
        and whatever a handler raised.  Blocks without the GIL, sleeps when nothing
        happens, interruptible; on the worker's thread only.

        Source: UCX v1.22, ucp_worker_progress.
        """
        cdef double deadline
        if self.is_done:
            return self.result()
        if self.worker is None:
            raise TypeError("requests are made by operations")
        self.worker.check()
        deadline = deadline_of(timeout)
        while not self.is_done:
            if not self.worker.wait_event(deadline) and not self.is_done:
                raise TimeoutError(f"{self!r} after {timeout} s")
        return self.result()

    def __await__(self):
        cdef int i = 0
        if self.worker is None and not self.is_done:
            raise TypeError("requests are made by operations")
        # Most answers come at once: this is cheaper than a round of the loop.
        while not self.is_done and i < 20:
            self.worker.check()
            self.worker.step()
            i += 1
        if not self.is_done:
            yield from _driver.future_of(self)
        return self.result()

    def cancel(self):
        """Cancel a receive that has not matched a message yet.

        It then fails with ``UcpCanceledError``, from progress; a receive that is
        under way ends as it would.  Harmless when it is over.  Sends can't be
        cancelled: ``TypeError``; closing their endpoint by force ends them.

        Source: UCX v1.22, ucp_request_cancel.
        """
        if self.is_done:
            return
        if not self.is_recv:
            raise TypeError(f"{self!r} can't be cancelled, only receives can")
        self.worker.check()
        if self.op.request != NULL:
            c.ucp_request_cancel(self.worker.worker, self.op.request)

    def add_done_callback(self, callback):
        """Call ``callback(request)`` when the operation is over, from progress; at
        once when it is over already.

        What it raises is raised from ``Worker.progress``.

        Source: UCX v1.22, ucp_request_param_t.
        """
        if not callable(callback):
            raise TypeError("callback must be callable")
        if self.is_done:
            callback(self)
        else:
            if self.callbacks is None:
                self.callbacks = []
            self.callbacks.append(callback)

    cdef int acquire(self, buffer, str name, bint writable) except -1:
        """Take hold of the buffer; on failure give the request back."""
        try:
            get_buffer(buffer, name, &self.view, writable)
        except BaseException:
            self.release()
            raise
        self.has_view = True
        self.is_large = <size_t>self.view.len >= LARGE
        return 0

    cdef void release(self) noexcept:
        """Let go of all that the operation held."""
        if self.has_view:
            self.has_view = False
            PyBuffer_Release(&self.view)
        if self.rkey is not None:
            self.rkey.num_operations -= 1
            self.rkey = None
        self.ep = None
        self.bound = None
        self.keep = None

    cdef str where(self):
        """What it was about, in words."""
        text = f"{self.view.len} bytes" if self.has_view else ""
        if self.ep is not None:
            text += f" of {self.ep!r}" if text else repr(self.ep)
        return text or repr(self.worker)

    cdef int finish(self) except -1:
        """After UCX is done with it: note how it ended, then tell who asked."""
        cdef int status = self.op.event.status
        cdef Worker worker = self.worker
        if self.is_linked:
            self.is_linked = False
            if self.previous is not None:
                self.previous.next = self.next
            else:
                worker.first = self.next
            if self.next is not None:
                self.next.previous = self.previous
            self.previous = self.next = None
            worker.num_requests -= 1
            worker.num_large -= self.is_large
        if self.op.request != NULL:
            c.ucp_request_free(self.op.request)
            self.op.request = NULL
        if status == c.UCS_ERR_CANCELED and self.instead_of_cancel:
            status = self.instead_of_cancel
        if status != c.UCS_OK:
            self.value = self.where()
            if self.ep is not None:
                self.value += advice(self.ep.handle, status)
            if status == c.UCS_ERR_INVALID_PARAM and self.call == "ucp_am_send_nbx":
                # arguments are checked before: this is the receiver's answer
                self.value += "; most likely the peer has no handler for this AM id"
        elif self.word_size:
            self.value = self.words[1] if self.word_size == 8 else (
                <uint32_t *>&self.words[1])[0]
        elif self.is_recv:
            # the data of an active message went to the buffer that is kept
            self.value = self.op.length if self.keep is None else self.keep
        if self.closes is not None:
            if not self.closes.failure.is_queued:
                worker.eps.discard(self.closes)
            self.closes.is_closed = True
            self.closes = None
        self.release()
        self.final_status = status
        self.is_done = True
        callbacks = self.callbacks
        self.callbacks = None
        if callbacks is not None:
            for callback in callbacks:
                try:
                    callback(self)
                except BaseException as exception:
                    worker.keep(exception)
        return 0


cdef Request make_done():
    cdef Request request = Request.__new__(Request)
    request.call = "an operation that was over at once"
    request.is_done = True
    return request


# What operations return that bring nothing and were over at once.
cdef Request DONE = make_done()
