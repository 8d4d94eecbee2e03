# SPDX-License-Identifier: BSD-3-Clause
# Context

_FEATURES = {
    "tag": c.UCP_FEATURE_TAG,
    "rma": c.UCP_FEATURE_RMA,
    "amo32": c.UCP_FEATURE_AMO32,
    "amo64": c.UCP_FEATURE_AMO64,
    "am": c.UCP_FEATURE_AM,
    "stream": c.UCP_FEATURE_STREAM,
    "wakeup": c.UCP_FEATURE_WAKEUP,
}

# Those that the end of the interpreter finds open.
_contexts = weakref.WeakSet()


def ucx_version():
    """Version of the UCX in this process, e.g. ``(1, 22, 0)``.

    Returns
    -------
    tuple of int

    Source: UCX v1.22, ucp_get_version.
    """
    cdef unsigned major = 0, minor = 0, release = 0
    c.ucp_get_version(&major, &minor, &release)
    return major, minor, release


def _check_version():
    """Refuse a UCX that another package brought into the process and is too old."""
    if ucx_version() < (1, 22):
        with open("/proc/self/maps") as maps:
            paths = {line.split()[-1] for line in maps if "/libucp" in line}
        raise RuntimeError(
            f"UCX {c.ucp_get_version_string().decode()} is loaded in this process "
            f"({', '.join(paths)}); ucp_glue needs 1.22 or later. Import ucp_glue's objects "
            "before the package that brings it, or set LD_LIBRARY_PATH to the "
            "libraries of libucx")


cdef bint asks_for_utofu(str tls):
    """Whether a value of UCX_TLS names the transport itself."""
    return not tls.startswith("^") and any(
        name.split(":")[0].lstrip("\\") == "utofu" for name in tls.split(","))


def _why_not(settings):
    """Why utofu is not there, in words, with these settings of a Context."""
    return plugin.verify({
        **plugin.environment(tls=None),
        **{f"UCX_{key}": value for key, value in settings.items()}}).reasons


cdef dict read_config(config):
    """UCX's variables without "UCX_", as texts."""
    try:
        given = dict(config or {})
    except (TypeError, ValueError) as error:
        raise type(error)("config must be a mapping of str to str, not "
                          f"{type(config).__name__}") from None
    for key in given:
        if not isinstance(key, str):
            raise TypeError("config's names must be str, not "
                            f"{type(key).__name__}")
    return {key.removeprefix("UCX_"): str(value) for key, value in given.items()}


