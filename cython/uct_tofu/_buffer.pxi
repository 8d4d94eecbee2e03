# SPDX-License-Identifier: BSD-3-Clause
# Buffers of the user's: getting at them, and saying why not

cdef object ndarray = None      # numpy.ndarray once NumPy is loaded


cdef bint is_ndarray(obj):
    """Without importing NumPy: who has an array has loaded it."""
    global ndarray
    if ndarray is None:
        module = sys.modules.get("numpy")
        if module is None:
            return False
        ndarray = getattr(module, "ndarray", None)
        if ndarray is None:
            return False
    return type(obj) is ndarray or isinstance(obj, ndarray)


cdef int acquire(obj, Py_buffer *view, bint writable, str call,
                 bint is_plain=False) except -1:
    """Export a C- or F-contiguous buffer of elements of any plain type.

    is_plain: an array whose elements are known to be that."""
    cdef int flags = PyBUF_ANY_CONTIGUOUS | (PyBUF_WRITABLE if writable else 0)
    if not is_plain and type(obj) is not bytes and type(obj) is not Memory:
        if is_ndarray(obj):
            if obj.dtype.hasobject:
                raise TofuDtypeError(call, c.TOFU_ERR_INVALID_PARAM,
                                     f"{describe(obj)} holds Python objects, "
                                     "which mean nothing in another process")
    try:
        PyObject_GetBuffer(obj, view, flags)
    except TofuError:
        raise                   # a Memory that is closed
    except (BufferError, ValueError, TypeError) as error:
        explain(obj, writable, call, error)
    if isinstance(obj, memoryview) and "O" in obj.format:
        PyBuffer_Release(view)
        raise TofuDtypeError(call, c.TOFU_ERR_INVALID_PARAM,
                             f"{describe(obj)} holds Python objects, which mean "
                             "nothing in another process")
    return 0


cdef str describe(obj):
    """A buffer in words, for messages."""
    if is_ndarray(obj):
        return (f"{obj.dtype} array of shape {obj.shape} and strides "
                f"{obj.strides} bytes")
    if isinstance(obj, memoryview):
        try:
            return (f"memoryview of shape {obj.shape}, format {obj.format!r} "
                    f"and strides {obj.strides} bytes")
        except ValueError:
            return "a released memoryview"
    return f"{type(obj).__name__}"


cdef int explain(obj, bint writable, str call, error) except -1:
    """Raise what says why a buffer could not be exported."""
    cdef bint readonly, contiguous
    cdef int status = c.TOFU_ERR_INVALID_PARAM
    if is_ndarray(obj):
        contiguous = obj.flags.forc
        readonly = not obj.flags.writeable
    else:
        try:
            with memoryview(obj) as view:
                contiguous = view.contiguous
                readonly = view.readonly
        except TypeError:
            raise TypeError(f"{call}: a buffer is needed (bytes, bytearray, "
                            "NumPy array, mmap, Memory, ...), not "
                            f"{type(obj).__name__}") from None
        except ValueError as other:     # released, or its owner is closed
            raise TofuBufferError(call, status,
                                  f"{describe(obj)}: {other}") from None
    if not contiguous:
        raise TofuContiguityError(
            call, status, f"{describe(obj)} has gaps; copy it "
            "(numpy.ascontiguousarray), or register what it is part of and pass "
            "a list of (Memory, offset, length)") from None
    if writable and readonly:
        raise TofuReadOnlyError(call, status, f"{describe(obj)} is read-only, "
                                "and the operation writes into it") from None
    if is_ndarray(obj):
        raise TofuDtypeError(call, status,
                             f"{describe(obj)}: {error}") from None
    raise TofuBufferError(call, status, f"{describe(obj)}: {error}") from None


cdef object owner_of(obj):
    """The object whose memory a buffer is: at the end of arrays and views."""
    cdef int i
    for i in range(16):
        if type(obj) is Memory:
            return obj
        if isinstance(obj, memoryview):
            obj = obj.obj
        elif is_ndarray(obj) and obj.base is not None:
            obj = obj.base
        else:
            return obj
    return None


# ------------------------------------------------------------- registrations


cdef class _Forget:
    """Called when a registered array goes, before its memory does."""

    cdef _Kept kept
    cdef object key

    def __call__(self, reference):
        if self.kept is None or self.kept.entries is None:
            return                      # collected together with the array
        entry = self.kept.entries.get(self.key)
        if entry is not None and (<_Registration>entry).owner is reference:
            self.kept.drop(self.key)


