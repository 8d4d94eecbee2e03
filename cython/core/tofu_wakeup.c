/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_wakeup.c - sleeping until something comes: a descriptor to poll, and how it
 * is armed.
 *
 * The descriptor is an epoll set of two:
 *
 *   a datagram socket   the doorbell of each VCQ of the iface (tofu_doorbell.h), on
 *                       a library that acknowledged it
 *   a timer             one shot for each arming.  Short (config.wakeup_timer_us)
 *                       when nobody rings for what is awaited: on a library without
 *                       doorbells, and for words that peers write without a notice
 *                       (credit, grants).  Long else: the ticks of flow control and
 *                       failure detection go on, and a peer that was killed
 *                       between its notice and its ring delays by no more than that.
 */
#include "tofu_internal.h"
#include "tofu_am.h"

#include <tofu_doorbell.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#define TOFU_WAKEUP_LONG_US  100000u /* most that config.wakeup_timer_us can be */
#define TOFU_WAKEUP_VCQS     1u
#define TOFU_WAKEUP_DRAIN    64u     /* datagrams read by one arming */

typedef struct tofu_bell { /* of one VCQ */
    utofu_vcq_hdl_t      vcq;
    struct tofu_doorbell *page;
    size_t               length;
} tofu_bell_t;

struct tofu_wakeup {
    int         epoll_fd, socket_fd, timer_fd;
    unsigned    num_bells;
    tofu_bell_t bell[TOFU_WAKEUP_VCQS];
};

/* ------------------------------------------------------------ open, close */

static tofu_status_t tofu_wakeup_errno(const tofu_iface_t *iface,
                                       const char *call)
{
    tofu_error("%s for the event descriptor of VCQ %#llx: %s", call,
               (unsigned long long)iface->vcq_id, strerror(errno));
    return (errno == ENOMEM) ? TOFU_ERR_NO_MEMORY : TOFU_ERR_IO_ERROR;
}

/* Let the VCQ ring.  What the library can't do, the timer does. */
static tofu_status_t tofu_bell_open(tofu_iface_t *iface, tofu_bell_t *bell,
                                    utofu_vcq_hdl_t vcq,
                                    const struct sockaddr_un *name,
                                    size_t name_length)
{
    size_t        length = iface->md->page_size;
    tofu_status_t status = TOFU_OK;
    utofu_stadd_t stadd;
    void          *page;
    int           fd, ret;

    fd = memfd_create(TOFU_DOORBELL_MEMFD, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return tofu_wakeup_errno(iface, "memfd_create");
    }
    if ((ftruncate(fd, (off_t)length) != 0) ||
        (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)) {
        status = tofu_wakeup_errno(iface, "ftruncate");
        goto out;
    }
    page = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        status = tofu_wakeup_errno(iface, "mmap");
        goto out;
    }
    bell->vcq               = vcq;
    bell->page              = page;
    bell->length            = length;
    bell->page->magic       = TOFU_DOORBELL_MAGIC;
    bell->page->version     = TOFU_DOORBELL_VERSION;
    bell->page->name_length = (uint32_t)name_length;
    memcpy(bell->page->name, name->sun_path + 1, name_length);
    /* read-only: for peers; it goes with the VCQ */
    ret = iface->fn.reg_mem(vcq, page, length, UTOFU_REG_MEM_FLAG_READ_ONLY,
                            &stadd);
    if (ret != UTOFU_SUCCESS) {
        tofu_debug("utofu_reg_mem of a doorbell page: %s; a timer is used",
                   tofu_code_name(ret));
    }
out:
    close(fd); /* a library that wants it has its own by now */
    return status;
}

