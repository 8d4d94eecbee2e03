# SPDX-License-Identifier: BSD-3-Clause
# Endpoint


cdef struct pack_arg_t:
    const void *data
    size_t length


cdef size_t pack_copy(void *dest, void *arg) noexcept nogil:
    """The data is one piece: copy it."""
    cdef pack_arg_t *pack = <pack_arg_t *>arg
    memcpy(dest, pack.data, pack.length)
    return pack.length


cdef void unpack_copy(void *arg, const void *data,
                      size_t length) noexcept nogil:
    """arg is the storage of the result, which has the length asked for."""
    memcpy(arg, data, length)


cdef class _Iov:
    """Pieces of registered memory as the core wants them."""

    cdef c.tofu_iov_t *iov
    cdef size_t count
    cdef list memories

    def __cinit__(self, local, Iface iface):
        cdef Memory memory
        cdef size_t offset, length
        if isinstance(local, Memory):
            pieces = [(local, 0, len(local))]
        elif isinstance(local, tuple):
            pieces = [local]
        else:
            pieces = list(local)
        self.iov = <c.tofu_iov_t *>PyMem_Malloc(
            max(len(pieces), 1) * sizeof(c.tofu_iov_t))
        if self.iov == NULL:
            raise MemoryError()
        self.memories = []
        for piece in pieces:
            item, first, size = piece
            if not isinstance(item, Memory):
                raise TypeError("a piece is (Memory, offset, length), not "
                                f"({type(item).__name__}, ...)")
            memory = item
            memory.check()
            if memory.md is not iface.md:
                raise ValueError(f"{memory!r} belongs to another MemoryDomain "
                                 "than the endpoint")
            offset = first
            length = size
            if offset > memory.size or length > memory.size - offset:
                raise ValueError(f"{length} bytes at offset {offset} are not "
                                 f"inside {memory!r}")
            self.iov[self.count].buffer = <char *>memory.start + offset
            self.iov[self.count].length = length
            self.iov[self.count].memh = memory.memh
            self.iov[self.count].stride = 0
            self.iov[self.count].count = 1
            self.count += 1
            self.memories.append(memory)

    def __dealloc__(self):
        PyMem_Free(self.iov)

    cdef int hold(self, Completion comp) except -1:
        cdef Memory memory
        comp.memories = self.memories
        for item in self.memories:
            memory = <Memory>item
            memory.num_operations += 1
        return 0


cdef uint64_t operand(value, unsigned size) except? 0:
    """A signed or unsigned integer of 4 or 8 bytes."""
    if size != 4 and size != 8:
        raise ValueError(f"size must be 4 or 8, not {size}")
    bits = 8 * size
    if not -(1 << (bits - 1)) <= value < (1 << bits):
        raise OverflowError(f"{value} does not fit in {size} bytes")
    return value & ((1 << bits) - 1)


