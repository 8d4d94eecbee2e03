# SPDX-License-Identifier: BSD-3-Clause
# Active messages: what Endpoint.am sends, arrivals, messages that are kept
#
# Endpoint.am puts a word in front of what it sends, in the machine's byte order:
#
#   bits 63..48 AM_MAGIC   bits 39..32 what it is   bits 31..0 length of the header
#
#   AM_WHOLE   word, header, payload                the message
#   AM_FIRST   word, stream, total length, data     the first part of a large one
#   AM_MORE    word, stream, offset, data           a further part
#
# "total" and "offset" count the bytes of header and payload together.  The stream
# is a random number of the sending endpoint.  Parts of one message leave in order
# with nothing else of the endpoint between them, and the core keeps the order per
# endpoint, so that a stream has one message at a time and parts only ever append.

cdef enum:
    AM_MAGIC = 0x7554
    AM_WHOLE = 1
    AM_FIRST = 2
    AM_MORE = 3
    AM_WORD_BYTES = 8
    AM_PART_BYTES = 24          # in front of the data of a part
    AM_SHORT_BYTES = 256        # room for what am_short takes

# What a handler gets
cdef enum:
    MODE_DATA                   # bytes of the message as the core has it
    MODE_DATA_VIEW
    MODE_MESSAGE                # header and payload of Endpoint.am
    MODE_MESSAGE_VIEW


cdef inline uint64_t am_word(int what, uint64_t header_length) noexcept nogil:
    return (<uint64_t>AM_MAGIC << 48) | (<uint64_t>what << 32) | header_length


cdef struct am_pack_t:
    uint64_t prefix[3]
    size_t num_prefix
    const char *header
    size_t header_length
    const char *payload
    size_t first, last          # the range of header and payload that goes


cdef void am_copy(char *dest, am_pack_t *pack) noexcept nogil:
    """Copy a range of header and payload."""
    cdef size_t first = pack.first, length
    if first < pack.header_length:
        length = min(pack.last, pack.header_length) - first
        memcpy(dest, pack.header + first, length)
        dest += length
        first += length
    if first < pack.last:
        memcpy(dest, pack.payload + (first - pack.header_length),
               pack.last - first)


cdef size_t am_pack(void *dest, void *arg) noexcept nogil:
    """Prefix and data into a bounce buffer."""
    cdef am_pack_t *pack = <am_pack_t *>arg
    cdef size_t length = pack.num_prefix * sizeof(uint64_t)
    memcpy(dest, pack.prefix, length)
    am_copy(<char *>dest + length, pack)
    return length + pack.last - pack.first


cdef int send_am(Request request) noexcept:
    """What Request.attempt does for KIND_AM."""
    cdef Endpoint endpoint = request.ep
    cdef c.tofu_iface_attr_t *limits = &request.iface.limits
    cdef am_pack_t pack
    cdef char short_data[AM_SHORT_BYTES]
    cdef size_t total, room
    cdef intptr_t status
    pack.header = PyBytes_AS_STRING(request.data)
    pack.header_length = PyBytes_GET_SIZE(request.data)
    pack.payload = request.start
    total = pack.header_length + request.length
    pack.first = 0
    pack.last = total
    pack.num_prefix = 1
    pack.prefix[0] = am_word(AM_WHOLE, pack.header_length)
    if (total + AM_WORD_BYTES <= limits.max_am_short
            and total <= AM_SHORT_BYTES):
        am_copy(short_data, &pack)
        return c.tofu_ep_am_short(endpoint.ep, request.am_id, pack.prefix[0],
                                  short_data, total)
    if total + AM_WORD_BYTES <= limits.max_am_bcopy:
        status = c.tofu_ep_am_bcopy(endpoint.ep, request.am_id, am_pack, &pack)
        return status if status < 0 else c.TOFU_OK
    room = limits.max_am_bcopy - AM_PART_BYTES
    pack.num_prefix = 3
    pack.prefix[1] = endpoint.stream
    while request.sent < total:
        pack.first = request.sent
        pack.last = min(total, pack.first + room)
        pack.prefix[0] = am_word(AM_FIRST if pack.first == 0 else AM_MORE,
                                 pack.header_length)
        pack.prefix[2] = total if pack.first == 0 else pack.first
        status = c.tofu_ep_am_bcopy(endpoint.ep, request.am_id, am_pack, &pack)
        if status < 0:
            return status
        request.sent = pack.last
    return c.TOFU_OK


