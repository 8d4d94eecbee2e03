# SPDX-License-Identifier: BSD-3-Clause
# Endpoint


@cython.no_gc_clear
cdef class Endpoint:
    """Endpoint(iface, address, device_address=None)\n--\n\nLeads from an Iface to one remote Iface.

    Parameters
    ----------
    iface : Iface
    address : bytes-like
        ``Iface.address`` of the peer.
    device_address : bytes-like, optional
        ``Iface.device_address`` of the peer; when given, an iface of another
        network is refused with the reason.

    Raises ``TofuKeyError`` for bytes that are no address, ``TofuPeerError`` for one
    that leads nowhere.  No communication: a peer that is gone is noticed by the
    first operation.

    ``put``, ``get``, ``am``, ``add``, ``fetch_add`` ... take any contiguous buffer
    of any size and any RemoteMemory, wait for resources by themselves, and return
    a ``Request``.  They raise at once what is wrong with the arguments
    (``TofuRangeError``, ``TofuBufferError``, ``TofuKeyError``, ...) and
    ``TofuOperationError`` after the endpoint failed (``TofuPeerError``: the peer is
    gone); what goes wrong later is raised by the request.  Operations of one
    endpoint leave in order; they take effect in order only across a ``fence``.

    Of UCT's own verbs, ``put_short`` to ``am_zcopy`` and ``atomic_*``:
    ``remote_addr`` is the address in the peer's process, inside the memory of
    ``rkey``.  Those that return None are done with their buffers at return and
    complete remotely at the latest with the next ``flush``.  Those that return a
    ``Request`` need progress.  They raise ``TofuRetryError`` when nothing was sent
    for lack of a resource (progress, then call again), ``TofuCallerError`` for a
    wrong length, alignment or range, ``TofuOperationError`` after the endpoint
    failed.  ``local`` is a Memory, a tuple (Memory, offset, length) or a list of
    such tuples, of the iface's own MemoryDomain; an empty list is no bytes.

    Nothing here waits.  Only for the thread that owns the iface.

    Source: cython/core/tofu.h, tofu_ep_create.
    """

    def __init__(self, Iface iface not None, address, device_address=None):
        cdef c.tofu_ep_t *ep = NULL
        cdef int status
        if self.ep != NULL:
            refuse(TofuCallerError, "Endpoint", "it is open already")
        iface.check()
        data = as_bytes(address, "address")
        if device_address is not None:
            reason = iface.unreachable_reason(device_address, data)
            if reason is not None:
                fail("tofu_iface_is_reachable", c.TOFU_ERR_UNREACHABLE, reason)
        # To the core a length of 0 means "not told", here it means no bytes.
        if not data:
            status = c.TOFU_ERR_INVALID_PARAM
        else:
            status = c.tofu_ep_create(iface.iface, PyBytes_AS_STRING(data),
                                      len(data), &ep)
        if status == c.TOFU_ERR_INVALID_PARAM:
            refuse(TofuKeyError, "tofu_ep_create", f"{len(data)} bytes that are "
                   "damaged or not an address of this transport")
        if status != c.TOFU_OK:
            fail("tofu_ep_create", status, f"address of {len(data)} bytes")
        c.tofu_ep_set_user(ep, <void *>self)
        self.address = data
        self.iface = iface
        self.ep = ep
        iface.num_eps += 1

    def __reduce__(self):
        raise TypeError("an Endpoint cannot be copied or pickled; "
                        "send the address of its Iface")

    def __repr__(self):
        return (f"<Endpoint at {<uintptr_t><void *>self:#x}"
                f"{'' if self.ep != NULL else ', closed'}>")

    cdef int check(self) except -1:
        """Open, and of this thread and process."""
        cdef Iface iface = self.iface
        if (self.ep == NULL or iface.generation != fork_generation
                or PyThread_get_thread_ident() != iface.owner):
            if self.ep == NULL:
                refuse(TofuClosedError, "Endpoint", "the endpoint is closed")
            return iface.refuse()
        return 0

    cdef c.tofu_rkey_t *key(self, RemoteKey rkey) except NULL:
        if rkey is None:
            raise TypeError("rkey must be a RemoteKey")
        if rkey.rkey == NULL or rkey.generation != fork_generation:
            rkey.check()
        return rkey.rkey

    cdef Request new_request(self, str call, RemoteKey rkey, int kind):
        return make_request(call, self.iface, self, rkey, kind)

    def put_short(self, data, remote_addr, RemoteKey rkey):
        """Put a few bytes, at most ``max_put_short``.

        Source: cython/core/tofu.h, tofu_ep_put_short.
        """
        cdef uint64_t remote = whole(remote_addr, "remote_addr")
        cdef Py_buffer view
        cdef c.tofu_rkey_t *key = self.key(rkey)
        cdef Py_ssize_t length
        cdef int status
        self.check()
        if type(data) is bytes:
            length = PyBytes_GET_SIZE(data)
            if <size_t>length > self.iface.limits.max_put_short:
                status = c.TOFU_ERR_INVALID_PARAM
            else:
                status = c.tofu_ep_put_short(self.ep, PyBytes_AS_STRING(data),
                                             length, remote, key)
        else:
            acquire(data, &view, False, "tofu_ep_put_short")
            length = view.len
            if <size_t>length > self.iface.limits.max_put_short:
                status = c.TOFU_ERR_INVALID_PARAM
            else:
                status = c.tofu_ep_put_short(self.ep, view.buf, length,
                                             remote, key)
            PyBuffer_Release(&view)
        if status != c.TOFU_OK:
            fail("tofu_ep_put_short", status,
                 f"{length} bytes to {remote:#x}")

    def put_bcopy(self, data, remote_addr, RemoteKey rkey):
        """Put a copy of ``data``, at most ``max_put_bcopy`` bytes.

        Source: cython/core/tofu.h, tofu_ep_put_bcopy.
        """
        cdef uint64_t remote = whole(remote_addr, "remote_addr")
        cdef Py_buffer view
        cdef pack_arg_t pack
        cdef c.tofu_rkey_t *key = self.key(rkey)
        cdef intptr_t status
        self.check()
        acquire(data, &view, False, "tofu_ep_put_bcopy")
        if <size_t>view.len > self.iface.limits.max_put_bcopy:
            status = c.TOFU_ERR_INVALID_PARAM
        else:
            pack.data = view.buf
            pack.length = view.len
            status = c.tofu_ep_put_bcopy(self.ep, pack_copy, &pack, remote,
                                         key)
        cdef Py_ssize_t length = view.len
        PyBuffer_Release(&view)
        if status < 0:
            fail("tofu_ep_put_bcopy", status,
                 f"{length} bytes to {remote:#x}")

    def put_zcopy(self, local, remote_addr, RemoteKey rkey):
        """Put registered memory; the Request means remotely written.

        Source: cython/core/tofu.h, tofu_ep_put_zcopy.
        """
        cdef uint64_t remote = whole(remote_addr, "remote_addr")
        cdef c.tofu_rkey_t *key = self.key(rkey)
        cdef _Iov iov
        cdef Request comp
        self.check()
        iov = _Iov(local, self.iface)
        comp = self.new_request("tofu_ep_put_zcopy", rkey, KIND_PLAIN)
        comp.pieces = iov
        comp.length = iov.length
        comp.hold()
        comp.remote = remote
        comp.started(comp.post_zcopy(KIND_PUT_ZCOPY, key))
        return comp

    def get_bcopy(self, length, remote_addr, RemoteKey rkey):
        """Get ``length`` bytes, at most ``max_get_bcopy``; the Request's
        result is bytes.

        Source: cython/core/tofu.h, tofu_ep_get_bcopy.
        """
        cdef uint64_t remote = whole(remote_addr, "remote_addr")
        cdef size_t wanted = whole(length, "length")
        cdef c.tofu_rkey_t *key = self.key(rkey)
        cdef Request comp
        self.check()
        if wanted > self.iface.limits.max_get_bcopy:
            fail("tofu_ep_get_bcopy", c.TOFU_ERR_INVALID_PARAM,
                 f"{wanted} bytes, the limit is "
                 f"{self.iface.limits.max_get_bcopy}")
        data = PyBytes_FromStringAndSize(NULL, wanted)
        comp = self.new_request("tofu_ep_get_bcopy", rkey, KIND_PLAIN)
        comp.data = data
        comp.hold()
        comp.started(c.tofu_ep_get_bcopy(self.ep, unpack_copy,
                                         PyBytes_AS_STRING(data), wanted,
                                         remote, key,
                                         &comp.completion.super))
        return comp

    def get_zcopy(self, local, remote_addr, RemoteKey rkey):
        """Get into registered, writable memory.

        Source: cython/core/tofu.h, tofu_ep_get_zcopy.
        """
        cdef uint64_t remote = whole(remote_addr, "remote_addr")
        cdef c.tofu_rkey_t *key = self.key(rkey)
        cdef _Iov iov
        cdef Request comp
        self.check()
        iov = _Iov(local, self.iface)
        for memory in iov.memories:
            if (<Memory>memory).read_only:
                refuse(TofuReadOnlyError, "tofu_ep_get_zcopy",
                       f"{memory!r} is registered read-only")
        comp = self.new_request("tofu_ep_get_zcopy", rkey, KIND_PLAIN)
        comp.pieces = iov
        comp.length = iov.length
        comp.hold()
        comp.remote = remote
        comp.started(comp.post_zcopy(KIND_GET_ZCOPY, key))
        return comp

    def atomic_post(self, op, value, remote_addr, RemoteKey rkey, *, size=8):
        """Atomic ``AtomicOp`` on a remote word of ``size`` (4 or 8) bytes,
        aligned to it; the old value is not fetched.

        Source: cython/core/tofu.h, tofu_ep_atomic_post.
        """
        cdef uint64_t remote = whole(remote_addr, "remote_addr")
        cdef unsigned length = whole(size, "size", 0xffffffff)
        cdef c.tofu_rkey_t *key = self.key(rkey)
        cdef uint64_t word = operand(value, length)
        cdef int c_op = AtomicOp(op)
        cdef int status
        self.check()
        status = c.tofu_ep_atomic_post(self.ep, <c.tofu_atomic_op_t>c_op, length,
                                       word, remote, key)
        if status != c.TOFU_OK:
            fail("tofu_ep_atomic_post", status,
                 f"{AtomicOp(op).name}{8 * length} at {remote:#x}")

    def atomic_fetch(self, op, value, remote_addr, RemoteKey rkey, *, size=8):
        """As ``atomic_post``; the Request's result is the old value.

        Source: cython/core/tofu.h, tofu_ep_atomic_fetch.
        """
        cdef uint64_t remote = whole(remote_addr, "remote_addr")
        cdef unsigned length = whole(size, "size", 0xffffffff)
        cdef c.tofu_rkey_t *key = self.key(rkey)
        cdef uint64_t word = operand(value, length)
        cdef int c_op = AtomicOp(op)
        cdef Request comp
        self.check()
        comp = self.new_request("tofu_ep_atomic_fetch", rkey, KIND_PLAIN)
        comp.word_size = length
        comp.hold()
        comp.started(c.tofu_ep_atomic_fetch(
            self.ep, <c.tofu_atomic_op_t>c_op, length, word, &comp.word,
            remote, key, &comp.completion.super))
        return comp

    def atomic_cswap(self, compare, swap, remote_addr, RemoteKey rkey, *, size=8):
        """Atomic: write ``swap`` where ``compare`` stands; the Request's
        result is the old value.

        Source: cython/core/tofu.h, tofu_ep_atomic_cswap.
        """
        cdef uint64_t remote = whole(remote_addr, "remote_addr")
        cdef unsigned length = whole(size, "size", 0xffffffff)
        cdef c.tofu_rkey_t *key = self.key(rkey)
        cdef uint64_t compare_word = operand(compare, length, "compare")
        cdef uint64_t swap_word = operand(swap, length, "swap")
        cdef Request comp
        self.check()
        comp = self.new_request("tofu_ep_atomic_cswap", rkey, KIND_PLAIN)
        comp.word_size = length
        comp.hold()
        comp.started(c.tofu_ep_atomic_cswap(
            self.ep, length, compare_word, swap_word, &comp.word, remote,
            key, &comp.completion.super))
        return comp

    def am_short(self, am_id, header, payload=b""):
        """Send an active message: an 8-byte header and a payload, together at
        most ``max_am_short`` bytes.

        Source: cython/core/tofu.h, tofu_ep_am_short.
        """
        cdef uint64_t word = whole(header, "header")
        cdef uint8_t number = whole(am_id, "am_id", 0xff)
        cdef Py_buffer view
        cdef int status
        self.check()
        acquire(payload, &view, False, "tofu_ep_am_short")
        if (number >= c.TOFU_AM_ID_MAX
                or <size_t>view.len + 8 > self.iface.limits.max_am_short):
            status = c.TOFU_ERR_INVALID_PARAM
        else:
            status = c.tofu_ep_am_short(self.ep, number, word, view.buf,
                                        view.len)
        cdef Py_ssize_t length = view.len
        PyBuffer_Release(&view)
        if status != c.TOFU_OK:
            fail("tofu_ep_am_short", status,
                 f"AM id {number}, {length} bytes of payload")

    def am_bcopy(self, am_id, data):
        """Send a copy of ``data`` as an active message, at most
        ``max_am_bcopy`` bytes.

        Source: cython/core/tofu.h, tofu_ep_am_bcopy.
        """
        cdef uint8_t number = whole(am_id, "am_id", 0xff)
        cdef Py_buffer view
        cdef pack_arg_t pack
        cdef intptr_t status
        self.check()
        acquire(data, &view, False, "tofu_ep_am_bcopy")
        if (number >= c.TOFU_AM_ID_MAX
                or <size_t>view.len > self.iface.limits.max_am_bcopy):
            status = c.TOFU_ERR_INVALID_PARAM
        else:
            pack.data = view.buf
            pack.length = view.len
            status = c.tofu_ep_am_bcopy(self.ep, number, pack_copy, &pack)
        cdef Py_ssize_t length = view.len
        PyBuffer_Release(&view)
        if status < 0:
            fail("tofu_ep_am_bcopy", status, f"AM id {number}, {length} bytes")

    def am_zcopy(self, am_id, header, local):
        """Send ``header`` (at most ``max_am_hdr`` bytes) and registered memory
        as one active message of at most ``max_am_zcopy`` bytes.

        Source: cython/core/tofu.h, tofu_ep_am_zcopy.
        """
        cdef uint8_t number = whole(am_id, "am_id", 0xff)
        cdef _Iov iov
        cdef Request comp
        self.check()
        data = as_bytes(header, "header")
        if number >= c.TOFU_AM_ID_MAX or len(data) > self.iface.limits.max_am_hdr:
            fail("tofu_ep_am_zcopy", c.TOFU_ERR_INVALID_PARAM,
                 f"AM id {number}, {len(data)} bytes of header")
        iov = _Iov(local, self.iface)
        comp = self.new_request("tofu_ep_am_zcopy", None, KIND_PLAIN)
        comp.pieces = iov
        comp.length = iov.length
        comp.hold()
        comp.started(c.tofu_ep_am_zcopy(self.ep, number, PyBytes_AS_STRING(data),
                                        len(data), iov.iov, iov.count,
                                        &comp.completion.super))
        return comp

    def put(self, local, remote, *, offset=None):
        """Write a buffer into the peer's memory.

        Parameters
        ----------
        local : buffer, Memory, or list of (Memory, offset, length)
            Contiguous (C or Fortran order), elements of any plain type, may be
            read-only.  Not to be changed before the request is done.
        remote : RemoteMemory
        offset : int, optional
            Where in ``remote`` to write, bytes; default 0.

        Returns
        -------
        Request
            Done: the peer's memory is written.

        Raises as the class says; ``TofuRangeError`` when the data does not fit.  Small
        data is copied (``put_short``, ``put_bcopy``), larger data goes from where it is
        (``put_zcopy``), for which its memory is registered: a NumPy array once for
        its life, other buffers for each operation, ``Memory`` is registered already.

        Source: cython/core/tofu.h, tofu_ep_put_short, _bcopy, _zcopy.
        """
        return put_or_get(self, "Endpoint.put", local, remote, offset, True)

    def get(self, local, remote, *, offset=None):
        """Read the peer's memory into a buffer, as many bytes as that has.

        Parameters
        ----------
        local : buffer, Memory, or list of (Memory, offset, length)
            Contiguous and writable.  Its content is undefined until the request is
            done.
        remote : RemoteMemory
        offset : int, optional
            Where in ``remote`` to read, bytes; default 0.

        Returns
        -------
        Request
            Done: the data is here.

        Raises as the class says; ``TofuReadOnlyError`` for a read-only buffer,
        ``TofuRangeError`` when ``remote`` is too short.

        Source: cython/core/tofu.h, tofu_ep_get_bcopy, _zcopy.
        """
        return put_or_get(self, "Endpoint.get", local, remote, offset, False)

    def am(self, am_id, payload=b"", *, header=b""):
        """Send an active message of any size.

        Parameters
        ----------
        am_id : int
            0 to 31; which handler or stream of the peer gets it.
        payload : buffer
            Contiguous; not to be changed before the request is done.
        header : bytes-like
            Comes apart from the payload.

        Returns
        -------
        Request
            Done: the message is on its way and the buffer is free.

        Messages of one endpoint arrive in order, each once.  Large ones go in parts
        and are put together by the peer's ``set_message_handler`` or ``messages``.
        Raises as the class says; ``TofuRangeError`` for the id.

        Source: cython/core/tofu.h, tofu_ep_am_short, _bcopy; _am.pxi, format of parts.
        """
        cdef int number = signed_int(am_id, "am_id")
        cdef Request request
        self.check()
        if not 0 <= number < <int>c.TOFU_AM_ID_MAX:
            refuse(TofuRangeError, "Endpoint.am",
                   f"am_id must be 0 to {c.TOFU_AM_ID_MAX - 1}, not {number}")
        request = self.new_request("Endpoint.am", None, KIND_AM)
        request.data = header if type(header) is bytes else as_bytes(header, "header")
        if len(request.data) > 0xffffffff:
            refuse(TofuRangeError, "Endpoint.am", f"{len(request.data)} bytes of "
                   "header, at most 4 GiB")
        request.am_id = number
        acquire(payload, &request.view, False, "Endpoint.am")
        request.has_view = True
        request.start = <char *>request.view.buf
        request.length = request.view.len
        if self.stream == 0:
            self.stream = int.from_bytes(os.urandom(8), "little") | 1
        request.submit()
        return request

    def add(self, remote, value, *, offset=None, size=8):
        """Add to a word of the peer, atomically; the old value is not fetched.

        Parameters
        ----------
        remote : RemoteMemory
        value : int
            Signed or unsigned, of ``size`` bytes; sums wrap around.
        offset : int, optional
            Of the word in ``remote``, bytes; default 0.  Aligned to ``size``.
        size : {8, 4}
            Bytes of the word.

        Returns
        -------
        Request
            Done: the word is changed.

        Raises as the class says; ``OverflowError`` for a value of more than ``size``
        bytes.

        Source: cython/core/tofu.h, tofu_ep_atomic_post.
        """
        return atomic(self, "Endpoint.add", remote, offset, value, None, size,
                           KIND_ATOMIC_POST, c.TOFU_ATOMIC_ADD)

    def fetch_add(self, remote, value, *, offset=None, size=8):
        """As ``add``; the request's result is the old value, unsigned.

        Source: cython/core/tofu.h, tofu_ep_atomic_fetch.
        """
        return atomic(self, "Endpoint.fetch_add", remote, offset, value, None, size,
                           KIND_ATOMIC_FETCH, c.TOFU_ATOMIC_ADD)

    def fetch_and(self, remote, value, *, offset=None, size=8):
        """Bitwise and, parameters as ``add``; the result is the old value, unsigned.

        Source: cython/core/tofu.h, tofu_ep_atomic_fetch.
        """
        return atomic(self, "Endpoint.fetch_and", remote, offset, value, None, size,
                           KIND_ATOMIC_FETCH, c.TOFU_ATOMIC_AND)

    def fetch_or(self, remote, value, *, offset=None, size=8):
        """Bitwise or, parameters as ``add``; the result is the old value, unsigned.

        Source: cython/core/tofu.h, tofu_ep_atomic_fetch.
        """
        return atomic(self, "Endpoint.fetch_or", remote, offset, value, None, size,
                           KIND_ATOMIC_FETCH, c.TOFU_ATOMIC_OR)

    def fetch_xor(self, remote, value, *, offset=None, size=8):
        """Bitwise exclusive or, parameters as ``add``; the result is the old value,
        unsigned.

        Source: cython/core/tofu.h, tofu_ep_atomic_fetch.
        """
        return atomic(self, "Endpoint.fetch_xor", remote, offset, value, None, size,
                           KIND_ATOMIC_FETCH, c.TOFU_ATOMIC_XOR)

    def swap(self, remote, value, *, offset=None, size=8):
        """Write a word, parameters as ``add``; the result is the old value, unsigned.

        Source: cython/core/tofu.h, tofu_ep_atomic_fetch.
        """
        return atomic(self, "Endpoint.swap", remote, offset, value, None, size,
                           KIND_ATOMIC_FETCH, c.TOFU_ATOMIC_SWAP)

    def compare_swap(self, remote, compare, value, *, offset=None, size=8):
        """Write ``value`` where ``compare`` stands, otherwise nothing; other
        parameters as ``add``; the result is the old value, unsigned.

        Source: cython/core/tofu.h, tofu_ep_atomic_cswap.
        """
        return atomic(self, "Endpoint.compare_swap", remote, offset, value, compare,
                           size, KIND_ATOMIC_CSWAP, 0)

    def flush(self, *, bint cancel=False):
        """Complete when all operations of this endpoint posted before have
        reached their target.

        Parameters
        ----------
        cancel : bool
            Drop what has not been sent; the endpoint can send no more.

        Returns
        -------
        Request

        Raises ``TofuOperationError`` when an operation failed since the last flush.

        Source: cython/core/tofu.h, tofu_ep_flush.
        """
        cdef Request request
        self.check()
        if cancel:
            self.purge(c.TOFU_ERR_CANCELED)
        request = self.new_request("tofu_ep_flush", None, KIND_FLUSH)
        request.flags = c.TOFU_FLUSH_CANCEL if cancel else 0
        request.cover = self.seq
        if self.flusher is None:
            self.flusher = request
        request.submit()
        return request

    cdef void purge(self, int status) noexcept:
        """End what waits for resources."""
        c.tofu_ep_pending_purge(self.ep, on_purge, &status)

    def fence(self):
        """Operations posted later take effect after those posted earlier.

        Source: cython/core/tofu.h, tofu_ep_fence.
        """
        self.check()
        cdef int status = c.tofu_ep_fence(self.ep)
        if status != c.TOFU_OK:
            fail("tofu_ep_fence", status, repr(self))

    def is_connected(self, address):
        """bool : the endpoint leads to the iface with this address.

        Source: cython/core/tofu.h, tofu_ep_is_connected.
        """
        self.check()
        data = as_bytes(address, "address")
        if not data:
            return False
        return bool(c.tofu_ep_is_connected(self.ep, PyBytes_AS_STRING(data),
                                           len(data)))

    def close(self):
        """Close the endpoint; harmless when repeated.  Does not wait.

        Operations in flight go on and complete into the iface.  Those that wait for
        resources have not left, and never will; ``ep.flush().wait()`` before sends
        them all.  Their requests, and flushes, end with TOFU_ERR_CANCELED; a
        ``ResourceWarning`` tells how many there were whose requests nobody holds.

        Source: cython/core/tofu.h, tofu_ep_destroy, tofu_ep_pending_purge.
        """
        cdef c.tofu_ep_t *ep = self.ep
        cdef unsent_t unsent
        if ep == NULL:
            return
        self.check()
        unsent.unheld = 0
        words = repr(self)
        c.tofu_ep_pending_purge(ep, on_close, &unsent)
        self.ep = NULL
        c.tofu_ep_set_user(ep, NULL)
        c.tofu_ep_destroy(ep)
        self.iface.num_eps -= 1
        if unsent.unheld:
            warnings.warn(
                f"{words} was closed before {unsent.unheld} of its operations left, "
                "which waited for resources: they are dropped; flush() first",
                ResourceWarning, stacklevel=1)   # the caller's: this has no frame

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        end_block(self.close, exc)

    def __del__(self):
        if self.ep != NULL and self.iface.generation == fork_generation:
            warn_unclosed(self)

    def __dealloc__(self):
        # no_gc_clear keeps self.iface valid here, and the iface open.  Requests
        # that wait for resources keep their endpoint: there are none.
        if self.ep != NULL and self.iface.generation == fork_generation:
            c.tofu_ep_set_user(self.ep, NULL)
            if self.iface.outside:
                self.iface.doomed.append((True, <uintptr_t>self.ep))
                self.iface.has_deferred = True
            else:
                c.tofu_ep_destroy(self.ep)
                self.iface.num_eps -= 1