@cython.no_gc_clear
cdef class Context:
    """Context(features=None, config=None, *, multi_thread=False, utofu=True, \
name=None)\n--\n\nUCX's settings, transports and memory: the parent of all else.

    Parameters
    ----------
    features : iterable of str
        Of "tag", "rma", "amo32", "amo64", "am", "stream", "wakeup".  None: all.
        Without "wakeup" waiting polls.
    config : mapping of str to str, optional
        UCX's variables, with or without "UCX_"; they win over the environment,
        e.g. ``{"TLS": "utofu,tcp"}``.
    multi_thread : bool
        Default for workers: may several threads use one at the same time?
    utofu : bool
        Make sure that UCX knows the plugin (``ucp_glue.enable``), and that utofu is
        there when ``TLS`` asks for it.
    name : str, optional
        Shown in UCX's traces.

    Raises ``UcpError``; ``RuntimeError`` when the loaded UCX is too old or when
    ``TLS`` asks for utofu and it does not appear, with the reasons in words (finding
    them starts child processes).  Enters the kernel; any thread may use it.

    Source: UCX v1.22, ucp_init.
    """

    def __cinit__(self):
        self.workers = weakref.WeakSet()
        self.memories = weakref.WeakSet()

    def __init__(self, features=None, config=None, *, bint multi_thread=False,
                 bint utofu=True, name=None):
        cdef:
            c.ucp_params_t params
            c.ucp_config_t *ucp_config = NULL
            int status
        if self.context != NULL:
            raise RuntimeError("the context is open already")
        if isinstance(features, str):
            raise TypeError("features: an iterable of names, not one str")
        try:
            chosen = frozenset(_FEATURES if features is None else features)
        except TypeError as error:
            raise TypeError(f"features must be an iterable of names: {error}") from None
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name must be a str or None, not {type(name).__name__}")
        settings = read_config(config)
        params.field_mask = (c.UCP_PARAM_FIELD_FEATURES |
                             c.UCP_PARAM_FIELD_MT_WORKERS_SHARED)
        params.features = 0
        for feature in chosen:
            if feature not in _FEATURES:
                raise ValueError(f"feature {feature!r}: there are "
                                 f"{', '.join(_FEATURES)}")
            params.features |= <uint64_t>_FEATURES[feature]
        # Memory is mapped and unmapped from any thread, also by the collector.
        params.mt_workers_shared = 1
        if name is not None:
            encoded = name.encode()
            params.field_mask |= c.UCP_PARAM_FIELD_NAME
            params.name = encoded
        tls = settings.get("TLS", os.environ.get("UCX_TLS", "all"))
        _check_version()
        if utofu:
            try:
                plugin.bring(check=False)   # looked at below
            except (RuntimeError, ImportError) as error:
                if asks_for_utofu(tls):
                    raise
                warnings.warn(f"without utofu: {error}", RuntimeWarning,
                              stacklevel=2)
        status = c.ucp_config_read(NULL, NULL, &ucp_config)
        if status != c.UCS_OK:
            fail("ucp_config_read", status, "the environment's UCX_* variables")
        try:
            for key, value in settings.items():
                status = c.ucp_config_modify(ucp_config, key.encode(),
                                             value.encode())
                if status != c.UCS_OK:
                    fail("ucp_config_modify", status, f"UCX_{key}={value}")
            with nogil:
                status = c.ucp_init(&params, ucp_config, &self.context)
        finally:
            c.ucp_config_release(ucp_config)
        self.generation = fork_generation
        self.features = chosen
        self.multi_thread = multi_thread
        if status != c.UCS_OK:
            self.context = NULL
            detail = f"UCX_TLS={tls}"
            if utofu and asks_for_utofu(tls):
                detail = "; ".join([detail, *_why_not(settings)])
            fail("ucp_init", status, detail)
        _contexts.add(self)
        if utofu and asks_for_utofu(tls) and not any(
                transport.startswith("utofu/") for transport in self.transports):
            self.close()
            reasons = _why_not(settings) or [
                "in a new process it appears: UCX was set up here before "
                "ucp_glue.enable()"]
            raise RuntimeError(f"UCX_TLS={tls} asks for utofu, which is not there: "
                               + "; ".join(reasons))

    def __repr__(self):
        return "<Context>" if self.context != NULL else "<Context, closed>"

    cdef int check(self) except -1:
        if self.context == NULL:
            raise UcpClosedError("the context is closed")
        return check_generation(self.generation, "the context")

    @property
    def transports(self):
        """list of str : "transport/device" that may be used, e.g. "utofu/tofu0".

        Source: UCX v1.22, ucp_context_print_info.
        """
        cdef char *text
        self.check()
        text = c.glue_context_info(self.context)
        if text == NULL:
            raise MemoryError()
        try:
            lines = (<bytes>text).decode(errors="replace")
        finally:
            free(text)
        return re.findall(r"^#\s*resource\s+\d+\s*:.*?(\S+/\S+)\s*$", lines,
                          re.MULTILINE)

    def worker(self, *, multi_thread=None):
        """Make a ``Worker``; the parameter is that of the class.

        Source: UCX v1.22, ucp_worker_create.
        """
        return Worker(self, multi_thread=multi_thread)

    def map(self, buffer, *, bint read_only=False):
        """Register a contiguous buffer, so that peers can put, get and count in it.

        Parameters
        ----------
        buffer : writable buffer (read-only ones with ``read_only=True``)
            It can't be resized until the Memory is closed.
        read_only : bool
            Peers may only get.

        Returns
        -------
        Memory

        Raises ``UcpError``, ``TypeError``, ``BufferError``.  Enters the kernel.

        Source: UCX v1.22, ucp_mem_map.
        """
        return map_buffer(self, buffer, read_only)

    def alloc(self, length):
        """Allocate memory that the transports reach best; zeroed.

        Parameters
        ----------
        length : int
            Bytes, at least 1.

        Returns
        -------
        Memory

        Raises ``UcpError``, ``ValueError``.  Enters the kernel.

        Source: UCX v1.22, ucp_mem_map, UCP_MEM_MAP_ALLOCATE.
        """
        return map_new(self, whole(length, "length"))

    def close(self, *, bint force=False, timeout=10.0):
        """Close all workers and memories, then the context; harmless when repeated.

        Parameters are those of ``Worker.close``.

        Raises what the workers' and memories' ``close`` raise; then it stays open.

        Source: UCX v1.22, ucp_cleanup.
        """
        cdef c.ucp_context_h context
        if self.context == NULL:
            return
        self.check()
        seconds(timeout)
        for worker in list(self.workers):
            worker.close(force=force, timeout=timeout)
        for memory in list(self.memories):
            memory.close()
        context = self.context
        self.context = NULL
        _contexts.discard(self)
        with nogil:
            c.ucp_cleanup(context)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        try:
            self.close(force=kind is not None)
        except BufferError:
            if kind is None:    # else what stopped the block comes first
                raise

    def __del__(self):
        if self.context != NULL and self.generation == fork_generation:
            warn_unclosed(self)

    def __dealloc__(self):
        # Workers and memories hold the context, so there are none any more.
        if self.context != NULL and self.generation == fork_generation:
            c.ucp_cleanup(self.context)


@atexit.register
def _close_all():
    """At the interpreter's end: leave nothing behind, wait for nobody."""
    cdef Worker worker
    cdef Context context
    for item in list(_contexts):
        context = item
        if context.generation != fork_generation:
            continue
        left = False
        for each in list(context.workers):
            worker = each
            try:
                if worker.busy:             # a thread is inside UCX
                    left = True
                else:
                    worker.shut(True, 0.2)
            except Exception:
                left = left or worker.worker != NULL
        if not left:
            try:
                context.close()
            except Exception:
                pass                        # views of its memory live on
