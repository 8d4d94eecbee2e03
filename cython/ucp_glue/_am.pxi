# SPDX-License-Identifier: BSD-3-Clause
# Active messages: handlers of a worker, AmMessage


cdef class AmSource:
    """What UCP hands to the callback of one message id; lives as the worker does.

    Source: UCX v1.22, ucp_am_handler_param_t.
    """


cdef int set_am_handler(Worker worker, int am_id, handler, bint automatic,
                        inbox) except -1:
    cdef AmSource source
    cdef int status
    if not 0 <= am_id <= 0xffff:
        raise ValueError(f"am_id {am_id}: 0 to 65535 can be")
    if handler is not None and not callable(handler):
        raise TypeError("handler must be callable, or None")
    if handler is None and am_id not in worker.am_sources:
        return 0
    source = worker.am_sources.get(am_id)
    if source is None:
        source = AmSource.__new__(AmSource)
        source.source.list = &worker.list
        source.source.id = am_id
        worker.am_sources[am_id] = source
    status = c.glue_am_handler(worker.worker, &source.source, handler is not None)
    if status != c.UCS_OK:
        fail("ucp_worker_set_am_recv_handler", status, f"id {am_id} of {worker!r}")
    if handler is None:
        worker.am_handlers.pop(am_id, None)
    else:
        worker.am_handlers[am_id] = (handler, automatic, inbox)
    return 0


cdef int hand_over(handler, inbox, message, size_t size) except -1:
    if inbox is None:
        handler(message)
    else:
        inbox.put(message, size)
    return 0


cdef int deliver(Worker worker, glue_am_t *am) except -1:
    """Make the message a Python object and hand it to its handler; frees nothing."""
    cdef:
        AmMessage message
        EpHandle handle
        char *data = <char *>am.held if am.held != NULL else (
            am.bytes + am.header_length)
        size_t size = am.header_length
    entry = worker.am_handlers.get(am.id)
    if entry is None:
        return 0                        # taken away since it came
    handler, automatic, inbox = entry
    if inbox is not None:
        if automatic or not am.is_rndv:
            size += am.length           # it will be here, not with the sender
        if not inbox.admit(size):
            return 0
    message = AmMessage.__new__(AmMessage)
    message.worker = worker
    message.am_id = am.id
    message.header = PyBytes_FromStringAndSize(am.bytes, am.header_length)
    message.length = am.length
    message.rendezvous = am.is_rndv
    if am.reply_ep != NULL:
        for handle in worker.eps:
            if handle.ep == am.reply_ep:
                message.endpoint = handle.endpoint()
    if not am.is_rndv:
        message.data = PyBytes_FromStringAndSize(data, am.length)
        if am.held != NULL:
            c.ucp_am_data_release(worker.worker, am.held)
            am.held = NULL
        return hand_over(handler, inbox, message, size)
    message.desc = am.held
    worker.held.add(<uintptr_t>am.held)
    am.held = NULL                      # now the message's
    if not automatic:
        return hand_over(handler, inbox, message, size)

    def arrived(request):
        # A peer that died meanwhile has not sent the message; its endpoint tells.
        if request.status == c.UCS_OK:
            (<AmMessage>message).data = request.result()
            hand_over(handler, inbox, message, size)
        elif inbox is not None:
            inbox.forget(size)

    try:
        request = message.recv()
    except BaseException:
        if inbox is not None:
            inbox.forget(size)
        raise
    request.add_done_callback(arrived)
    return 0


cdef class AmMessage:
    """An active message that arrived.

    Attributes
    ----------
    worker : Worker
    am_id : int
    header : bytes
    length : int
        Bytes of the payload.
    rendezvous : bool
        The payload is still with the sender, and was announced.
    data : bytes, bytearray or None
        The payload; None until a rendezvous was received.
    endpoint : Endpoint or None
        Where an answer goes, when the sender asked for one and an endpoint to it
        is open here.

    Source: UCX v1.22, ucp_am_recv_callback_t.
    """

    def __init__(self):
        raise TypeError("messages are made by their arrival")

    def __repr__(self):
        return (f"<AmMessage id {self.am_id}, header of {len(self.header)} bytes, "
                f"{self.length} bytes{', rendezvous' if self.rendezvous else ''}>")

    def recv(self, buffer=None):
        """Receive the payload; for a rendezvous, once.

        Parameters
        ----------
        buffer : writable, contiguous buffer, optional
            At least ``length`` bytes; None makes a bytearray.

        Returns
        -------
        Request
            Its result is the buffer.

        Raises ``UcpTruncatedError`` when the buffer is too short (the payload can
        still be received), ``RuntimeError`` the second time, ``UcpError``.

        Source: UCX v1.22, ucp_am_recv_data_nbx.
        """
        cdef:
            ucp_request_param_t param
            Request request
            Worker worker = self.worker
            ucs_status_ptr_t ptr
            void *desc = self.desc
            void *target
            size_t length = self.length
            char *source
        if worker is None:
            raise TypeError("messages are made by their arrival")
        worker.check()
        if self.rendezvous and (desc == NULL or
                                <uintptr_t>desc not in worker.held):
            raise RuntimeError(f"the payload of {self!r} was received already")
        if buffer is None:
            buffer = bytearray(self.length)
        request = worker.take("ucp_am_recv_data_nbx")
        request.acquire(buffer, "buffer", True)
        if <size_t>request.view.len < length:
            size = request.view.len
            request.release()
            raise UcpTruncatedError(
                "ucp_am_recv_data_nbx", c.UCS_ERR_MESSAGE_TRUNCATED,
                f"{self!r} into {size} bytes")
        request.keep = buffer
        request.is_recv = True
        target = request.view.buf
        if not self.rendezvous:
            source = PyBytes_AS_STRING(self.data)
            memcpy(target, source, length)
            return worker.settle(request, NULL)
        c.glue_param_am_recv(&param, &request.op)
        worker.held.discard(<uintptr_t>desc)
        self.desc = NULL
        worker.busy += 1
        with nogil:
            ptr = c.ucp_am_recv_data_nbx(worker.worker, desc, target, length, &param)
        worker.busy -= 1
        return worker.settle(request, ptr)

    def __del__(self):
        if (self.desc != NULL and self.worker.worker != NULL and
                self.worker.generation == fork_generation):
            # perhaps not on the worker's thread: it releases it later
            self.worker.orphans.append((False, <uintptr_t>self.desc))
