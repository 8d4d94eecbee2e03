# SPDX-License-Identifier: BSD-3-Clause
# Vbg and its settings


class VbgSetting(collections.namedtuple(
        "VbgSetting", "vbg_id src_lcl_vbg_id src_rmt_vbg_id dst_lcl_vbg_id "
        "dst_rmt_vbg_id dst_path_coords", defaults=(None,) * 5)):
    """Wiring of one gate: from where it gets its signal (of the same TNI) and
    its packet (of any node), and where it sends them.

    VBG IDs are int; None is none.  ``dst_path_coords`` are A, B, C of the path of
    the packet; None lets the library choose.

    Source: uTofu user's guide 3.4.4.1.
    """

    __slots__ = ()


cdef int read_setting(item, c.utofu_vbg_setting *setting) except -1:
    cdef uint64_t ids[5]
    item = VbgSetting(*item)
    for i in range(5):
        if item[i] is None:
            ids[i] = c.UTOFU_VBG_ID_NULL
        else:
            ids[i] = whole(item[i], VbgSetting._fields[i])
    setting.vbg_id = ids[0]
    setting.src_lcl_vbg_id = ids[1]
    setting.src_rmt_vbg_id = ids[2]
    setting.dst_lcl_vbg_id = ids[3]
    setting.dst_rmt_vbg_id = ids[4]
    if item.dst_path_coords is None:
        for i in range(3):
            setting.dst_path_coords[i] = c.UTOFU_PATH_COORD_NULL
    else:
        read_coords(item.dst_path_coords, "dst_path_coords",
                    setting.dst_path_coords, 3, "utofu_set_vbg")
    return 0


cdef int started(Vbg self, call, int ret) except -1:
    if ret == c.UTOFU_ERR_BUSY:
        fail(call, ret, f"one is under way; poll it first, {self.describe()}")
    if ret != c.UTOFU_SUCCESS:
        fail(call, ret, self.describe())
    return 0


cdef int completed(Vbg self, call, int ret) except -1:
    if ret == c.UTOFU_ERR_BUSY:
        fail(call, ret, f"none of this kind was started, {self.describe()}")
    if ret != c.UTOFU_SUCCESS:
        fail(call, ret, self.describe())
    return 0


cdef int wait_run(Vbg self, wait *w, wait_kind kind, call, timeout) except? 0:
    """Poll the circuit without the GIL; TimeoutError names it."""
    w.fn = self.fn
    w.kind = kind
    w.nothing = c.UTOFU_ERR_NOT_COMPLETED
    self.check()
    w.mutex = &self.lock.mutex
    w.vbg_id = self.memory[0]
    self.num_waits += 1
    try:
        return wait_for(w, timeout)
    except TimeoutError:
        raise TimeoutError(f"{call}: not complete after {timeout} s, "
                           f"{self.describe()}") from None
    finally:
        self.num_waits -= 1


cdef bytearray room(Vbg self):
    """Memory for the result of any reduction."""
    self.check()
    return bytearray(8 * max(self.max_data, 1))


cdef double real_number(value, str name) except? -1:
    try:
        return value
    except TypeError:
        raise TypeError(f"{name} must be a real number, not "
                        f"{type(value).__name__}") from None
    except OverflowError:
        raise OverflowError(f"{name} is too large for a double") from None


cdef object as_array(bytearray values, kind, size_t count):
    import numpy  # it is slow to import, and only this needs it

    return numpy.frombuffer(values, kind, count)


