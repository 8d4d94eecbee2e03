# SPDX-License-Identifier: BSD-3-Clause
# RemoteKey, RemoteMemory


cdef class RemoteKey:
    """RemoteKey(packed)\n--\n\nA peer's memory, from the bytes of its ``Memory.pack_rkey``.

    Parameters
    ----------
    packed : bytes-like

    Raises ``TofuKeyError`` when the bytes are not such a key or damaged.

    Source: cython/core/tofu.h, tofu_rkey_unpack.
    """

    def __init__(self, packed):
        cdef int status
        if self.rkey != NULL:
            refuse(TofuCallerError, "RemoteKey", "it is in use already")
        data = as_bytes(packed, "packed")
        # To the core a size of 0 means "unknown", here it means no bytes.
        if not data:
            status = c.TOFU_ERR_INVALID_PARAM
        else:
            status = c.tofu_rkey_unpack(PyBytes_AS_STRING(data), len(data),
                                        &self.rkey)
        if status != c.TOFU_OK:
            self.rkey = NULL
            if status == c.TOFU_ERR_INVALID_PARAM:
                refuse(TofuKeyError, "tofu_rkey_unpack", f"{len(data)} bytes that "
                       "are damaged or not a key of this transport")
            fail("tofu_rkey_unpack", status, f"{len(data)} bytes")
        self.generation = fork_generation

    def __reduce__(self):
        raise TypeError("a RemoteKey cannot be copied or pickled; "
                        "send the bytes of Memory.pack_rkey()")

    cdef int check(self) except -1:
        if self.rkey == NULL:
            refuse(TofuClosedError, "RemoteKey", "the remote key is closed")
        return check_generation(self.generation, "the remote key")

    def close(self):
        """Release the key; harmless when repeated.

        Raises ``TofuInUseError`` while operations use it.

        Source: cython/core/tofu.h, tofu_rkey_release.
        """
        if self.rkey == NULL:
            return
        self.check()
        if self.num_operations:
            refuse(TofuInUseError, "RemoteKey.close",
                   f"the remote key is used by {self.num_operations} operations "
                   "in flight; complete them first")
        c.tofu_rkey_release(self.rkey)
        self.rkey = NULL

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        end_block(self.close, exc)

    def __dealloc__(self):
        if self.rkey != NULL and self.generation == fork_generation:
            c.tofu_rkey_release(self.rkey)


# What Memory.export makes: magic, checksum of the rest, flags, network, address,
# length; then the packed key.
cdef object EXPORT = struct.Struct("<4sIIQQQ")
cdef bytes EXPORT_MAGIC = b"uTm1"


cdef bytes export_memory(Memory memory):
    key = memory.pack_rkey()
    tail = EXPORT.pack(EXPORT_MAGIC, 0, memory.read_only,
                       memory.md.backend.network_id, <uintptr_t>memory.start,
                       memory.size)[8:] + key
    return EXPORT_MAGIC + struct.pack("<I", zlib.crc32(tail)) + tail