static tofu_status_t tofu_wakeup_open_fds(tofu_iface_t *iface,
                                          tofu_wakeup_t *wakeup,
                                          struct sockaddr_un *name,
                                          socklen_t *name_length)
{
    struct epoll_event event = {.events = EPOLLIN};

    wakeup->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (wakeup->epoll_fd < 0) {
        return tofu_wakeup_errno(iface, "epoll_create1");
    }
    wakeup->timer_fd = timerfd_create(CLOCK_MONOTONIC,
                                      TFD_CLOEXEC | TFD_NONBLOCK);
    if (wakeup->timer_fd < 0) {
        return tofu_wakeup_errno(iface, "timerfd_create");
    }
    wakeup->socket_fd = socket(AF_UNIX,
                               SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* an empty name: the kernel makes one */
    name->sun_family = AF_UNIX;
    if ((wakeup->socket_fd < 0) ||
        (bind(wakeup->socket_fd, (struct sockaddr *)name,
              sizeof(name->sun_family)) != 0) ||
        (getsockname(wakeup->socket_fd, (struct sockaddr *)name,
                     name_length) != 0)) {
        return tofu_wakeup_errno(iface, "socket");
    }
    if ((epoll_ctl(wakeup->epoll_fd, EPOLL_CTL_ADD, wakeup->timer_fd,
                   &event) != 0) ||
        (epoll_ctl(wakeup->epoll_fd, EPOLL_CTL_ADD, wakeup->socket_fd,
                   &event) != 0)) {
        return tofu_wakeup_errno(iface, "epoll_ctl");
    }
    return TOFU_OK;
}

static tofu_status_t tofu_wakeup_open(tofu_iface_t *iface)
{
    struct sockaddr_un name   = {0};
    socklen_t          length = sizeof(name);
    tofu_wakeup_t      *wakeup;
    tofu_status_t      status;
    size_t             used;

    wakeup = calloc(1, sizeof(*wakeup));
    if (wakeup == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    wakeup->epoll_fd = wakeup->socket_fd = wakeup->timer_fd = -1;
    iface->wakeup    = wakeup;
    status           = tofu_wakeup_open_fds(iface, wakeup, &name, &length);
    used             = offsetof(struct sockaddr_un, sun_path) + 1;
    if ((status == TOFU_OK) && (length > used) &&
        (length - used <= TOFU_DOORBELL_NAME_MAX)) {
        status = tofu_bell_open(iface, &wakeup->bell[0], iface->vcq, &name,
                                length - used);
        wakeup->num_bells = (status == TOFU_OK);
    }
    if (status != TOFU_OK) {
        tofu_wakeup_close(iface);
    }
    return status;
}

void tofu_wakeup_close(tofu_iface_t *iface)
{
    tofu_wakeup_t *wakeup = iface->wakeup;
    unsigned      i;

    if (wakeup == NULL) {
        return;
    }
    for (i = 0; i < wakeup->num_bells; ++i) {
        munmap(wakeup->bell[i].page, wakeup->bell[i].length);
    }
    if (wakeup->socket_fd >= 0) {
        close(wakeup->socket_fd);
    }
    if (wakeup->timer_fd >= 0) {
        close(wakeup->timer_fd);
    }
    if (wakeup->epoll_fd >= 0) {
        close(wakeup->epoll_fd);
    }
    free(wakeup);
    iface->wakeup = NULL;
}

tofu_status_t tofu_iface_event_fd(tofu_iface_t *iface, int *fd_p)
{
    tofu_status_t status = TOFU_OK;

    if (iface->wakeup == NULL) {
        status = tofu_wakeup_open(iface);
    }
    if (status == TOFU_OK) {
        *fd_p = iface->wakeup->epoll_fd;
    }
    return status;
}

/* -------------------------------------------------------------------- arm */

/* Can progress do something for those that wait for slots?  Fills *wait_p: some
 * wait for words that come without a notice. */
static int tofu_wakeup_am_ready(tofu_iface_t *iface, int *wait_p)
{
    tofu_am_t   *am = iface->am;
    tofu_chan_t *chan;
    tofu_link_t *link;
    unsigned    i, starved;
    int         wanted = 0;

    *wait_p = !tofu_list_empty(&am->waiting);
    for (link = am->waiting.next; link != &am->waiting; link = link->next) {
        chan = tofu_container(link, tofu_chan_t, link);
        if ((chan->state == TOFU_CHAN_CLAIMED) ||
            ((chan->state == TOFU_CHAN_CLAIM) && (chan->retry_ms == 0) &&
             tofu_am_internal_room(am)) ||
            ((chan->state == TOFU_CHAN_ASKED) &&
             (atomic_load_explicit(&chan->mailbox->answer,
                                   memory_order_relaxed) >> 32 ==
              chan->nonce))) {
            return 1;
        }
    }
    if (!am->wanted) {
        return 0;
    }
    for (link = am->chans.next; link != &am->chans; link = link->next) {
        chan = tofu_container(link, tofu_chan_t, all);
        if (!chan->want || (chan->state != TOFU_CHAN_OPEN)) {
            wanted |= chan->want;
            continue;
        }
        for (i = 0, starved = 0; i < TOFU_AM_CLASSES; ++i) {
            if (chan->cls[i].left > 0) {
                continue;
            }
            starved = 1;
            if (tofu_chan_has_credit(chan, i)) {
                return 1;
            }
        }
        chan->want = (uint8_t)starved; /* else it came, and nobody asked again */
        wanted    |= chan->want;
    }
    am->wanted = wanted;
    *wait_p   |= wanted;
    return 0;
}

/* Is there anything that progress can do now? */
static int tofu_wakeup_ready(tofu_iface_t *iface, int *wait_p)
{
    tofu_am_t *am = iface->am;

    return iface->stashed || !tofu_list_empty(&iface->done) ||
           !tofu_list_empty(&iface->failed) || !tofu_list_empty(&am->due) ||
           !tofu_list_empty(&am->gone) ||
           (!tofu_list_empty(&am->jobs) && !am->short_of_slots) ||
           tofu_wakeup_am_ready(iface, wait_p);
}

static void tofu_wakeup_state(tofu_wakeup_t *wakeup, uint32_t state)
{
    unsigned i;

    for (i = 0; i < wakeup->num_bells; ++i) {
        atomic_store_explicit(&wakeup->bell[i].page->state, state,
                              memory_order_relaxed);
    }
}

/* Read what rang before.  1: nothing is left, 0: come again, -1: failed. */
static int tofu_wakeup_drain(tofu_wakeup_t *wakeup)
{
    unsigned i;
    char     byte;

    for (i = 0; i < TOFU_WAKEUP_DRAIN; ++i) {
        if ((recv(wakeup->socket_fd, &byte, 1, MSG_DONTWAIT) < 0) &&
            (errno != EINTR)) {
            return (errno == EAGAIN) ? 1 : -1;
        }
    }
    return 0;
}

/* Both queues of every VCQ are empty.  Polling the MRQ arms the doorbell. */
static int tofu_wakeup_queues_empty(tofu_iface_t *iface)
{
    int code;

    if (tofu_tcq_drain(iface) > 0) {
        return 0;
    }
    code = iface->fn.poll_mrq(iface->vcq, 0, &iface->stash.notice);
    if (code == UTOFU_ERR_NOT_FOUND) {
        return 1;
    }
    iface->stash.code = code;
    iface->stashed    = 1;
    return 0;
}

/* OK: every VCQ rings, or has none to ring it and *timer_p is set. */
static tofu_status_t tofu_wakeup_bells(const tofu_wakeup_t *wakeup,
                                       int *timer_p)
{
    const struct tofu_doorbell *page;
    unsigned                   i;

    *timer_p |= (wakeup->num_bells == 0);
    for (i = 0; i < wakeup->num_bells; ++i) {
        page = wakeup->bell[i].page;
        if (!atomic_load_explicit(&page->acknowledged, memory_order_relaxed)) {
            *timer_p = 1;
        } else if (atomic_load_explicit(&page->state, memory_order_relaxed) !=
                   TOFU_DOORBELL_ARMED) {
            return TOFU_ERR_BUSY;
        }
    }
    return TOFU_OK;
}

static tofu_status_t tofu_wakeup_start_timer(tofu_iface_t *iface, int soon)
{
    tofu_am_t         *am  = iface->am;
    uint64_t          us   = TOFU_WAKEUP_LONG_US;
    struct itimerspec when = {{0, 0}, {0, 0}};

    if (am->short_of_slots && !tofu_list_empty(&am->jobs)) {
        us = TOFU_TICK_MS * 1000; /* slots are recalled */
    }
    if ((soon || (iface->num_turns > 0)) &&
        (iface->config.wakeup_timer_us < us)) {
        us = iface->config.wakeup_timer_us;
    }
    when.it_value.tv_sec  = (time_t)(us / 1000000);
    when.it_value.tv_nsec = (long)(us % 1000000) * 1000;
    /* this also forgets that it ran out before */
    if (timerfd_settime(iface->wakeup->timer_fd, 0, &when, NULL) != 0) {
        return tofu_wakeup_errno(iface, "timerfd_settime");
    }
    return TOFU_OK;
}

tofu_status_t tofu_iface_event_arm(tofu_iface_t *iface, unsigned events)
{
    tofu_status_t status;
    tofu_wakeup_t *wakeup;
    int           fd, drained, soon;

    (void)events; /* all that comes wakes */
    status = tofu_iface_event_fd(iface, &fd);
    if (status != TOFU_OK) {
        return status;
    }
    wakeup = iface->wakeup;
    /* the first progress after a sleep looks at the clock */
    iface->calls |= TOFU_CLOCK_PERIOD - 1;
    if (tofu_wakeup_ready(iface, &soon)) {
        return TOFU_ERR_BUSY;
    }
    if (iface->fatal) {
        return TOFU_ERR_IO_ERROR; /* nothing comes any more */
    }
    drained = tofu_wakeup_drain(wakeup);
    if (drained <= 0) {
        return (drained == 0) ? TOFU_ERR_BUSY :
                                tofu_wakeup_errno(iface, "recv");
    }
    tofu_wakeup_state(wakeup, TOFU_DOORBELL_ARM);
    status = tofu_wakeup_queues_empty(iface) ?
                     tofu_wakeup_bells(wakeup, &soon) :
                     TOFU_ERR_BUSY;
    if (status == TOFU_OK) {
        status = tofu_wakeup_start_timer(iface, soon);
    }
    if (status != TOFU_OK) {
        tofu_wakeup_state(wakeup, TOFU_DOORBELL_IDLE);
    }
    return status;
}