# ------------------------------------------------------------------- arrivals


cdef class _Partial:
    """A large message of which not all parts came yet."""

    cdef bytes header, payload  # None: it is dropped as it comes
    cdef size_t total, received

    cdef size_t occupied(self) noexcept:
        """Bytes: large blocks of memory take room as they are written."""
        if self.payload is None:
            return 1024
        return max(self.received, min(self.total, <size_t>131072)) + 1024

    cdef void append(self, const char *data, size_t length) noexcept:
        cdef size_t header_length, piece
        if self.payload is None:
            self.received += length
            return
        header_length = PyBytes_GET_SIZE(self.header)
        if self.received < header_length:
            piece = min(length, header_length - self.received)
            memcpy(PyBytes_AS_STRING(self.header) + self.received, data, piece)
            self.received += piece
            data += piece
            length -= piece
        if length > 0:
            memcpy(PyBytes_AS_STRING(self.payload)
                   + (self.received - header_length), data, length)
        self.received += length


@cython.final
cdef class _Arrival:
    """A message where it came, for as long as there are views of it."""

    cdef Iface iface
    cdef char *desc             # what the core calls the message
    cdef char *start
    cdef size_t size
    cdef Py_ssize_t num_exports
    cdef bint is_kept

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self.start == NULL:
            raise ValueError("the message was given back")
        PyBuffer_FillInfo(view, self, self.start, self.size, 1, flags)
        self.num_exports += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.num_exports -= 1
        if self.num_exports == 0 and self.is_kept:
            self.is_kept = False
            self.start = NULL
            give_back(self.iface, self.desc)


cdef int give_back(Iface iface, char *desc) except -1:
    """Release a kept message, in the iface's thread."""
    iface.num_views -= 1
    if iface.iface == NULL or iface.generation != fork_generation:
        return 0
    if iface.outside or PyThread_get_thread_ident() != iface.owner:
        iface.doomed.append((False, <uintptr_t>desc))
        iface.has_deferred = True
        return 0
    c.tofu_iface_release_desc(iface.iface, desc)
    return 0


cdef int8_t on_am(void *arg, void *data, size_t length,
                  unsigned flags) noexcept with gil:
    """An active message came; the data is valid until we return."""
    cdef am_arg_t *am = <am_arg_t *>arg
    cdef Iface iface = <Iface>am.iface
    cdef int8_t status = c.TOFU_OK
    try:
        handler = iface.am_handlers[am.id]
        if handler is None:
            pass
        elif am.mode == MODE_DATA:
            handler(PyBytes_FromStringAndSize(<char *>data, length))
        elif am.mode == MODE_DATA_VIEW:
            status = lend_am(iface, handler, None, <char *>data, <char *>data,
                             length, flags)
        else:
            status = receive_am(iface, am, handler, <char *>data, length, flags)
    except BaseException as exception:
        iface.keep_exception(exception)
    return status