cdef class RemoteMemory:
    """RemoteMemory(exported)\n--\n\nA peer's memory: the target of ``Endpoint.put``, ``get`` and atomics.

    Parameters
    ----------
    exported : bytes-like
        What the peer's ``Memory.export`` returned.

    ``len(remote)`` is its size in bytes; ``remote[a:b]`` is the part from byte a
    to byte b, ``remote.at(index, dtype)`` a part counted in elements; parts share
    the key.  May be used with any endpoint to the process that exported it.

    Attributes: ``key`` (RemoteKey), ``read_only`` (bool: peers only read it).

    Raises ``TofuKeyError`` when the bytes are damaged or not from ``export``.

    Source: cython/core/tofu.h, tofu_rkey_unpack.
    """

    def __init__(self, exported):
        if self.key is not None:
            refuse(TofuCallerError, "RemoteMemory", "it is in use already")
        data = as_bytes(exported, "exported")
        if len(data) <= EXPORT.size or data[:4] != EXPORT_MAGIC:
            refuse(TofuKeyError, "RemoteMemory",
                   f"these {len(data)} bytes are not from Memory.export")
        _, checksum, flags, network, start, length = EXPORT.unpack_from(data)
        if checksum != zlib.crc32(data[8:]):
            refuse(TofuKeyError, "RemoteMemory",
                   f"these {len(data)} bytes are damaged (checksum)")
        self.key = RemoteKey(data[EXPORT.size:])
        self.read_only = flags & 1
        self.network = network
        self.start = start
        self.length = length

    def __reduce__(self):
        raise TypeError("a RemoteMemory cannot be copied or pickled; "
                        "send the bytes of Memory.export()")

    def __repr__(self):
        return (f"<RemoteMemory, {self.length} bytes at {self.start:#x}"
                f"{', read-only' if self.read_only else ''}"
                f"{', closed' if self.key is None or self.key.rkey == NULL else ''}>")

    def __len__(self):
        return self.length

    @property
    def address(self):
        """int : address of the first byte in the peer's process.

        Source: cython/core/tofu.h, tofu_mem_query.
        """
        return self.start

    @property
    def size(self):
        """int : bytes.

        Source: cython/core/tofu.h, tofu_mem_query.
        """
        return self.length

    cdef RemoteMemory part(self, uint64_t offset, uint64_t length):
        cdef RemoteMemory other = RemoteMemory.__new__(RemoteMemory)
        other.key = self.key
        other.read_only = self.read_only
        other.network = self.network
        other.start = self.start + offset
        other.length = length
        return other

    def __getitem__(self, index):
        if not isinstance(index, slice):
            raise TypeError("remote memory has slices, in bytes: remote[a:b]; "
                            "see at() for elements")
        first, last, step = index.indices(self.length)
        for bound in (index.start, index.stop):
            if bound is not None and not -<object>self.length <= bound <= self.length:
                refuse(TofuRangeError, "RemoteMemory",
                       f"bytes {index.start} to {index.stop} are not inside "
                       f"{self!r}")
        if step != 1:
            raise ValueError("remote memory has no slices with a step")
        return self.part(first, max(last - first, 0))

    def at(self, index, dtype, count=1):
        """The part that holds ``count`` elements from the given one on.

        Parameters
        ----------
        index : int
            Of the first element; not negative.
        dtype : numpy.dtype or what makes one
        count : int
            Elements.

        Returns
        -------
        RemoteMemory

        Raises ``TofuRangeError``, ``TofuDtypeError`` for elements that are Python
        objects.

        Source: NumPy, numpy.dtype.
        """
        import numpy
        kind = numpy.dtype(dtype)
        if kind.hasobject:
            refuse(TofuDtypeError, "RemoteMemory.at", f"elements of {kind} are "
                   "Python objects, which mean nothing in another process")
        itemsize = kind.itemsize
        index = integer(index, "index")
        count = integer(count, "count")
        if (index < 0 or count < 0
                or (index + count) * itemsize > self.length):
            refuse(TofuRangeError, "RemoteMemory.at",
                   f"{shown(count)} elements of {itemsize} bytes from element "
                   f"{shown(index)} on are not inside {self!r}")
        return self.part(index * itemsize, count * itemsize)

    cdef uint64_t locate(self, Iface iface, str call, object offset,
                         size_t length, bint write) except? 0:
        """The address of an operation's range, which is checked here.

        offset: an int, or None."""
        cdef uint64_t first = 0
        if self.key is None:
            refuse(TofuClosedError, call, "the remote memory was never opened")
        if self.key.rkey == NULL or self.key.generation != fork_generation:
            self.key.check()
        if offset is not None:
            if not 0 <= offset <= self.length:
                self.refuse_range(call, offset, length)
            first = offset
        if length > self.length - first:
            self.refuse_range(call, offset, length)
        if write and self.read_only:
            refuse(TofuReadOnlyError, call, f"{self!r} was exported to be read")
        if self.network != iface.network:
            refuse(TofuKeyError, call, f"{self!r} is in another network than "
                   f"{iface!r} (on the emulator: another host, user or job)")
        return self.start + first

    cdef int refuse_range(self, str call, offset, size_t length) except -1:
        return refuse(TofuRangeError, call,
                      f"{length} bytes at offset {shown(offset or 0)} are not inside "
                      f"{self!r}")

    def close(self):
        """Release the key, also of parts; harmless when repeated.

        Raises ``TofuInUseError`` while operations use it.

        Source: cython/core/tofu.h, tofu_rkey_release.
        """
        if self.key is not None:
            self.key.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        end_block(self.close, exc)
