# SPDX-License-Identifier: BSD-3-Clause
# MemoryDomain, Memory


@cython.no_gc_clear
cdef class MemoryDomain:
    """MemoryDomain(backend=None, *, tni=None, tnis=None, stripe_thresh=0, \
arena_chunk=0, kept_registrations=256)\n--\n\nOwns registered memory, which remote peers reach through it.

    Parameters
    ----------
    backend : Backend, optional
        None loads the one that ``UCT_TOFU_BACKEND`` decides.
    tni : int, optional
        Index into the usable TNIs of the one that is used first.  None: the
        process's rank on its node modulo their number, where the starter of a
        parallel program tells it in the environment, else 0.
    tnis : iterable of int, optional
        Indices of those that large transfers may use too, one at least.  None: all.
    stripe_thresh : int or math.inf
        Bytes from which on a transfer may use another TNI than the first, or
        several; 0 is the default, 256 KiB; infinity: never.
    arena_chunk : int
        Bytes of address space taken at a time for ``alloc``; 0 is the default:
        32 MiB, and each time twice as much as before, up to 16 GiB.
    kept_registrations : int
        How many NumPy arrays stay registered after a large ``Endpoint.put`` or
        ``get``, until they go (the longest unused give way); 0: none.  While it
        is registered, an array cannot be resized in place.

    Raises ``TofuError``, ``RuntimeError`` when no backend loads, ``TypeError`` and
    ``ValueError`` for arguments that can't be.  Enters the kernel.  May be used from
    any thread.

    Source: cython/core/tofu.h, tofu_md_open.
    """

    def __init__(self, Backend backend=None, *, tni=None, tnis=None,
                 stripe_thresh=0, arena_chunk=0,
                 kept_registrations=256):
        cdef:
            c.tofu_md_config_t config
            c.tofu_md_attr_t attr
            c.tofu_md_t *md = NULL
            Py_ssize_t kept = signed_whole(kept_registrations, "kept_registrations")
            int number, status
        if self.md != NULL:
            refuse(TofuCallerError, "MemoryDomain", "it is open already")
        if kept < 0:
            raise ValueError(f"kept_registrations must not be negative, but is {kept}")
        if backend is None:
            backend = Backend.load()
        c.tofu_md_config_default(&config)
        if tni is not None:
            config.tni = whole(tni, "tni", 0xffffffff)
        try:
            indices = () if tnis is None else iter(tnis)
        except TypeError:
            raise TypeError("tnis must be an iterable of integers, not "
                            f"{type(tnis).__name__}") from None
        for index in indices:
            number = signed_int(index, "an index in tnis")
            if not 0 <= number < 32:
                raise ValueError(f"TNI index {number}: 0 to 31 can be")
            config.tni_mask |= 1u << <unsigned>number
        if tnis is not None and config.tni_mask == 0:
            # to the core no index means all
            raise ValueError("tnis is empty; None means all")
        if isinstance(stripe_thresh, float) and stripe_thresh == math.inf:
            config.stripe_thresh = SIZE_MAX
        elif whole(stripe_thresh, "stripe_thresh") != 0:
            config.stripe_thresh = stripe_thresh
        if whole(arena_chunk, "arena_chunk") != 0:
            config.arena_chunk = arena_chunk
        with nogil:
            status = c.tofu_md_open(backend.backend, &config, &md)
        if status != c.TOFU_OK:
            fail("tofu_md_open", status, f"TNI {'any' if tni is None else tni} of {backend!r}")
        c.tofu_md_query(md, &attr)
        self.backend = backend
        self.rkey_size = attr.rkey_packed_size
        self.generation = fork_generation
        self.kept = _Kept(kept)
        self.md = md

    def __reduce__(self):
        raise TypeError("a MemoryDomain cannot be copied or pickled; "
                        "make another in the other process")

    def __repr__(self):
        return (f"<MemoryDomain on {self.backend!r}"
                f"{'' if self.md != NULL else ', closed'}>")

    cdef int check(self) except -1:
        if self.md == NULL:
            refuse(TofuClosedError, "MemoryDomain", "the memory domain is closed")
        return check_generation(self.generation, "the memory domain")

    def query(self):
        """Dict of limits and costs: sizes in bytes, times in seconds.

        The keys are the fields of ``tofu_md_attr_t``.

        Source: cython/core/tofu.h, tofu_md_query.
        """
        cdef c.tofu_md_attr_t attr
        self.check()
        c.tofu_md_query(self.md, &attr)
        return {
            "rkey_packed_size": attr.rkey_packed_size,
            "max_alloc": attr.max_alloc,
            "max_reg": attr.max_reg,
            "reg_overhead": attr.reg_overhead,
            "reg_growth": attr.reg_growth,
            "num_registrations": attr.num_registrations,
        }

    def alloc(self, length, *, bint read_only=False):
        """Allocate zeroed, registered memory that peers reach fastest.

        Parameters
        ----------
        length : int
            Bytes; the memory takes whole pages.
        read_only : bool
            Peers only read it.

        Returns
        -------
        Memory

        Raises ``TofuError``.  Enters the kernel.

        Source: cython/core/tofu.h, tofu_mem_alloc.
        """
        cdef:
            Memory mem = Memory.__new__(Memory)
            size_t wanted = whole(length, "length"), size = wanted
            unsigned flags = c.TOFU_MEM_READ_ONLY if read_only else 0
            c.tofu_md_t *md
            c.tofu_mem_t *memh = NULL
            void *start = NULL
            int status
        self.check()
        md = self.md
        self.num_memories += 1          # keeps the md open meanwhile
        with nogil:
            status = c.tofu_mem_alloc(md, &size, flags, &start, &memh)
        if status != c.TOFU_OK:
            self.num_memories -= 1
            fail("tofu_mem_alloc", status, f"{length} bytes")
        mem.md = self
        mem.allocated = True
        mem.read_only = read_only
        mem.start = start
        mem.size = wanted
        mem.memh = memh
        return mem

    def reg(self, buffer, *, bint read_only=False):
        """Register the memory of a buffer.

        Parameters
        ----------
        buffer : object with a contiguous buffer
            Writable unless ``read_only``; not empty.  Held, and not resizable,
            until the ``Memory`` is closed and all views of it are gone.
        read_only : bool
            This process and its peers only read it.

        Returns
        -------
        Memory

        Raises ``TofuBufferError`` when the buffer does not qualify, ``TofuError``.
        May enter the kernel.

        Source: cython/core/tofu.h, tofu_mem_reg.
        """
        cdef:
            Memory mem = Memory.__new__(Memory)
            unsigned flags = c.TOFU_MEM_READ_ONLY if read_only else 0
            c.tofu_md_t *md
            c.tofu_mem_t *memh = NULL
            int status
        self.check()
        md = self.md
        acquire(buffer, &mem.view, not read_only, "MemoryDomain.reg")
        self.num_memories += 1
        with nogil:
            status = c.tofu_mem_reg(md, mem.view.buf, mem.view.len, flags,
                                    &memh)
        if status != c.TOFU_OK:
            self.num_memories -= 1
            detail = f"{mem.view.len} bytes at {<uintptr_t>mem.view.buf:#x}"
            PyBuffer_Release(&mem.view)
            fail("tofu_mem_reg", status, detail)
        mem.md = self
        mem.read_only = read_only
        mem.start = mem.view.buf
        mem.size = mem.view.len
        mem.memh = memh
        return mem

    def close(self):
        """Close the domain; harmless when repeated.  Enters the kernel.

        Raises ``TofuInUseError`` while an Iface or Memory of it is open.

        Source: cython/core/tofu.h, tofu_md_close.
        """
        cdef c.tofu_md_t *md = self.md
        if md == NULL:
            return
        self.check()
        if self.num_ifaces or self.num_memories:
            refuse(TofuInUseError, "MemoryDomain.close",
                   f"the memory domain still has {self.num_ifaces} Iface and "
                   f"{self.num_memories} Memory open; close them first")
        self.kept.clear()
        self.md = NULL
        with nogil:
            c.tofu_md_close(md)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        end_block(self.close, exc)

    def __del__(self):
        if self.md != NULL and self.generation == fork_generation:
            warn_unclosed(self)

    def __dealloc__(self):
        # no_gc_clear keeps the table; without its md nothing in it is valid
        if self.kept is not None:
            self.kept.clear()
        if self.md != NULL and self.generation == fork_generation:
            c.tofu_md_close(self.md)