@cython.final
cdef class _Kept:
    """The registrations of arrays that were used, at most so many.

    One that is there is for this array and no earlier one at its address: _Forget
    was called before that was freed."""

    def __cinit__(self, most):
        self.entries = {}
        self.most = most

    cdef _Registration find(self, array):
        """The registration that is kept for an object, or None."""
        cdef _Registration found
        if <void *>array == self.last_array:
            return self.last
        found = <_Registration>self.entries.get(PyLong_FromVoidPtr(<void *>array))
        if found is not None:
            self.last = found
            self.last_array = <void *>array
        return found

    cdef int use(self, array, _Registration registration) except -1:
        """It becomes the youngest, when one may have to go soon."""
        if len(self.entries) * 2 > self.most:
            key = PyLong_FromVoidPtr(<void *>array)
            if self.entries.pop(key, None) is not None:
                self.entries[key] = registration
        return 0

    cdef int add(self, array, _Registration registration) except -1:
        cdef _Forget forget = _Forget.__new__(_Forget)
        forget.kept = self
        forget.key = PyLong_FromVoidPtr(<void *>array)
        registration.owner = weakref.ref(array, forget)
        self.drop(forget.key)
        self.entries[forget.key] = registration
        while len(self.entries) > self.most:
            self.drop(next(iter(self.entries)))
        return 0

    cdef int drop(self, key) except -1:
        self.last_array = NULL
        self.last = None
        self.entries.pop(key, None)
        return 0

    cdef int clear(self) except -1:
        self.last_array = NULL
        self.last = None
        if self.entries is not None:    # not yet collected
            self.entries.clear()
        return 0


@cython.final
cdef class _Registration:
    def __dealloc__(self):
        # The md is open: it drops those that it keeps before it closes, and an
        # operation that uses one keeps the iface, which keeps the md.
        if self.memh != NULL and self.generation == fork_generation:
            c.tofu_mem_dereg(self.memh)


cdef _Registration register_range(MemoryDomain md, char *start, size_t length,
                                  bint read_only):
    """Register memory of the user's for as long as the result lives."""
    cdef _Registration self = _Registration.__new__(_Registration)
    cdef unsigned flags = c.TOFU_MEM_READ_ONLY if read_only else 0
    cdef c.tofu_md_t *c_md = md.md
    cdef c.tofu_mem_t *memh = NULL
    cdef int status
    md.num_memories += 1                # keeps the md open meanwhile
    with nogil:
        status = c.tofu_mem_reg(c_md, start, length, flags, &memh)
    md.num_memories -= 1
    if status != c.TOFU_OK:
        fail("tofu_mem_reg", status, f"{length} bytes at {<uintptr_t>start:#x}")
    self.memh = memh
    self.start = start
    self.size = length
    self.read_only = read_only
    self.generation = fork_generation
    return self


cdef bint covers(_Registration self, char *start, size_t length, bint writable):
    """It is one for these bytes."""
    return not (start < self.start or start + length > self.start + self.size
                or (writable and self.read_only))


cdef _Registration register_array(MemoryDomain md, array, char *start,
                                  size_t length, bint writable):
    """Register, for longer than the operation, the memory that an array owns.

    None: it owns none.

    NumPy never moves or frees that memory while a weak reference to the array
    exists, but by way of the array's end, of which the reference tells.
    """
    cdef _Registration self
    cdef Py_buffer view
    cdef char *whole
    cdef size_t size
    cdef bint read_only
    if array.base is not None or not array.flags.owndata:
        return None
    try:
        PyObject_GetBuffer(array, &view, PyBUF_ANY_CONTIGUOUS)
    except (BufferError, ValueError):
        return None
    whole = <char *>view.buf
    size = view.len
    read_only = view.readonly and not writable
    PyBuffer_Release(&view)
    if start < whole or start + length > whole + size:
        return None
    self = register_range(md, whole, size, read_only)
    md.kept.add(array, self)
    return self


cdef int attach(Request request, obj, MemoryDomain md, _Registration registration,
                bint writable) except -1:
    """Find or make the registration for the request's local buffer.

    registration: the one that is kept for obj itself, or None."""
    cdef Memory memory
    if registration is not None:
        if covers(registration, request.start, request.length, writable):
            md.kept.use(obj, registration)
        else:
            registration = None
    if registration is None:
        owner = owner_of(obj)
        if type(owner) is Memory:
            memory = <Memory>owner
            if (memory.md is md and memory.memh != NULL
                    and not (writable and memory.read_only)):
                request.memory = memory
                request.iov.memh = memory.memh
                return 0
        if md.kept.most > 0 and is_ndarray(owner):
            registration = md.kept.find(owner)
            if (registration is not None
                    and covers(registration, request.start, request.length, writable)):
                md.kept.use(owner, registration)
            else:
                registration = register_array(md, owner, request.start,
                                              request.length, writable)
    if registration is None:
        registration = register_range(md, request.start, request.length,
                                      request.view.readonly)
    request.registration = registration
    request.iov.memh = registration.memh
    return 0
