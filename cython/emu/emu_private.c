/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_private.c - put and get of memory that peers can't map, or not all of: by the kernel.
 *
 * Up to a few pages a write to the target's /proc/PID/mem, whose descriptor is
 * kept, is the cheaper way; above, process_vm_writev.  Both go on while the target
 * is stopped.  A copy by the kernel becomes visible in any order within a page, so where
 * an order is promised the source of a put is cut, one piece being copied after the
 * other, and what a get brings is copied once more, by us.  No function is called that is a
 * cancellation point: the VCQ may be locked.
 */
#include "emu_copy.h"
#include "emu_path.h"
#include "emu_service.h"
#include "emu_vma.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define LINE        256u /* cache line of the machine (table 6.4) */
#define READ_BOUNCE 16384u
#define BOTH_ENDS   8192u /* two calls of the kernel, for the ends, are worth it from here on */

/* So little, the kernel copies in order; and pieces in one call.  Where stores become
 * visible in the order of the program, those of a piece do so before those of the next;
 * elsewhere a barrier has to stand between. */
#if defined(__x86_64__)
#define ONE_STORE        64u
#define PIECES_MAX       256u
#define PIECES_BARRIER() ((void)0)
#else
#define ONE_STORE        8u
#define PIECES_MAX       1u
#define PIECES_BARRIER() atomic_thread_fence(memory_order_seq_cst)
#endif

/* Where the piece that begins at `at` ends: before the last word of a line (or of all)
 * that comes next, so that the word is copied after what is before it. */
static size_t piece_end(uint64_t addr, size_t at, size_t n, enum emu_order order)
{
    size_t   last = n - emu_tail_size((uintptr_t)addr, n), end;
    uint64_t next = (addr + at + 8) / LINE * LINE + LINE; /* a piece begins with such a word: not that one again */

    if ((order == EMU_ORDER_NONE) || (at >= last)) {
        return n;
    }
    end = (order == EMU_ORDER_LINES) ? (size_t)(next - 8 - addr) : last;
    return (end < last) ? end : last;
}

/* The descriptor goes on: it may not be allowed.  Or the first thread has no memory: it has ended, and
 * the others with it (of that the descriptor knows), or they go on. */
static bool is_refusal(int err)
{
    return (err == EPERM) || (err == ENOSYS) || (err == ESRCH);
}

/* By process_vm_writev, from *done_p on.  SUCCESS with *done_p < n: it is refused. */
static int write_by_cma(struct emu_peer_process *proc, uint64_t addr, const char *src, size_t n, enum emu_order order,
                        size_t *done_p)
{
    while (!proc->cma_refused && (*done_p < n)) {
        struct iovec lcl[PIECES_MAX], rmt;
        size_t       at = *done_p, end;
        unsigned     pieces;
        ssize_t      k;

        for (pieces = 0; (pieces < PIECES_MAX) && (at < n); pieces++, at = end) {
            end         = piece_end(addr, at, n, order);
            lcl[pieces] = (struct iovec){(void *)(uintptr_t)(src + at), end - at};
        }
        rmt = (struct iovec){(void *)(uintptr_t)(addr + *done_p), at - *done_p};
        k   = process_vm_writev(proc->pid, lcl, pieces, &rmt, 1, 0);
        PIECES_BARRIER();
        if (k > 0) {
            *done_p += (size_t)k;
        } else if ((k < 0) && is_refusal(errno)) {
            proc->cma_refused = true;
        } else {
            return UTOFU_ERR_MRQ_RMT_MEMORY;
        }
    }
    return UTOFU_SUCCESS;
}

/* Into private memory of a peer. */
static int write_private(struct emu_peer *peer, uint64_t addr, const char *src, size_t n, enum emu_order order)
{
    struct emu_peer_process *proc = peer->proc;
    int                      fd   = emu_peer_mem_fd(proc);
    size_t                   done = 0, end;

    if (n == 0) {
        return UTOFU_SUCCESS;
    }
    if (fd < 0) {
        return UTOFU_ERR_MRQ_PEER;
    }
    order = (n > ONE_STORE) ? order : EMU_ORDER_NONE;
    /* The descriptor belongs to the process that we mean; a pid may not. */
    if (((n > EMU_CMA_THRESHOLD) || (order != EMU_ORDER_NONE)) && !proc->cma_refused && emu_peer_is_there(proc)) {
        int code = write_by_cma(proc, addr, src, n, order, &done);

        if (code != UTOFU_SUCCESS) {
            return code;
        }
    }
    while (done < n) {
        end = piece_end(addr, done, n, order);
        while (done < end) {
            ssize_t k = syscall(SYS_pwrite64, fd, src + done, end - done, (off_t)(addr + done));
            if (k <= 0) {
                /* 0: the process has ended, or is another program by now */
                return (k == 0) ? UTOFU_ERR_MRQ_PEER : UTOFU_ERR_MRQ_RMT_MEMORY;
            }
            done += (size_t)k;
        }
        PIECES_BARRIER();
    }
    return UTOFU_SUCCESS;
}