@cython.no_gc_clear
cdef class Memory:
    """Registered memory: made by ``MemoryDomain.alloc`` or ``.reg``.

    It has a buffer of its own (``memoryview(memory)``,
    ``numpy.frombuffer(memory)``), which is the memory itself.  While there are such
    views, allocated memory cannot be closed, and the buffer behind registered memory
    stays held, also when that is closed.  ``numpy.ndarray(buffer=memory)`` is not one: NumPy
    gives its view back at once, and the array outlives the memory; use ``array``.

    Source: cython/core/tofu.h, tofu_mem_t.
    """

    def __init__(self):
        raise TypeError("use MemoryDomain.alloc() or MemoryDomain.reg()")

    def __reduce__(self):
        raise TypeError("a Memory cannot be copied or pickled; "
                        "send the bytes of export()")

    def __repr__(self):
        if self.memh == NULL:
            return "<Memory, closed>"
        kind = "allocated" if self.allocated else "registered"
        return f"<Memory {kind}, {self.size} bytes at {<uintptr_t>self.start:#x}>"

    cdef int check(self) except -1:
        if self.memh == NULL:
            refuse(TofuClosedError, "Memory", "the memory is closed")
        return self.md.check()

    @property
    def address(self):
        """int : address of the first byte in this process; peers add offsets.

        Source: cython/core/tofu.h, tofu_mem_query.
        """
        self.check()
        return <uintptr_t>self.start

    def __len__(self):
        self.check()
        return self.size

    def pack_rkey(self):
        """bytes : what a peer needs to reach this memory, for ``RemoteKey``.

        Source: cython/core/tofu.h, tofu_mkey_pack.
        """
        self.check()
        data = PyBytes_FromStringAndSize(NULL, self.md.rkey_size)
        c.tofu_mkey_pack(self.memh, PyBytes_AS_STRING(data))
        return data

    def export(self):
        """bytes : address, length and key, for a peer's ``RemoteMemory``.

        To be sent to the peer by whatever means there is.  Valid until this
        memory is closed.

        Source: cython/core/tofu.h, tofu_mkey_pack.
        """
        return export_memory(self)

    def array(self, dtype="uint8", shape=None, *, offset=0):
        """The memory as a NumPy array, without a copy.

        Parameters
        ----------
        dtype : numpy.dtype or what makes one
        shape : int or sequence of int, optional
            In elements; None: as many as fit behind ``offset``.
        offset : int
            Of the first element, bytes.

        Returns
        -------
        numpy.ndarray
            A view, C-contiguous; holds the memory as every view does.

        Raises ``TofuRangeError`` when it is not inside the memory,
        ``TofuDtypeError`` for elements that are Python objects.

        Source: NumPy, numpy.ndarray.
        """
        import numpy
        self.check()
        kind = numpy.dtype(dtype)
        if kind.hasobject:
            refuse(TofuDtypeError, "Memory.array", f"elements of {kind} are "
                   "Python objects, which mean nothing in another process")
        offset = integer(offset, "offset")
        if shape is None:
            shape = max(self.size - offset, 0) // max(kind.itemsize, 1)
        try:
            shape = (operator.index(shape),)
        except TypeError:
            try:
                lengths = list(shape)
            except TypeError:
                raise TypeError("shape must be an integer or a sequence of integers, "
                                f"not {type(shape).__name__}") from None
            shape = tuple([integer(length, "a length in shape") for length in lengths])
        count = 1
        for length in shape:
            count *= length
        if (offset < 0 or any(length < 0 for length in shape)
                or offset + count * kind.itemsize > self.size):
            refuse(TofuRangeError, "Memory.array",
                   f"shape {shape} of {kind} at offset {shown(offset)} is not inside "
                   f"{self!r}")
        # numpy.ndarray(buffer=...) would not keep a view of the memory
        return numpy.frombuffer(self, numpy.uint8)[
            offset:offset + count * kind.itemsize].view(kind).reshape(shape)

    def __getbuffer__(self, Py_buffer *view, int flags):
        self.check()
        # Own read-only memory may be filled by this process; a registered
        # buffer is as writable as its owner made it.
        PyBuffer_FillInfo(view, self, self.start, self.size,
                          0 if self.allocated else self.view.readonly, flags)
        self.num_exports += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.num_exports -= 1
        if self.num_exports == 0 and self.memh == NULL and not self.allocated:
            PyBuffer_Release(&self.view)        # closed before its last view went

    def close(self):
        """Free or deregister; harmless when repeated.  May enter the kernel.

        Raises ``TofuInUseError`` while operations of this process use it,
        ``TofuBufferError`` while views of allocated memory exist, ``TofuError``.
        A peer that uses its key afterwards gets an error.

        Source: cython/core/tofu.h, tofu_mem_free, tofu_mem_dereg.
        """
        cdef:
            c.tofu_mem_t *memh = self.memh
            bint allocated = self.allocated
            int status
        if memh == NULL:
            return
        self.check()
        if self.num_operations:
            refuse(TofuInUseError, "Memory.close",
                   f"{self!r} is used by {self.num_operations} operations in "
                   "flight; complete them first")
        if allocated and self.num_exports:
            refuse(TofuBufferError, "Memory.close",
                   f"{self!r} has {self.num_exports} views; delete the arrays and "
                   "memoryviews of it first")
        self.memh = NULL
        with nogil:
            if allocated:
                status = c.tofu_mem_free(memh)
            else:
                status = c.tofu_mem_dereg(memh)
        if status != c.TOFU_OK:
            self.memh = memh
            fail("tofu_mem_free" if allocated else "tofu_mem_dereg", status,
                 repr(self))
        self.md.num_memories -= 1
        if not allocated and self.num_exports == 0:
            PyBuffer_Release(&self.view)        # else: it is what the views show

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        end_block(self.close, exc)

    def __del__(self):
        if self.memh != NULL and self.md.generation == fork_generation:
            warn_unclosed(self)

    def __dealloc__(self):
        # no_gc_clear keeps self.md valid here, and the domain open.
        if self.memh == NULL:
            return
        if self.md.generation == fork_generation:
            if self.allocated:
                c.tofu_mem_free(self.memh)
            else:
                c.tofu_mem_dereg(self.memh)
            self.md.num_memories -= 1
        if not self.allocated:
            PyBuffer_Release(&self.view)
