/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_private.c - put and get of memory that peers can't map: by the kernel.
 *
 * Up to a few pages a write to the target's /proc/PID/mem, whose descriptor is
 * kept, is the cheaper way; above, process_vm_writev.  Both go on while the target
 * is stopped.  A copy by the kernel becomes visible in any order within a page.
 */
#include "emu_copy.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

/* Into private memory of a peer.  strong: the last word is to land last. */
int emu_private_write(struct emu_peer *peer, uint64_t addr, const char *src, size_t n, bool strong)
{
    struct emu_peer_process *proc = peer->proc;
    int                      fd   = emu_peer_mem_fd(proc);
    size_t                   done = 0;

    if (n == 0) {
        return UTOFU_SUCCESS;
    }
    if (fd < 0) {
        return UTOFU_ERR_MRQ_PEER;
    }
    /* The descriptor belongs to the process that we mean; a pid may not. */
    if (((n > EMU_CMA_THRESHOLD) || (strong && (n > 64))) && !proc->cma_refused && emu_peer_is_there(proc)) {
        while (!proc->cma_refused && (done < n)) {
            /* two local pieces make the kernel copy the tail after the body, at no
             * cost; the remote pages are looked up once */
            size_t       tail = emu_tail_size((uintptr_t)addr, n), left = n - done;
            struct iovec lcl[2] = {{(void *)(uintptr_t)(src + done), left - ((left > tail) ? tail : 0)},
                                   {(void *)(uintptr_t)(src + n - tail), tail}};
            struct iovec rmt    = {(void *)(uintptr_t)(addr + done), left};
            ssize_t      k      = process_vm_writev(proc->pid, lcl, (left > tail) ? 2 : 1, &rmt, 1, 0);

            if (k > 0) {
                done += (size_t)k;
            } else if ((k < 0) && ((errno == EPERM) || (errno == ENOSYS))) {
                proc->cma_refused = true;
            } else {
                return ((k < 0) && (errno == ESRCH)) ? UTOFU_ERR_MRQ_PEER : UTOFU_ERR_MRQ_RMT_MEMORY;
            }
        }
    }
    if (done < n) {
        size_t tail = (strong && (n - done > 64)) ? emu_tail_size((uintptr_t)addr, n) : 0;

        for (size_t end = n - tail; done < n; end = n) {
            while (done < end) {
                ssize_t k = pwrite(fd, src + done, end - done, (off_t)(addr + done));
                if (k <= 0) {
                    /* 0: the process has ended, or is another program by now */
                    return (k == 0) ? UTOFU_ERR_MRQ_PEER : UTOFU_ERR_MRQ_RMT_MEMORY;
                }
                done += (size_t)k;
            }
        }
    }
    return UTOFU_SUCCESS;
}

#define LINE 256u

int emu_private_read(struct emu_peer *peer, uint64_t addr, char *dst, size_t n, bool strong)
{
    struct emu_peer_process *proc = peer->proc;
    int                      fd   = emu_peer_mem_fd(proc);
    size_t                   done = 0;

    if (n == 0) {
        return UTOFU_SUCCESS;
    }
    if (strong && (addr / LINE != (addr + n - 1) / LINE)) {
        /* the last cache line is read after the others (6.1.3.1) */
        size_t body = (size_t)((addr + n - 1) / LINE * LINE - addr);
        int    code = emu_private_read(peer, addr, dst, body, false);
        return (code == UTOFU_SUCCESS) ? emu_private_read(peer, addr + body, dst + body, n - body, false) : code;
    }
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
            } else if ((k < 0) && ((errno == EPERM) || (errno == ENOSYS))) {
                proc->cma_refused = true;
            } else {
                return ((k < 0) && (errno == ESRCH)) ? UTOFU_ERR_MRQ_PEER : UTOFU_ERR_MRQ_RMT_MEMORY;
            }
        }
    }
    while (done < n) {
        ssize_t k = pread(fd, dst + done, n - done, (off_t)(addr + done));
        if (k <= 0) {
            return (k == 0) ? UTOFU_ERR_MRQ_PEER : UTOFU_ERR_MRQ_RMT_MEMORY;
        }
        done += (size_t)k;
    }
    return UTOFU_SUCCESS;
}