cdef class Vbg:
    """Vbg(backend, tni, count=1, *, thread_safe=False)\n--\n\n\
Virtual barrier gates of one allocation: a process's part of a circuit.

    Parameters
    ----------
    backend : Backend
    tni : int
        One of ``backend.barrier_tnis()``.
    count : int
        Gates; the first starts and ends the circuit, the others relay.
    thread_safe : bool
        The library locks; a Vbg of Python can be used by several threads anyway.

    Every participant makes one, sends its ``ids`` to the others, wires its gates
    by ``set`` and waits until all have done so.  Then all call the same operation
    any number of times, each once until it is complete: ``barrier`` or
    ``reduce_*`` starts, ``poll_*`` or ``wait_*`` completes it.

    Raises ``UtofuError``: UTOFU_ERR_FULL means that the TNI has not so many left.
    May enter the kernel, without the GIL.  Methods may be called from several
    threads; they take turns.

    Source: uTofu user's guide 2.3, 3.4, 3.8.
    """

    def __init__(self, Backend backend not None, tni, count=1, *,
                 bint thread_safe=False):
        cdef:
            uint16_t c_tni = whole(tni, "tni", 0xffff)
            size_t number = whole(count, "count")
            const tofu_functions *fn = &backend.backend.fn
            unsigned long flags = 0
            c.utofu_barrier_caps *caps = NULL
            c.utofu_vbg_id_t *memory
            int ret
        if self.is_open or self.memory != NULL:
            raise RuntimeError("the VBGs exist already")
        if thread_safe:
            flags |= c.UTOFU_VBG_FLAG_THREAD_SAFE
        ret = fn.query_barrier_caps(c_tni, &caps)
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_query_barrier_caps", ret, f"TNI {tni}")
        memory = <c.utofu_vbg_id_t *>PyMem_RawCalloc(max(number, 1), sizeof(
            c.utofu_vbg_id_t))
        if memory == NULL:
            raise MemoryError(f"no memory for {number} VBG IDs")
        with nogil:
            ret = fn.alloc_vbg(c_tni, number, flags, memory)
        if ret != c.UTOFU_SUCCESS:
            PyMem_RawFree(memory)
            fail("utofu_alloc_vbg", ret, f"{number} VBGs of TNI {tni}")
        if self.memory != NULL:  # by another thread, meanwhile
            fn.free_vbg(memory, number)
            PyMem_RawFree(memory)
            raise RuntimeError("the VBGs exist already")
        self.memory = memory
        self.count = number
        self.max_data = max(caps.max_uint64_reduction, caps.max_double_reduction)
        self.backend = backend
        self.fn = fn
        self.tni = c_tni
        self.lock = _Lock()
        self.num_waits = 0
        self.generation = fork_generation
        self.is_open = True

    cdef object describe(self):
        return (f"{self.count} VBGs of TNI {self.tni}, the first "
                f"{self.memory[0] if self.memory != NULL else 0:#x}")

    def __repr__(self):
        return f"<{self.describe()}{'' if self.is_open else ', freed'}>"

    def __reduce__(self):
        raise TypeError("a Vbg cannot be copied or pickled; send its ids")

    cdef int check(self) except -1:
        if not self.is_open:
            raise RuntimeError("the VBGs were freed")
        return check_generation(self.generation, self.describe())

    cdef int enter(self) except -1:
        self.check()
        self.lock.acquire()
        if not self.is_open:  # freed by another thread, meanwhile
            self.lock.release()
            self.check()
        return 0

    cdef void leave(self) noexcept:
        self.lock.release()

    @property
    def ids(self):
        """Tuple of int : the IDs of the gates in the whole network.

        Source: uTofu user's guide 3.4.1.1, utofu_alloc_vbg.
        """
        self.check()
        return tuple([self.memory[i] for i in range(self.count)])

    def __len__(self):
        return self.count

    def set(self, settings):
        """Wire the gates.

        Parameters
        ----------
        settings : iterable of VbgSetting
            Or of tuples with the same fields, at most one for each gate, that of
            the first gate first.  Those of an earlier call no longer hold.

        Raises ``UtofuError`` and has then set nothing; ``TypeError``,
        ``ValueError`` and ``OverflowError`` for what is no setting.  May enter
        the kernel, without the GIL.

        Source: uTofu user's guide 3.4.2.1, utofu_set_vbg.
        """
        cdef c.utofu_vbg_setting *c_settings
        cdef size_t count
        cdef int ret
        self.check()
        settings = as_list(settings, "settings", "an iterable of VbgSetting")
        count = len(settings)
        c_settings = <c.utofu_vbg_setting *>PyMem_RawCalloc(
            max(count, 1), sizeof(c.utofu_vbg_setting))
        if c_settings == NULL:
            raise MemoryError(f"no memory for {count} settings")
        try:
            for i, item in enumerate(settings):
                read_setting(item, &c_settings[i])
            self.enter()
            with nogil:
                ret = self.fn.set_vbg(c_settings, count)
            self.leave()
        finally:
            PyMem_RawFree(c_settings)
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_set_vbg", ret, f"{count} settings of {self.describe()}")

    def free(self):
        """Free the gates; harmless when repeated.  May enter the kernel, without
        the GIL.

        Raises ``RuntimeError`` while a thread waits on them, and ``UtofuError``.
        Peers that still count on them wait for ever.

        Source: uTofu user's guide 3.4.1.2, utofu_free_vbg.
        """
        cdef Py_ssize_t num_waits
        cdef int ret = c.UTOFU_SUCCESS
        if not self.is_open:
            return
        self.enter()
        num_waits = self.num_waits
        if num_waits == 0:
            self.is_open = False  # before the GIL goes: nobody starts a wait
            with nogil:
                ret = self.fn.free_vbg(self.memory, self.count)
            self.is_open = ret != c.UTOFU_SUCCESS
        self.leave()
        if num_waits:
            raise RuntimeError(f"a thread still waits on {self.describe()}")
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_free_vbg", ret, self.describe())

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        end_block(self.free, exc)

    def __del__(self):
        if self.is_open and self.generation == fork_generation:
            warn(f"{self!r} were not freed", ResourceWarning, stacklevel=2)

    def __dealloc__(self):
        if self.is_open and self.generation == fork_generation:
            self.fn.free_vbg(self.memory, self.count)
        PyMem_RawFree(self.memory)

    def barrier(self):
        """Start a barrier; returns at once.

        Raises ``UtofuBusyError`` when something is under way on the circuit,
        ``UtofuError``.

        Source: uTofu user's guide 3.8.1.1, utofu_barrier.
        """
        cdef int ret
        self.enter()
        ret = self.fn.barrier(self.memory[0], 0)
        self.leave()
        started(self, "utofu_barrier", ret)

    def poll_barrier(self):
        """bool : is the barrier complete?  True only once.

        Raises ``UtofuBusyError`` when none was started, ``UtofuError`` when it failed:
        UTOFU_ERR_BARRIER_MISMATCH means that the participants disagree on the
        operation.

        Source: uTofu user's guide 3.8.2.1, utofu_poll_barrier.
        """
        cdef int ret
        self.enter()
        ret = self.fn.poll_barrier(self.memory[0], 0)
        self.leave()
        if ret == c.UTOFU_ERR_NOT_COMPLETED:
            return False
        completed(self, "utofu_poll_barrier", ret)
        return True

    def wait_barrier(self, timeout=None):
        """Wait until the barrier is complete.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever.

        Raises ``TimeoutError`` (it goes on), and as ``poll_barrier``.  Polls without
        the GIL and is interruptible; the gates cannot be freed meanwhile.

        Source: uTofu user's guide 3.8.2.1, utofu_poll_barrier.
        """
        cdef wait w
        cdef int ret = wait_run(self, &w, WAIT_BARRIER, "utofu_poll_barrier", timeout)
        completed(self, "utofu_poll_barrier", ret)

    def reduce_uint64(self, op, data):
        """Start a reduction of whole numbers; returns at once.

        Parameters
        ----------
        op : ReduceOp
            BAND, BOR, BXOR, MAX, MAXLOC (pairs of value and place) or SUM;
            the same at all participants.
        data : sequence or 1-D array of int
            0 to 2**64 - 1 each, 1 to ``max_uint64_reduction`` of them, as many at all
            participants.  Free at return.

        Raises ``UtofuBusyError`` when something is under way on the circuit,
        ``UtofuError``, ``TypeError`` and ``OverflowError`` for other values.

        Source: uTofu user's guide 3.8.1.2, utofu_reduce_uint64.
        """
        cdef int c_op = signed_int(op, "op")
        cdef uint64_t *values
        cdef size_t count
        cdef int ret
        self.check()
        data = as_list(data, "data", "a sequence of integers")
        count = len(data)
        values = <uint64_t *>PyMem_RawCalloc(max(count, self.max_data),
                                             sizeof(uint64_t))
        if values == NULL:
            raise MemoryError(f"no memory for {count} values")
        try:
            for i in range(count):
                values[i] = whole(data[i], "a value in data")
            self.enter()
            ret = self.fn.reduce_uint64(self.memory[0], <c.utofu_reduce_op>c_op,
                                        values, count, 0)
            if ret == c.UTOFU_SUCCESS:
                self.num_uint64 = count
            self.leave()
        finally:
            PyMem_RawFree(values)
        started(self, "utofu_reduce_uint64", ret)

    def poll_reduce_uint64(self):
        """The result of the reduction, once, or None.

        Returns
        -------
        numpy.ndarray of uint64, or None
            As many values as were given; None while it is not complete.

        Raises as ``poll_barrier``.

        Source: uTofu user's guide 3.8.2.2, utofu_poll_reduce_uint64.
        """
        cdef int ret
        cdef bytearray values = room(self)
        self.enter()
        ret = self.fn.poll_reduce_uint64(
            self.memory[0], 0, <uint64_t *>PyByteArray_AS_STRING(values))
        self.leave()
        if ret == c.UTOFU_ERR_NOT_COMPLETED:
            return None
        completed(self, "utofu_poll_reduce_uint64", ret)
        return as_array(values, "uint64", self.num_uint64)

    def wait_reduce_uint64(self, timeout=None):
        """Wait for the result of the reduction.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever.

        Returns
        -------
        numpy.ndarray of uint64

        Raises ``TimeoutError`` (it goes on), and as ``poll_barrier``.  Polls without
        the GIL and is interruptible; the gates cannot be freed meanwhile.

        Source: uTofu user's guide 3.8.2.2, utofu_poll_reduce_uint64.
        """
        cdef wait w
        cdef bytearray values = room(self)
        w.out = PyByteArray_AS_STRING(values)
        cdef int ret = wait_run(self, &w, WAIT_UINT64, "utofu_poll_reduce_uint64",
                                     timeout)
        completed(self, "utofu_poll_reduce_uint64", ret)
        return as_array(values, "uint64", self.num_uint64)

    def reduce_double(self, op, data):
        """Start a reduction of floating-point numbers; returns at once.

        Parameters
        ----------
        op : ReduceOp
            BFPSUM: a sum whose result does not depend on the order.
        data : sequence or 1-D array of float
            1 to ``max_double_reduction`` of them, as many at all participants.  Free
            at return.

        Raises ``UtofuBusyError`` when something is under way on the circuit,
        ``UtofuError``, ``TypeError`` for other values.

        Source: uTofu user's guide 3.8.1.3, utofu_reduce_double.
        """
        cdef int c_op = signed_int(op, "op")
        cdef double *values
        cdef size_t count
        cdef int ret
        self.check()
        data = as_list(data, "data", "a sequence of numbers")
        count = len(data)
        values = <double *>PyMem_RawCalloc(max(count, self.max_data), sizeof(double))
        if values == NULL:
            raise MemoryError(f"no memory for {count} values")
        try:
            for i in range(count):
                values[i] = real_number(data[i], "a value in data")
            self.enter()
            ret = self.fn.reduce_double(self.memory[0], <c.utofu_reduce_op>c_op,
                                        values, count, 0)
            if ret == c.UTOFU_SUCCESS:
                self.num_double = count
            self.leave()
        finally:
            PyMem_RawFree(values)
        started(self, "utofu_reduce_double", ret)

    def poll_reduce_double(self):
        """The result of the reduction, once, or None.

        Returns
        -------
        numpy.ndarray of float64, or None
            As many values as were given; None while it is not complete.

        Raises as ``poll_barrier``.

        Source: uTofu user's guide 3.8.2.3, utofu_poll_reduce_double.
        """
        cdef int ret
        cdef bytearray values = room(self)
        self.enter()
        ret = self.fn.poll_reduce_double(
            self.memory[0], 0, <double *>PyByteArray_AS_STRING(values))
        self.leave()
        if ret == c.UTOFU_ERR_NOT_COMPLETED:
            return None
        completed(self, "utofu_poll_reduce_double", ret)
        return as_array(values, "float64", self.num_double)

    def wait_reduce_double(self, timeout=None):
        """Wait for the result of the reduction.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None waits for ever.

        Returns
        -------
        numpy.ndarray of float64

        Raises ``TimeoutError`` (it goes on), and as ``poll_barrier``.  Polls without
        the GIL and is interruptible; the gates cannot be freed meanwhile.

        Source: uTofu user's guide 3.8.2.3, utofu_poll_reduce_double.
        """
        cdef wait w
        cdef bytearray values = room(self)
        w.out = PyByteArray_AS_STRING(values)
        cdef int ret = wait_run(self, &w, WAIT_DOUBLE, "utofu_poll_reduce_double",
                                     timeout)
        completed(self, "utofu_poll_reduce_double", ret)
        return as_array(values, "float64", self.num_double)
