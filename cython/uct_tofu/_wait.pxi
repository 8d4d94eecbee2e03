# SPDX-License-Identifier: BSD-3-Clause
# Waits: polling without the GIL, in slices between which signals are handled.

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int CLOCK_MONOTONIC
    int clock_gettime(int, timespec *)
    int nanosleep(const timespec *, timespec *)

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef enum:
    POLLS = 64         # before the time is looked at, and the CPU offered
    SLEEP_NS = 20000   # between polls of a long wait: the peer may need this CPU

cdef double SLEEP_AFTER_S = 0.002
cdef double SLICE_S = 0.01  # how long a signal may wait for its handler


cdef enum wait_kind:
    WAIT_TCQ
    WAIT_MRQ
    WAIT_BARRIER
    WAIT_UINT64
    WAIT_DOUBLE


cdef struct wait:
    const tofu_functions *fn
    pthread_mutex_t *mutex
    wait_kind kind
    c.utofu_vcq_hdl_t hdl      # TCQ, MRQ
    c.utofu_vbg_id_t vbg_id    # the others
    void *cbdata
    c.utofu_mrq_notice notice
    void *out                  # UINT64, DOUBLE
    int nothing                # the code that means "not yet"


cdef double now() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return t.tv_sec + 1e-9 * t.tv_nsec


cdef int poll_once(wait *w) noexcept nogil:
    cdef int ret
    pthread_mutex_lock(w.mutex)
    if w.kind == WAIT_TCQ:
        ret = w.fn.poll_tcq(w.hdl, 0, &w.cbdata)
    elif w.kind == WAIT_MRQ:
        ret = w.fn.poll_mrq(w.hdl, 0, &w.notice)
    elif w.kind == WAIT_BARRIER:
        ret = w.fn.poll_barrier(w.vbg_id, 0)
    elif w.kind == WAIT_UINT64:
        ret = w.fn.poll_reduce_uint64(w.vbg_id, 0, <uint64_t *>w.out)
    else:
        ret = w.fn.poll_reduce_double(w.vbg_id, 0, <double *>w.out)
    pthread_mutex_unlock(w.mutex)
    return ret


cdef int poll_slice(wait *w, double start, double end) noexcept nogil:
    """Poll until something comes or the time is `end`."""
    cdef timespec pause
    cdef double time
    cdef int i, ret
    pause.tv_sec = 0
    pause.tv_nsec = SLEEP_NS
    while True:
        for i in range(POLLS):
            ret = poll_once(w)
            if ret != w.nothing:
                return ret
        time = now()
        if time >= end:
            return ret
        if time - start < SLEEP_AFTER_S:
            sched_yield()
        else:
            nanosleep(&pause, NULL)


cdef double time_limit(timeout) except? -1:
    """When a wait that starts now ends."""
    if timeout is None:
        return 1e300
    return now() + <double>seconds(timeout)


cdef int wait_for(wait *w, timeout) except? 0:
    """Poll until something comes; UTOFU_SUCCESS or another code than "not yet".

    Raises TimeoutError without a text, and what a signal handler raises.
    """
    cdef double start = now(), end = time_limit(timeout)
    cdef int ret
    while True:
        with nogil:
            ret = poll_slice(w, start, min(end, now() + SLICE_S))
        if ret != w.nothing:
            return ret
        PyErr_CheckSignals()
        if now() >= end:
            raise TimeoutError()


cdef int wait_queue(Vcq self, wait *w, wait_kind kind, timeout) except? 0:
    """Poll a queue without the GIL; TimeoutError names it."""
    w.fn = self.fn
    w.mutex = &self.lock.mutex
    w.kind = kind
    w.hdl = self.hdl
    w.nothing = c.UTOFU_ERR_NOT_FOUND
    self.check()
    self.num_waits += 1
    try:
        return wait_for(w, timeout)
    except TimeoutError:
        raise TimeoutError(
            f"{'utofu_poll_tcq' if kind == WAIT_TCQ else 'utofu_poll_mrq'}: "
            f"nothing came within {timeout} s, {self.describe()}") from None
    finally:
        self.num_waits -= 1


cdef object tcq_result(Vcq self, int ret, void *cbdata):
    if ret != c.UTOFU_SUCCESS:
        of_operation = (ret <= c.UTOFU_ERR_TCQ_OTHER
                        and ret >= c.UTOFU_ERR_TCQ_LENGTH)
        fail("utofu_poll_tcq", ret, self.describe(), None,
             <uintptr_t>cbdata if of_operation else None)
    return <uintptr_t>cbdata


cdef object mrq_result(Vcq self, int ret, const c.utofu_mrq_notice *notice):
    if ret != c.UTOFU_SUCCESS and not (
            ret <= c.UTOFU_ERR_MRQ_OTHER
            and ret >= c.UTOFU_ERR_MRQ_RMT_LENGTH):
        fail("utofu_poll_mrq", ret, self.describe())
    result = MrqNotice(MrqType(notice.notice_type), notice.vcq_id,
                       notice.edata, notice.rmt_value, notice.lcl_stadd,
                       notice.rmt_stadd)
    if ret != c.UTOFU_SUCCESS:
        fail("utofu_poll_mrq", ret,
             f"{result.type.name} with VCQ ID {result.vcq_id:#x}, "
             f"edata {result.edata}, {self.describe()}", result)
    return result