cdef int8_t receive_am(Iface iface, am_arg_t *am, handler, char *data,
                       size_t length, unsigned flags) except? -1:
    """What Endpoint.am sent, or a part of it."""
    cdef uint64_t word = 0, stream, number
    cdef size_t header_length
    cdef int what
    cdef _Partial partial
    if length >= AM_WORD_BYTES:
        memcpy(&word, data, sizeof(word))
    header_length = word & 0xffffffff
    what = (word >> 32) & 0xff
    if word >> 48 != AM_MAGIC:
        what = 0
    if what == AM_WHOLE and header_length <= length - AM_WORD_BYTES:
        header = PyBytes_FromStringAndSize(data + AM_WORD_BYTES, header_length)
        header_length += AM_WORD_BYTES
        if am.mode == MODE_MESSAGE_VIEW:
            return lend_am(iface, handler, header, data, data + header_length,
                           length - header_length, flags)
        handler(header, PyBytes_FromStringAndSize(data + header_length,
                                                  length - header_length))
        return c.TOFU_OK
    if (what == AM_FIRST or what == AM_MORE) and length >= AM_PART_BYTES:
        memcpy(&stream, data + 8, 8)
        memcpy(&number, data + 16, 8)
        data += AM_PART_BYTES
        length -= AM_PART_BYTES
        key = (am.id, stream)
        partial = iface.partial.get(key)
        if partial is not None:
            iface.forget_partial(key)   # it comes back as the youngest
        if what == AM_FIRST:
            partial = None
            if header_length <= number and length < number:
                partial = _Partial.__new__(_Partial)
                partial.total = number
            if partial is not None and number > iface.am_backlog:
                tell_backlog(iface, f"a message of {number} bytes comes for AM id "
                             f"{am.id}, more than")
            elif partial is not None:
                partial.header = PyBytes_FromStringAndSize(NULL, header_length)
                partial.payload = PyBytes_FromStringAndSize(
                    NULL, number - header_length)
        elif partial is not None and (partial.received != number
                                      or length > partial.total - number):
            partial = None
        if partial is not None:
            partial.append(data, length)
            if partial.received < partial.total:
                iface.partial[key] = partial
                iface.partial_bytes += partial.occupied()
                if iface.partial_bytes > iface.am_backlog:
                    drop_idle(iface)
                return c.TOFU_OK
            if partial.payload is None:
                pass
            elif am.mode == MODE_MESSAGE_VIEW:
                show(handler, partial.header, partial.payload)
            else:
                handler(partial.header, partial.payload)
            return c.TOFU_OK
    raise TofuCallerError(
        "Endpoint.am", c.TOFU_ERR_INVALID_PARAM,
        f"{length} bytes came for AM id {am.id} of {iface!r} that are not from "
        "Endpoint.am, or a part whose message is not known; dropped")


cdef int tell_backlog(Iface iface, what) except -1:
    """Have progress raise that something is dropped."""
    iface.keep_exception(status_error(
        "Endpoint.am", c.TOFU_ERR_NO_MEMORY,
        f"{what} the am_backlog of {iface.am_backlog} bytes of {iface!r}; dropped"))
    return 0


cdef int drop_idle(Iface iface) except -1:
    """Drop incomplete messages, the longest idle first, until the rest may stay."""
    cdef Py_ssize_t count = 0
    while iface.partial_bytes > iface.am_backlog and len(iface.partial) > 1:
        iface.forget_partial(next(iter(iface.partial)))
        count += 1
    if count:
        tell_backlog(iface, f"{count} incomplete messages, the longest without a "
                     "further part, are beyond")
    return 0


cdef int show(handler, header, payload) except -1:
    """Call a handler with a view of a message that was copied."""
    view = memoryview(payload)
    try:
        if header is None:
            handler(view)
        else:
            handler(header, view)
    finally:
        try:
            view.release()
        except BufferError:
            pass                # something is made of it, which keeps it
    return 0


cdef int8_t lend_am(Iface iface, handler, header, char *desc, char *data,
                    size_t length, unsigned flags) except? -1:
    """Call a handler with a view of a message where it came.

    The view ends with the handler's return.  What the handler made of it, a slice
    or an array, keeps the message, which goes back to the core with the last."""
    cdef _Arrival arrival
    if not flags & c.TOFU_CB_DESC:
        show(handler, header, PyBytes_FromStringAndSize(data, length))
        return c.TOFU_OK
    arrival = _Arrival.__new__(_Arrival)
    arrival.iface = iface
    arrival.desc = desc
    arrival.start = data
    arrival.size = length
    try:
        show(handler, header, arrival)
    except BaseException as exception:
        # its traceback may hold views, so that the message is kept all the same
        iface.keep_exception(exception)
    if arrival.num_exports == 0:
        arrival.start = NULL
        return c.TOFU_OK
    arrival.is_kept = True
    iface.num_views += 1
    return c.TOFU_INPROGRESS