/* By the kernel, in any order */
static int read_unordered(struct emu_peer *peer, uint64_t addr, char *dst, size_t n)
{
    struct emu_peer_process *proc = peer->proc;
    int                      fd   = emu_peer_mem_fd(proc);
    size_t                   done = 0;

    if (fd < 0) {
        return UTOFU_ERR_MRQ_PEER;
    }
    if ((n > EMU_CMA_THRESHOLD) && !proc->cma_refused && emu_peer_is_there(proc)) {
        while (!proc->cma_refused && (done < n)) {
            struct iovec lcl = {dst + done, n - done};
            struct iovec rmt = {(void *)(uintptr_t)(addr + done), n - done};
            ssize_t      k   = process_vm_readv(proc->pid, &lcl, 1, &rmt, 1, 0);

            if (k > 0) {
                done += (size_t)k;
            } else if ((k < 0) && is_refusal(errno)) {
                proc->cma_refused = true;
            } else {
                return UTOFU_ERR_MRQ_RMT_MEMORY;
            }
        }
    }
    while (done < n) {
        ssize_t k = syscall(SYS_pread64, fd, dst + done, n - done, (off_t)(addr + done));
        if (k <= 0) {
            return (k == 0) ? UTOFU_ERR_MRQ_PEER : UTOFU_ERR_MRQ_RMT_MEMORY;
        }
        done += (size_t)k;
    }
    return UTOFU_SUCCESS;
}

/* The kernel's part goes to a buffer, from which we copy in order.  Not on the stack, which a thread may have
 * little of. */
static EMU_NOINLINE int read_ordered(struct emu_peer *peer, uint64_t addr, char *dst, size_t n)
{
    char  *bounce = (peer->bounce != NULL) ? peer->bounce : aligned_alloc(64, READ_BOUNCE);
    size_t done, k;
    int    code;

    peer->bounce = bounce;
    if (bounce == NULL) {
        return UTOFU_ERR_MRQ_OTHER;
    }
    for (done = 0; done < n; done += k) {
        k    = (n - done < READ_BOUNCE) ? n - done : READ_BOUNCE;
        code = read_unordered(peer, addr + done, bounce, k);
        if (code != UTOFU_SUCCESS) {
            return code;
        }
        emu_copy(dst + done, bounce, k);
    }
    return UTOFU_SUCCESS;
}

static int read_private(struct emu_peer *peer, uint64_t addr, char *dst, size_t n, bool strong, enum emu_order order)
{
    if (n == 0) {
        return UTOFU_SUCCESS;
    }
    if (strong && (addr / LINE != (addr + n - 1) / LINE)) {
        /* the last cache line is read after the others (6.1.3.1) */
        size_t body = (size_t)((addr + n - 1) / LINE * LINE - addr);
        int    code = read_private(peer, addr, dst, body, false, order);

        atomic_thread_fence(memory_order_acquire);
        return (code == UTOFU_SUCCESS) ? read_private(peer, addr + body, dst + body, n - body, false, order) : code;
    }
    return ((order == EMU_ORDER_NONE) || (n <= ONE_STORE)) ? read_unordered(peer, addr, dst, n) :
                                                              read_ordered(peer, addr, dst, n);
}

/* Of [off, off + n), what is mapped here: *from_p to *to_p (both n: nothing worth it).  The
 * bounds are those of pages, and so of lines: an order is kept by taking the three parts
 * one after the other. */
static void mapped_part(const struct emu_region *r, uint64_t off, size_t n, size_t *from_p, size_t *to_p)
{
    uint64_t begin = (off > r->dbegin) ? off : r->dbegin, end = r->dbegin + r->dspan;

    end = (end < off + n) ? end : off + n;
    if ((r->dspan == 0) || (begin >= end) || ((begin > off) && (end < off + n) && (end - begin < BOTH_ENDS))) {
        *from_p = *to_p = n;
        return;
    }
    *from_p = (size_t)(begin - off);
    *to_p   = (size_t)(end - off);
}

int emu_private_write(struct emu_peer *peer, struct emu_region *r, uint64_t off, const char *src, size_t n,
                      enum emu_order order)
{
    size_t from, to;
    int    code;

    mapped_part(r, off, n, &from, &to);
    PIECES_BARRIER(); /* operations before it have written (2.2.10) */
    code = write_private(peer, r->addr + off, src, from, order);
    if ((code == UTOFU_SUCCESS) && (from < to)) {
        PIECES_BARRIER();
        emu_copy((char *)r->base + off + from, src + from, to - from);
        PIECES_BARRIER();
        if (emu_fault_seen) {
            return emu_region_cut_off(r);
        }
        code = write_private(peer, r->addr + off + to, src + to, n - to, order);
    }
    return code;
}

int emu_private_read(struct emu_peer *peer, struct emu_region *r, uint64_t off, char *dst, size_t n, bool strong,
                     enum emu_order order)
{
    size_t from, to;
    int    code;

    mapped_part(r, off, n, &from, &to);
    code = read_private(peer, r->addr + off, dst, from, strong, order);
    if ((code == UTOFU_SUCCESS) && (from < to)) {
        atomic_thread_fence(memory_order_seq_cst);
        emu_copy(dst + from, (const char *)r->base + off + from, to - from);
        atomic_thread_fence(memory_order_seq_cst);
        if (emu_fault_seen) {
            return emu_region_cut_off(r);
        }
        code = read_private(peer, r->addr + off + to, dst + to, n - to, strong, order);
    }
    return code;
}
