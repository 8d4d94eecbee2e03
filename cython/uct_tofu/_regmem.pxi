# SPDX-License-Identifier: BSD-3-Clause
# RegisteredMemory, and which buffers can be registered


cdef int get_contiguous(buffer, str name, Py_buffer *view, bint read_only) except -1:
    """A C- or F-contiguous buffer of any item type; BufferError says what is
    wrong with another."""
    cdef int flags = PyBUF_ANY_CONTIGUOUS
    if not read_only:
        flags |= PyBUF_WRITABLE
    if getattr(getattr(buffer, "dtype", None), "hasobject", False):
        raise TypeError("an array of Python objects cannot be registered: its "
                        "memory holds pointers, not values")
    try:
        PyObject_GetBuffer(buffer, view, flags)
    except (BufferError, ValueError) as error:
        raise BufferError(unsuitable(buffer, read_only) or str(error)) from None
    except TypeError:
        raise TypeError(f"{name} must be a buffer (bytes, bytearray, NumPy array, "
                        f"mmap, ...), not {type(buffer).__name__}") from None
    return 0


cdef object unsuitable(buffer, bint read_only):
    """Why the buffer does not qualify; "" when it is not known."""
    try:
        view = memoryview(buffer)
    except (BufferError, TypeError, ValueError):
        view = buffer  # NumPy's types that have no format code
    shape = getattr(view, "shape", None)
    strides = getattr(view, "strides", None)
    what = type(buffer).__name__
    contiguous = getattr(view, "contiguous", None)
    if contiguous is None:
        contiguous = getattr(getattr(view, "flags", None), "forc", True)
    if not contiguous:
        return (f"the {what} object is not contiguous (shape {shape}, strides {strides} "
                "bytes): register the array that it is a view of, or a "
                "contiguous copy")
    if not read_only and getattr(view, "readonly", False):
        return (f"the {what} object is read-only: register it with read_only=True, or "
                "take a writable buffer")
    return ""


@cython.no_gc_clear
cdef class RegisteredMemory:
    """Memory that a TNI may read and write, made by ``Vcq.reg_mem``.

    Holds the buffer until ``dereg`` or the end of a ``with`` block; the buffer
    cannot be resized meanwhile.  The VCQ cannot be freed before it.  May be used
    from any thread.

    Source: uTofu user's guide 3.6.
    """

    def __init__(self):
        raise TypeError("use Vcq.reg_mem()")

    def __repr__(self):
        if not self.is_open:
            return "<RegisteredMemory, deregistered>"
        return (f"<RegisteredMemory STADD {self.stadd_value:#x}, "
                f"{self.view.len} bytes>")

    def __reduce__(self):
        raise TypeError("a RegisteredMemory cannot be copied or pickled; send "
                        "its stadd")

    cdef int check(self) except -1:
        if not self.is_open:
            raise RuntimeError("the memory was deregistered")
        return 0

    @property
    def stadd(self):
        """int : STADD of the first byte; ``stadd_at`` adds offsets.

        Source: uTofu user's guide 3.6.1, utofu_reg_mem.
        """
        self.check()
        return self.stadd_value

    @property
    def address(self):
        """int : address of the first byte in this process.

        Source: Python's buffer protocol.
        """
        self.check()
        return <uintptr_t>self.view.buf

    @property
    def length(self):
        """int : bytes.

        Source: Python's buffer protocol.
        """
        self.check()
        return self.view.len

    def stadd_at(self, offset, length=0):
        """The STADD of a part of the memory.

        Parameters
        ----------
        offset : int
            Bytes from the start.
        length : int
            Bytes that the operation will touch from there on.

        Returns
        -------
        int

        Raises ``ValueError`` when the part is not inside the memory,
        ``RuntimeError`` when it was deregistered.

        Source: uTofu user's guide 3.6.
        """
        offset = integer(offset, "offset")
        length = integer(length, "length")
        self.check()
        if offset < 0 or length < 0 or offset + length > self.view.len:
            raise ValueError(
                f"stadd_at: {shown(length)} bytes from offset {shown(offset)} are not "
                f"inside the {self.view.len} bytes of {self!r}")
        return self.stadd_value + offset

    def dereg(self):
        """Deregister and let go of the buffer; harmless when repeated.

        Operations that still use the STADD fail.  May enter the kernel, without
        the GIL.  Raises ``UtofuError``; the memory is then still registered.

        Source: uTofu user's guide 3.6.1, utofu_dereg_mem.
        """
        cdef int ret
        cdef Vcq vcq = self.vcq
        if not self.is_open:
            return
        vcq.enter()
        if not self.is_open:  # by another thread, meanwhile
            vcq.leave()
            return
        with nogil:
            ret = vcq.fn.dereg_mem(vcq.hdl, self.stadd_value, 0)
        if ret == c.UTOFU_SUCCESS:
            self.is_open = False
            vcq.num_registered -= 1
        vcq.leave()
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_dereg_mem", ret,
                 f"STADD {self.stadd_value:#x} of {vcq.describe()}")
        PyBuffer_Release(&self.view)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        end_block(self.dereg, exc)

    def __del__(self):
        if self.is_open and self.vcq.generation == fork_generation:
            warn(f"{self!r} was not deregistered", ResourceWarning, stacklevel=2)

    def __dealloc__(self):
        # no_gc_clear keeps self.vcq valid here, and the VCQ with it.
        if self.is_open:
            if self.vcq.generation == fork_generation:
                self.vcq.lock.acquire()
                self.vcq.fn.dereg_mem(self.vcq.hdl, self.stadd_value, 0)
                self.vcq.num_registered -= 1
                self.vcq.lock.release()
            PyBuffer_Release(&self.view)
