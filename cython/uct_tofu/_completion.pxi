# SPDX-License-Identifier: BSD-3-Clause
# Completion: one operation in flight


cdef void on_completion(c.tofu_completion_t *self) noexcept with gil:
    """The core completed an operation."""
    cdef Completion completion = <Completion>(<completion_t *>self).owner
    completion.finish(self.status)
    Py_DECREF(completion)       # taken when the operation was posted


cdef class Completion:
    """One operation: done, failed, or in flight.

    Returned by the posting methods of Endpoint and by ``flush``.  While it is in
    flight it keeps the endpoint, the remote key, the memory and itself alive,
    whatever the program does.

    Source: cython/core/tofu.h, tofu_completion_t.
    """

    def __init__(self):
        raise TypeError("completions are made by operations")

    def __repr__(self):
        if not self.is_done:
            state = "in flight"
        elif self.final_status == c.TOFU_OK:
            state = "done"
        else:
            state = f"failed with status {self.final_status}"
        return f"<Completion of {self.call}, {state}>"

    @property
    def done(self):
        """bool : the operation is over, well or badly.  Does not progress.

        Source: cython/core/tofu.h, tofu_completion_t.
        """
        return self.is_done

    @property
    def status(self):
        """int : 0 done, 1 in flight, negative: failed.

        Source: cython/core/tofu.h, tofu_completion_t.
        """
        return self.final_status if self.is_done else c.TOFU_INPROGRESS

    def result(self):
        """What the operation brought: bytes of ``get_bcopy``, the old value of
        a fetching atomic (unsigned), otherwise None.

        Raises ``RuntimeError`` while it is in flight, ``TofuError`` when it
        failed.

        Source: cython/core/tofu.h, tofu_completion_t.
        """
        if not self.is_done:
            raise RuntimeError(f"{self!r}")
        if self.final_status != c.TOFU_OK:
            fail(self.call, self.final_status, "the operation failed")
        if self.word_size == 4:
            return (<uint32_t *>&self.word)[0]
        if self.word_size == 8:
            return self.word
        return self.data

    def wait(self, timeout=None):
        """Progress the iface until the operation is over.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever.

        Returns what ``result`` returns.

        Raises ``TimeoutError`` (the operation goes on), ``TofuError`` when it
        failed, and whatever a callback raised.  Interruptible; only for the
        thread that owns the iface.

        Source: cython/core/tofu.h, tofu_iface_progress.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.is_done:
            if self.iface.progress() == 0 and not self.is_done:
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError(f"{self!r} after {timeout} s")
                # Ranks may outnumber the cores: let the peer run.
                time.sleep(0)
        return self.result()

    def add_done_callback(self, callback):
        """Call ``callback(completion)`` when the operation is over, from
        progress; at once when it is over already.

        What it raises is raised from ``Iface.progress``.

        Source: cython/core/tofu.h, tofu_completion_t.
        """
        if not callable(callback):
            raise TypeError("callback must be callable")
        if self.is_done:
            callback(self)
        else:
            if self.callbacks is None:
                self.callbacks = []
            self.callbacks.append(callback)

    cdef int started(self, int status) except -1:
        """After posting: settle what the call returned."""
        if status == c.TOFU_INPROGRESS:
            return 0
        self.finish(status)
        Py_DECREF(self)
        if status != c.TOFU_OK:
            fail(self.call, status, repr(self.ep if self.ep is not None
                                         else self.iface))
        return 0

    cdef void finish(self, int status) noexcept:
        """Let go of what the operation held, then tell who asked."""
        cdef Memory memory
        cdef Iface iface = self.iface
        callbacks = self.callbacks
        self.final_status = status
        self.is_done = True
        self.callbacks = None
        iface.num_operations -= 1
        if self.rkey is not None:
            self.rkey.num_operations -= 1
            self.rkey = None
        if self.memories is not None:
            for item in self.memories:
                memory = <Memory>item
                memory.num_operations -= 1
            self.memories = None
        if callbacks is not None:
            for callback in callbacks:
                try:
                    callback(self)
                except BaseException as exception:
                    iface.keep_exception(exception)


cdef Completion make_completion(str call, Iface iface, Endpoint ep,
                                RemoteKey rkey):
    """A completion that counts as in flight; pass it to the core, then call
    started() with what the core returned."""
    cdef Completion self = Completion.__new__(Completion)
    self.call = call
    self.iface = iface
    self.ep = ep
    self.rkey = rkey
    self.completion.super.func = on_completion
    self.completion.super.count = 1
    self.completion.super.status = c.TOFU_OK
    self.completion.owner = <void *>self
    iface.num_operations += 1
    if rkey is not None:
        rkey.num_operations += 1
    Py_INCREF(self)
    return self
