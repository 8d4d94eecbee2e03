# SPDX-License-Identifier: BSD-3-Clause
# Backend


# The library of the process, once it is loaded
cdef const tofu_backend *loaded_backend = NULL


cdef list read_coords(values, str name, uint8_t *coords, int number, call):
    """Coordinates, each 0 to 255, to an array of that many, and as a list."""
    cdef list listed = as_list(values, name, f"a sequence of {number} integers")
    if len(listed) != number:
        raise ValueError(f"{call}: {name} needs {number} coordinates, got "
                         f"{len(listed)}")
    for i in range(number):
        coords[i] = whole(listed[i], f"{name}[{i}]", 0xff)
    return listed


cdef list as_list(values, str name, str needed):
    try:
        iterator = iter(values)
    except TypeError:
        raise TypeError(f"{name} must be {needed}, not "
                        f"{type(values).__name__}") from None
    return list(iterator)


cdef list read_tnis(call, int ret, uint16_t *ids, size_t count):
    """The TNI IDs of an array that the library allocated for us."""
    try:
        if ret != c.UTOFU_SUCCESS:
            fail(call, ret)
        return [ids[i] for i in range(count)]
    finally:
        free(ids)


cdef class Backend:
    """The uTofu library of this process: the machine's or the emulator.

    Made by ``Backend.load``.  One library is loaded per process and stays until
    the process ends.  Methods may be called from any thread.

    Source: cython/abi/tofu_dl.h; uTofu user's guide 3.2, 3.9.
    """

    def __cinit__(self):
        if loaded_backend == NULL:
            raise TypeError("use Backend.load()")
        self.backend = loaded_backend

    def __init__(self):
        raise TypeError("use Backend.load()")

    def __reduce__(self):
        raise TypeError("a Backend cannot be copied or pickled; use "
                        "Backend.load()")

    @staticmethod
    def load(choice=None):
        """Load the library, or return the one that is loaded.

        Parameters
        ----------
        choice : {"auto", "tofu", "emulator"}, optional
            None reads ``UCT_TOFU_BACKEND``; "auto" when it is unset.

        Returns
        -------
        Backend

        Raises
        ------
        RuntimeError
            With every attempt and why it failed; also when another library than
            the chosen one is loaded already.

        May read files; does not wait for anyone.

        Source: cython/abi/tofu_dl.h, tofu_backend_load.
        """
        cdef:
            char err[4096]
            const char *c_choice = NULL
            const tofu_backend *pointer = NULL
            int ret
        global loaded_backend
        if choice is not None:
            if not isinstance(choice, str):
                raise TypeError("choice must be a str or None, not "
                                f"{type(choice).__name__}")
            encoded = choice.encode()
            c_choice = encoded
        err[0] = 0
        with nogil:
            ret = tofu_backend_load(c_choice, &pointer, err, sizeof(err))
        if ret != 0:
            raise RuntimeError(err.decode("utf-8", "replace"))
        loaded_backend = pointer
        return Backend.__new__(Backend)

    def __repr__(self):
        return f"<Backend {self.kind} {self.path}>"

    @property
    def kind(self):
        """str : "tofu" for the machine's library, "emulator" for ours.

        Source: cython/abi/tofu_dl.h, struct tofu_backend.
        """
        return ("emulator" if self.backend.kind == TOFU_BACKEND_EMULATOR
                else "tofu")

    @property
    def path(self):
        """str : the file that was loaded.

        Source: cython/abi/tofu_dl.h, struct tofu_backend.
        """
        return self.backend.path.decode("utf-8", "surrogateescape")

    @property
    def reason(self):
        """str : why this library was chosen, in words.

        Source: cython/abi/tofu_dl.h, struct tofu_backend.
        """
        return self.backend.reason.decode("utf-8", "replace")

    @property
    def network_id(self):
        """int : equal for processes that can reach each other.

        Source: cython/abi/tofu_dl.h, struct tofu_backend.
        """
        return self.backend.network_id

    def onesided_tnis(self):
        """List of int : the TNIs usable for one-sided communication.

        Raises ``UtofuError``.

        Source: uTofu user's guide 3.2.1, utofu_get_onesided_tnis.
        """
        cdef uint16_t *ids = NULL
        cdef size_t count = 0
        cdef int ret = self.backend.fn.get_onesided_tnis(&ids, &count)
        return read_tnis("utofu_get_onesided_tnis", ret, ids, count)

    def barrier_tnis(self):
        """List of int : the TNIs usable for barrier communication.

        Raises ``UtofuError``.

        Source: uTofu user's guide 3.2.1, utofu_get_barrier_tnis.
        """
        cdef uint16_t *ids = NULL
        cdef size_t count = 0
        cdef int ret = self.backend.fn.get_barrier_tnis(&ids, &count)
        return read_tnis("utofu_get_barrier_tnis", ret, ids, count)

    def onesided_caps(self, tni):
        """Dict of int : features and limits of a TNI; sizes are in bytes.

        The keys are the fields of ``struct utofu_onesided_caps``.  Raises
        ``UtofuError``.

        Source: uTofu user's guide 3.2.2.1, utofu_query_onesided_caps.
        """
        cdef uint16_t c_tni = whole(tni, "tni", 0xffff)
        cdef c.utofu_onesided_caps *caps = NULL
        cdef int ret = self.backend.fn.query_onesided_caps(c_tni, &caps)
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_query_onesided_caps", ret, f"TNI {c_tni}")
        return {
            "flags": caps.flags,
            "armw_ops": caps.armw_ops,
            "num_cmp_ids": caps.num_cmp_ids,
            "num_reserved_stags": caps.num_reserved_stags,
            "cache_line_size": caps.cache_line_size,
            "stag_address_alignment": caps.stag_address_alignment,
            "max_toq_desc_size": caps.max_toq_desc_size,
            "max_putget_size": caps.max_putget_size,
            "max_piggyback_size": caps.max_piggyback_size,
            "max_edata_size": caps.max_edata_size,
            "max_mtu": caps.max_mtu,
            "max_gap": caps.max_gap,
        }

    def barrier_caps(self, tni):
        """Dict of int : barrier features and limits of a TNI.

        ``reduce_ops`` has the bit ``1 << op`` for each ``ReduceOp``.
        The keys are the fields of ``struct utofu_barrier_caps``.  Raises
        ``UtofuError``.

        Source: uTofu user's guide 3.2.2.2, utofu_query_barrier_caps.
        """
        cdef uint16_t c_tni = whole(tni, "tni", 0xffff)
        cdef c.utofu_barrier_caps *caps = NULL
        cdef int ret = self.backend.fn.query_barrier_caps(c_tni, &caps)
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_query_barrier_caps", ret, f"TNI {c_tni}")
        return {
            "flags": caps.flags,
            "reduce_ops": caps.reduce_ops,
            "max_uint64_reduction": caps.max_uint64_reduction,
            "max_double_reduction": caps.max_double_reduction,
        }

    @property
    def tofu_version(self):
        """Tuple (major, minor) of the interconnect.

        Source: uTofu user's guide 3.9.2, utofu_query_tofu_version.
        """
        cdef int major = 0, minor = 0
        self.backend.fn.query_tofu_version(&major, &minor)
        return major, minor

    @property
    def utofu_version(self):
        """Tuple (major, minor) of the uTofu API of the library.

        Source: uTofu user's guide 3.9.3, utofu_query_utofu_version.
        """
        cdef int major = 0, minor = 0
        self.backend.fn.query_utofu_version(&major, &minor)
        return major, minor

    def coords(self):
        """Tuple of 6 int : X, Y, Z, A, B, C of this node.

        Raises ``UtofuError``.

        Source: uTofu user's guide 3.9, utofu_query_my_coords.
        """
        cdef uint8_t xyzabc[6]
        cdef int ret = self.backend.fn.query_my_coords(xyzabc)
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_query_my_coords", ret)
        return tuple([xyzabc[i] for i in range(6)])

    def construct_vcq_id(self, coords, tni, cq, cmp_id):
        """int : ID of a VCQ anywhere in the network.

        Parameters
        ----------
        coords : sequence of 6 int
            X, Y, Z, A, B, C of the node.
        tni, cq, cmp_id : int
            TNI, CQ and component ID.

        Raises ``UtofuError``; ``ValueError`` for another number of coordinates.

        Source: uTofu user's guide 3.3.2, utofu_construct_vcq_id.
        """
        cdef uint16_t c_tni = whole(tni, "tni", 0xffff)
        cdef uint16_t c_cq = whole(cq, "cq", 0xffff)
        cdef uint16_t c_cmp_id = whole(cmp_id, "cmp_id", 0xffff)
        cdef uint8_t xyzabc[6]
        cdef c.utofu_vcq_id_t vcq_id = 0
        coords = read_coords(coords, "coords", xyzabc, 6, "utofu_construct_vcq_id")
        cdef int ret = self.backend.fn.construct_vcq_id(xyzabc, c_tni, c_cq, c_cmp_id,
                                                        &vcq_id)
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_construct_vcq_id", ret,
                 f"coords {coords}, TNI {c_tni}, CQ {c_cq}, cmp_id {c_cmp_id}")
        return vcq_id

    def vcq_info(self, vcq_id):
        """Dict with the parts of a VCQ ID: coords, tni, cq, extra_val.

        Raises ``UtofuError``.

        Source: uTofu user's guide 3.3.3, utofu_query_vcq_info.
        """
        cdef uint64_t number = whole(vcq_id, "vcq_id")
        cdef uint8_t xyzabc[6]
        cdef uint16_t tni = 0, cq = 0, extra = 0
        cdef int ret = self.backend.fn.query_vcq_info(number, xyzabc, &tni, &cq,
                                                      &extra)
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_query_vcq_info", ret, f"VCQ ID {number:#x}")
        return {"coords": tuple([xyzabc[i] for i in range(6)]), "tni": tni,
                "cq": cq, "extra_val": extra}

    def query_stadd(self, vcq_id, stag):
        """int : the STADD that a reserved STag of a VCQ, local or remote, has.

        Raises ``UtofuError``.

        Source: uTofu user's guide 3.6.1, utofu_query_stadd.
        """
        cdef uint64_t number = whole(vcq_id, "vcq_id")
        cdef unsigned int c_stag = whole(stag, "stag", 0xffffffff)
        cdef c.utofu_stadd_t stadd = 0
        cdef int ret = self.backend.fn.query_stadd(number, c_stag, &stadd)
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_query_stadd", ret, f"VCQ ID {number:#x}, STag {c_stag}")
        return stadd

    def set_vcq_id_path(self, vcq_id, path_coords=None):
        """int : the VCQ ID with another default path.

        Parameters
        ----------
        vcq_id : int
        path_coords : sequence of 3 int, optional
            A, B, C of the path; None lets the library choose one that suits.

        Raises ``UtofuError``; ``ValueError`` for another number of coordinates.

        Source: uTofu user's guide 3.3.2, utofu_set_vcq_id_path.
        """
        cdef uint8_t abc[3]
        cdef uint64_t number = whole(vcq_id, "vcq_id")
        cdef c.utofu_vcq_id_t changed = number
        if path_coords is not None:
            path_coords = read_coords(path_coords, "path_coords", abc, 3,
                                      "utofu_set_vcq_id_path")
        cdef int ret = self.backend.fn.set_vcq_id_path(
            &changed, NULL if path_coords is None else abc)
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_set_vcq_id_path", ret,
                 f"VCQ ID {number:#x}, path {path_coords}")
        return changed

    def path_id(self, vcq_id, path_coords=None):
        """int : ID of a path to a VCQ, for ``OnesidedFlag.path``.

        Parameters
        ----------
        vcq_id : int
            The ID is only for this one.
        path_coords : sequence of 3 int, optional
            A, B, C of the path; None lets the library choose one that suits.

        Raises ``UtofuError``; ``ValueError`` for another number of coordinates.

        Source: uTofu user's guide 3.5.1.1, utofu_get_path_id.
        """
        cdef uint8_t abc[3]
        cdef uint64_t number = whole(vcq_id, "vcq_id")
        cdef c.utofu_path_id_t path_id = 0
        if path_coords is not None:
            path_coords = read_coords(path_coords, "path_coords", abc, 3,
                                      "utofu_get_path_id")
        cdef int ret = self.backend.fn.get_path_id(
            number, NULL if path_coords is None else abc, &path_id)
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_get_path_id", ret,
                 f"VCQ ID {number:#x}, path {path_coords}")
        return path_id

    def path_coords(self, vcq_id, path_id):
        """Tuple of 3 int : A, B, C of the path that an ID stands for.

        Raises ``UtofuError``.

        Source: uTofu user's guide 3.5.1.2, utofu_get_path_coords.
        """
        cdef uint64_t number = whole(vcq_id, "vcq_id")
        cdef uint8_t c_path_id = whole(path_id, "path_id", 0xff)
        cdef uint8_t abc[3]
        cdef int ret = self.backend.fn.get_path_coords(number, c_path_id, abc)
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_get_path_coords", ret,
                 f"VCQ ID {number:#x}, path ID {c_path_id}")
        return tuple([abc[i] for i in range(3)])

    def vbg_info(self, vbg_id):
        """Dict with the parts of a VBG ID: coords, tni, bg, extra_val.

        Raises ``UtofuError``.

        Source: uTofu user's guide 3.4.3.1, utofu_query_vbg_info.
        """
        cdef uint64_t number = whole(vbg_id, "vbg_id")
        cdef uint8_t xyzabc[6]
        cdef uint16_t tni = 0, bg = 0, extra = 0
        cdef int ret = self.backend.fn.query_vbg_info(number, xyzabc, &tni, &bg,
                                                      &extra)
        if ret != c.UTOFU_SUCCESS:
            fail("utofu_query_vbg_info", ret, f"VBG ID {number:#x}")
        return {"coords": tuple([xyzabc[i] for i in range(6)]), "tni": tni,
                "bg": bg, "extra_val": extra}