@cython.no_gc_clear
cdef class Endpoint:
    """Leads from an Iface to one remote Iface.

    Parameters
    ----------
    iface : Iface
    address : bytes-like
        ``Iface.address`` of the peer.
    device_address : bytes-like, optional
        ``Iface.device_address`` of the peer; when given, an iface of another
        network is refused with the reason.

    Raises ``TofuError`` for bytes that are no address or lead nowhere.  No
    communication: a peer that is gone is noticed by the first operation.

    Common to the operations: ``remote_addr`` is the address in the peer's
    process, inside the memory of ``rkey``.  Methods that return None are done
    with their buffers at return and complete remotely at the latest with the
    next ``flush``.  Methods that return a ``Completion`` need progress.  None
    waits.  They raise ``TofuRetryError`` when nothing was sent for lack of a
    resource (progress, then call again), ``TofuCallerError`` for a wrong length,
    alignment or range, ``TofuOperationError`` after the endpoint failed.
    ``local`` is a Memory, a tuple (Memory, offset, length) or a list of such
    tuples, of the iface's own MemoryDomain.

    Source: cython/core/tofu.h, tofu_ep_create.
    """

    def __init__(self, Iface iface not None, address, device_address=None):
        cdef c.tofu_ep_t *ep = NULL
        cdef int status
        if self.ep != NULL:
            raise RuntimeError("the endpoint is open already")
        iface.check()
        data = as_bytes(address)
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
        if status != c.TOFU_OK:
            fail("tofu_ep_create", status, f"address of {len(data)} bytes")
        c.tofu_ep_set_user(ep, <void *>self)
        self.address = data
        self.iface = iface
        self.ep = ep
        iface.num_eps += 1

    def __repr__(self):
        return (f"<Endpoint at {<uintptr_t><void *>self:#x}"
                f"{'' if self.ep != NULL else ', closed'}>")

    cdef int check(self) except -1:
        if self.ep == NULL:
            raise RuntimeError("the endpoint is closed")
        return self.iface.check()

    cdef c.tofu_rkey_t *key(self, RemoteKey rkey) except NULL:
        if rkey is None:
            raise TypeError("rkey must be a RemoteKey")
        rkey.check()
        return rkey.rkey

    cdef Completion new_completion(self, str call, RemoteKey rkey):
        return make_completion(call, self.iface, self, rkey)

    def put_short(self, data, uint64_t remote_addr, RemoteKey rkey):
        """Put a few bytes, at most ``max_put_short``.

        Source: cython/core/tofu.h, tofu_ep_put_short.
        """
        cdef Py_buffer view
        cdef c.tofu_rkey_t *key = self.key(rkey)
        cdef int status
        self.check()
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        if <size_t>view.len > self.iface.limits.max_put_short:
            status = c.TOFU_ERR_INVALID_PARAM
        else:
            status = c.tofu_ep_put_short(self.ep, view.buf, view.len,
                                         remote_addr, key)
        length = view.len
        PyBuffer_Release(&view)
        if status != c.TOFU_OK:
            fail("tofu_ep_put_short", status,
                 f"{length} bytes to {remote_addr:#x}")

    def put_bcopy(self, data, uint64_t remote_addr, RemoteKey rkey):
        """Put a copy of ``data``, at most ``max_put_bcopy`` bytes.

        Source: cython/core/tofu.h, tofu_ep_put_bcopy.
        """
        cdef Py_buffer view
        cdef pack_arg_t pack
        cdef c.tofu_rkey_t *key = self.key(rkey)
        cdef intptr_t status
        self.check()
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        if <size_t>view.len > self.iface.limits.max_put_bcopy:
            status = c.TOFU_ERR_INVALID_PARAM
        else:
            pack.data = view.buf
            pack.length = view.len
            status = c.tofu_ep_put_bcopy(self.ep, pack_copy, &pack, remote_addr,
                                         key)
        length = view.len
        PyBuffer_Release(&view)
        if status < 0:
            fail("tofu_ep_put_bcopy", status,
                 f"{length} bytes to {remote_addr:#x}")

    def put_zcopy(self, local, uint64_t remote_addr, RemoteKey rkey):
        """Put registered memory; the Completion means remotely written.

        Source: cython/core/tofu.h, tofu_ep_put_zcopy.
        """
        cdef c.tofu_rkey_t *key = self.key(rkey)
        cdef _Iov iov
        cdef Completion comp
        self.check()
        iov = _Iov(local, self.iface)
        comp = self.new_completion("tofu_ep_put_zcopy", rkey)
        iov.hold(comp)
        comp.started(c.tofu_ep_put_zcopy(self.ep, iov.iov, iov.count,
                                         remote_addr, key,
                                         &comp.completion.super))
        return comp

    def get_bcopy(self, size_t length, uint64_t remote_addr, RemoteKey rkey):
        """Get ``length`` bytes, at most ``max_get_bcopy``; the Completion's
        result is bytes.

        Source: cython/core/tofu.h, tofu_ep_get_bcopy.
        """
        cdef c.tofu_rkey_t *key = self.key(rkey)
        cdef Completion comp
        self.check()
        if length > self.iface.limits.max_get_bcopy:
            fail("tofu_ep_get_bcopy", c.TOFU_ERR_INVALID_PARAM,
                 f"{length} bytes, the limit is "
                 f"{self.iface.limits.max_get_bcopy}")
        data = PyBytes_FromStringAndSize(NULL, length)
        comp = self.new_completion("tofu_ep_get_bcopy", rkey)
        comp.data = data
        comp.started(c.tofu_ep_get_bcopy(self.ep, unpack_copy,
                                         PyBytes_AS_STRING(data), length,
                                         remote_addr, key,
                                         &comp.completion.super))
        return comp

    def get_zcopy(self, local, uint64_t remote_addr, RemoteKey rkey):
        """Get into registered, writable memory.

        Source: cython/core/tofu.h, tofu_ep_get_zcopy.
        """
        cdef c.tofu_rkey_t *key = self.key(rkey)
        cdef _Iov iov
        cdef Completion comp
        self.check()
        iov = _Iov(local, self.iface)
        for memory in iov.memories:
            if (<Memory>memory).read_only:
                raise ValueError(f"{memory!r} is registered read-only")
        comp = self.new_completion("tofu_ep_get_zcopy", rkey)
        iov.hold(comp)
        comp.started(c.tofu_ep_get_zcopy(self.ep, iov.iov, iov.count,
                                         remote_addr, key,
                                         &comp.completion.super))
        return comp

    def atomic_post(self, op, value, uint64_t remote_addr, RemoteKey rkey, *,
                    unsigned size=8):
        """Atomic ``AtomicOp`` on a remote word of ``size`` (4 or 8) bytes,
        aligned to it; the old value is not fetched.

        Source: cython/core/tofu.h, tofu_ep_atomic_post.
        """
        cdef c.tofu_rkey_t *key = self.key(rkey)
        cdef uint64_t word = operand(value, size)
        cdef int c_op = AtomicOp(op)
        cdef int status
        self.check()
        status = c.tofu_ep_atomic_post(self.ep, <c.tofu_atomic_op_t>c_op, size,
                                       word, remote_addr, key)
        if status != c.TOFU_OK:
            fail("tofu_ep_atomic_post", status,
                 f"{AtomicOp(op).name}{8 * size} at {remote_addr:#x}")

    def atomic_fetch(self, op, value, uint64_t remote_addr, RemoteKey rkey, *,
                     unsigned size=8):
        """As ``atomic_post``; the Completion's result is the old value.

        Source: cython/core/tofu.h, tofu_ep_atomic_fetch.
        """
        cdef c.tofu_rkey_t *key = self.key(rkey)
        cdef uint64_t word = operand(value, size)
        cdef int c_op = AtomicOp(op)
        cdef Completion comp
        self.check()
        comp = self.new_completion("tofu_ep_atomic_fetch", rkey)
        comp.word_size = size
        comp.started(c.tofu_ep_atomic_fetch(
            self.ep, <c.tofu_atomic_op_t>c_op, size, word, &comp.word,
            remote_addr, key, &comp.completion.super))
        return comp

    def atomic_cswap(self, compare, swap, uint64_t remote_addr, RemoteKey rkey,
                     *, unsigned size=8):
        """Atomic: write ``swap`` where ``compare`` stands; the Completion's
        result is the old value.

        Source: cython/core/tofu.h, tofu_ep_atomic_cswap.
        """
        cdef c.tofu_rkey_t *key = self.key(rkey)
        cdef uint64_t compare_word = operand(compare, size)
        cdef uint64_t swap_word = operand(swap, size)
        cdef Completion comp
        self.check()
        comp = self.new_completion("tofu_ep_atomic_cswap", rkey)
        comp.word_size = size
        comp.started(c.tofu_ep_atomic_cswap(
            self.ep, size, compare_word, swap_word, &comp.word, remote_addr,
            key, &comp.completion.super))
        return comp

    def am_short(self, uint8_t am_id, uint64_t header, payload=b""):
        """Send an active message: an 8-byte header and a payload, together at
        most ``max_am_short`` bytes.

        Source: cython/core/tofu.h, tofu_ep_am_short.
        """
        cdef Py_buffer view
        cdef int status
        self.check()
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        if (am_id >= c.TOFU_AM_ID_MAX
                or <size_t>view.len + 8 > self.iface.limits.max_am_short):
            status = c.TOFU_ERR_INVALID_PARAM
        else:
            status = c.tofu_ep_am_short(self.ep, am_id, header, view.buf,
                                        view.len)
        length = view.len
        PyBuffer_Release(&view)
        if status != c.TOFU_OK:
            fail("tofu_ep_am_short", status,
                 f"AM id {am_id}, {length} bytes of payload")

    def am_bcopy(self, uint8_t am_id, data):
        """Send a copy of ``data`` as an active message, at most
        ``max_am_bcopy`` bytes.

        Source: cython/core/tofu.h, tofu_ep_am_bcopy.
        """
        cdef Py_buffer view
        cdef pack_arg_t pack
        cdef intptr_t status
        self.check()
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        if (am_id >= c.TOFU_AM_ID_MAX
                or <size_t>view.len > self.iface.limits.max_am_bcopy):
            status = c.TOFU_ERR_INVALID_PARAM
        else:
            pack.data = view.buf
            pack.length = view.len
            status = c.tofu_ep_am_bcopy(self.ep, am_id, pack_copy, &pack)
        length = view.len
        PyBuffer_Release(&view)
        if status < 0:
            fail("tofu_ep_am_bcopy", status, f"AM id {am_id}, {length} bytes")

    def am_zcopy(self, uint8_t am_id, header, local):
        """Send ``header`` (at most ``max_am_hdr`` bytes) and registered memory
        as one active message of at most ``max_am_zcopy`` bytes.

        Source: cython/core/tofu.h, tofu_ep_am_zcopy.
        """
        cdef _Iov iov
        cdef Completion comp
        self.check()
        data = as_bytes(header)
        if am_id >= c.TOFU_AM_ID_MAX or len(data) > self.iface.limits.max_am_hdr:
            fail("tofu_ep_am_zcopy", c.TOFU_ERR_INVALID_PARAM,
                 f"AM id {am_id}, {len(data)} bytes of header")
        iov = _Iov(local, self.iface)
        comp = self.new_completion("tofu_ep_am_zcopy", None)
        iov.hold(comp)
        comp.started(c.tofu_ep_am_zcopy(self.ep, am_id, PyBytes_AS_STRING(data),
                                        len(data), iov.iov, iov.count,
                                        &comp.completion.super))
        return comp

    def flush(self, *, bint cancel=False):
        """Complete when all operations of this endpoint posted before have
        reached their target.

        Parameters
        ----------
        cancel : bool
            Drop what has not been sent; the endpoint can send no more.

        Returns
        -------
        Completion

        Raises ``TofuRetryError`` (progress and call again) and
        ``TofuOperationError`` when an operation failed since the last flush.

        Source: cython/core/tofu.h, tofu_ep_flush.
        """
        cdef Completion comp
        self.check()
        comp = self.new_completion("tofu_ep_flush", None)
        comp.started(c.tofu_ep_flush(
            self.ep, c.TOFU_FLUSH_CANCEL if cancel else 0,
            &comp.completion.super))
        return comp

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
        data = as_bytes(address)
        if not data:
            return False
        return bool(c.tofu_ep_is_connected(self.ep, PyBytes_AS_STRING(data),
                                           len(data)))

    def close(self):
        """Close the endpoint; harmless when repeated.

        Operations in flight go on and complete into the iface.

        Source: cython/core/tofu.h, tofu_ep_destroy.
        """
        cdef c.tofu_ep_t *ep = self.ep
        if ep == NULL:
            return
        self.check()
        self.ep = NULL
        c.tofu_ep_destroy(ep)
        self.iface.num_eps -= 1

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def __del__(self):
        if self.ep != NULL and self.iface.md.generation == fork_generation:
            warn_unclosed(self)

    def __dealloc__(self):
        # no_gc_clear keeps self.iface valid here, and the iface open.
        if self.ep != NULL and self.iface.md.generation == fork_generation:
            c.tofu_ep_destroy(self.ep)
            self.iface.num_eps -= 1
