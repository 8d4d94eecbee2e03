/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_doorbell.c - waking a process that sleeps: the library's side of
 * abi/tofu_doorbell.h.
 *
 *   sleeper                              who brings a notice
 *     armed = 1                            store the notice
 *     fence of all processes               (none of its own)
 *     look at the queues again             armed?  exchange it to 0, send a datagram
 *
 * A notice that was stored before the fence (emu_fence.c) is seen by the second look;
 * one that is stored after it is followed by a load that sees `armed`.
 *
 * Where processes can't be reached that way nothing is armed: doorbells are not
 * acknowledged, and programs use a timer.
 */
#include "emu_internal.h"
#include "emu_job.h"
#include "emu_vma.h"

#include <tofu_doorbell.h>

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define MAPPED_NAME "/memfd:" TOFU_DOORBELL_MEMFD

struct emu_doorbell {
    struct tofu_doorbell *page; /* a mapping of ours: the program may undo its own */
    void                 *map;
    size_t               map_size;
    uint32_t             stag;
};

_Static_assert(sizeof(((struct emu_vcq_block *)0)->bell) == TOFU_DOORBELL_NAME_MAX, "a name fits");

static _Atomic int ring_fd = -1; /* a socket to send from */

/* ----------------------------------------------------------------- the sleeper */

void emu_doorbell_bind(struct emu_vcq *vcq, uint32_t stag, const struct emu_vma *vma, int fd, size_t size)
{
    struct tofu_doorbell *page;
    struct emu_doorbell  *bell;
    struct stat           st;
    uint64_t              in_page = vma->file_off % EMU_SHM_PAGE;
    uint32_t              length;
    void                 *map;

    if (emu_likely(strncmp(vma->path, MAPPED_NAME, sizeof(MAPPED_NAME) - 1) != 0)) {
        return;
    }
    if ((vcq->bell != NULL) || (vcq->session != NULL) || (size < sizeof(*page)) ||
        (vma->file_off % _Alignof(struct tofu_doorbell) != 0) || !emu_memfd_stays(fd) ||
        fstat(fd, &st) || ((uint64_t)st.st_size < vma->file_off + sizeof(*page)) ||
        !emu_fence_reaches_all()) {
        return;
    }
    bell = malloc(sizeof(*bell));
    if (bell == NULL) {
        return;
    }
    bell->map_size = in_page + sizeof(*page);
    map = mmap(NULL, bell->map_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(vma->file_off - in_page));
    if (map == MAP_FAILED) {
        free(bell);
        return;
    }
    page   = (struct tofu_doorbell *)((char *)map + in_page);
    length = page->name_length;
    if ((page->magic != TOFU_DOORBELL_MAGIC) || (page->version != TOFU_DOORBELL_VERSION) || (length == 0) ||
        (length > TOFU_DOORBELL_NAME_MAX)) {
        munmap(map, bell->map_size);
        free(bell);
        return;
    }
    bell->page = page;
    bell->map  = map;
    bell->stag = stag;
    memcpy(vcq->block->bell, page->name, length);
    vcq->block->bell_length = length;
    vcq->bell               = bell;
    atomic_store(&page->acknowledged, 1);
}

void emu_doorbell_unbind(struct emu_vcq *vcq, uint32_t stag)
{
    struct emu_doorbell *bell = vcq->bell;

    if (emu_likely(bell == NULL) || (bell->stag != stag)) {
        return;
    }
    vcq->bell = NULL;
    atomic_store(&vcq->block->armed, 0);
    atomic_store(&bell->page->acknowledged, 0);
    atomic_store(&bell->page->state, TOFU_DOORBELL_IDLE);
    munmap(bell->map, bell->map_size);
    free(bell);
}

void emu_doorbell_polled(struct emu_vcq *vcq)
{
    struct tofu_doorbell *page = vcq->bell->page;

    if (emu_likely(atomic_load_explicit(&page->state, memory_order_relaxed) != TOFU_DOORBELL_ARM)) {
        return;
    }
    atomic_store(&vcq->block->armed, 1);
    if (!emu_fence_all()) {
        atomic_store(&page->acknowledged, 0); /* it works no more: a process has come that can't be reached */
    } else if (emu_queue_quiet(vcq)) {
        atomic_store_explicit(&page->state, TOFU_DOORBELL_ARMED, memory_order_relaxed);
        return;
    }
    atomic_store(&vcq->block->armed, 0);
}

/* ------------------------------------------------------- who brings a notice */

static int ring_socket(void)
{
    return emu_fd_keep(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/* With the other descriptors of the process, and not when it first rings: a program that
 * counts its own around a call would take that for a leak. */
void emu_doorbell_open(void)
{
    int fd = ring_socket(), none = -1;

    if ((fd >= 0) && !atomic_compare_exchange_strong(&ring_fd, &none, fd)) {
        close(fd);
    }
}

/* A datagram of one byte; returns 0 or errno. */
static int ring_from(int fd, const struct sockaddr_un *where, socklen_t length)
{
    ssize_t n;

    do {
        /* no function that is a cancellation point: the VCQ may be locked */
        n = syscall(SYS_sendto, fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, where, length);
    } while ((n < 0) && (errno == EINTR));
    return (n == 1) ? 0 : errno;
}

void emu_doorbell_ring(struct emu_vcq_block *block)
{
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    uint32_t           length;
    socklen_t          size;
    int                saved = errno, fd, code, none = -1;

    if (atomic_exchange(&block->armed, 0) == 0) {
        return;
    }
    length = __atomic_load_n(&block->bell_length, __ATOMIC_RELAXED); /* who armed it wrote it before */
    if ((length == 0) || (length > TOFU_DOORBELL_NAME_MAX)) {
        return;
    }
    memcpy(where.sun_path + 1, block->bell, length);
    size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    fd   = atomic_load(&ring_fd);
    code = (fd < 0) ? EBADF : ring_from(fd, &where, size);
    /* No socket yet, or somebody closed it; or it has no room, because of datagrams that
     * other sleepers have not read: from a new one.  ECONNREFUSED: nobody is there. */
    if ((code != 0) && (code != ECONNREFUSED)) {
        int fresh = ring_socket();

        if (fresh >= 0) {
            ring_from(fresh, &where, size);
            if (code == EBADF) {
                none = fd;
            }
            if ((code != EBADF) || !atomic_compare_exchange_strong(&ring_fd, &none, fresh)) {
                close(fresh);
            }
        }
    }
    errno = saved;
}
