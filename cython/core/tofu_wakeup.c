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
#define TOFU_WAKEUP_DRAIN    64u     /* datagrams read by one arming */

struct tofu_wakeup {
    int                  epoll_fd, socket_fd, timer_fd;
    struct sockaddr_un   name; /* of the socket */
    size_t               name_length;
    /* doorbells of the iface and its lanes; NULL: none (yet) */
    struct tofu_doorbell *bell[TOFU_MAX_TNIS];
    size_t               length;
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
static tofu_status_t tofu_bell_open(tofu_iface_t *lane, tofu_wakeup_t *wakeup)
{
    tofu_iface_t         *iface = lane->owner;
    size_t               length = wakeup->length;
    tofu_status_t        status = TOFU_OK;
    struct tofu_doorbell *page;
    utofu_stadd_t        stadd;
    void                 *map;
    int                  fd, ret;

    if (lane->shared != NULL) {
        return TOFU_OK; /* a VCQ has one bell, and others may hear it */
    }
    fd = memfd_create(TOFU_DOORBELL_MEMFD, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return tofu_wakeup_errno(iface, "memfd_create");
    }
    if ((ftruncate(fd, (off_t)length) != 0) ||
        (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)) {
        status = tofu_wakeup_errno(iface, "ftruncate");
        goto out;
    }
    map = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        status = tofu_wakeup_errno(iface, "mmap");
        goto out;
    }
    page              = map;
    page->magic       = TOFU_DOORBELL_MAGIC;
    page->version     = TOFU_DOORBELL_VERSION;
    page->name_length = (uint32_t)wakeup->name_length;
    memcpy(page->name, wakeup->name.sun_path + 1, wakeup->name_length);
    wakeup->bell[lane->lane_index] = page;
    /* read-only: for peers; it goes with the VCQ */
    ret = lane->fn.reg_mem(lane->vcq, map, length, UTOFU_REG_MEM_FLAG_READ_ONLY,
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
                                          tofu_wakeup_t *wakeup)
{
    struct epoll_event event  = {.events = EPOLLIN};
    struct sockaddr_un *name  = &wakeup->name;
    socklen_t          length = sizeof(*name);
    size_t             used   = offsetof(struct sockaddr_un, sun_path) + 1;

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
                     &length) != 0)) {
        return tofu_wakeup_errno(iface, "socket");
    }
    if ((length > used) && (length - used <= TOFU_DOORBELL_NAME_MAX)) {
        wakeup->name_length = length - used;
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
    tofu_wakeup_t *wakeup;
    tofu_status_t status;

    wakeup = calloc(1, sizeof(*wakeup));
    if (wakeup == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    wakeup->epoll_fd = wakeup->socket_fd = wakeup->timer_fd = -1;
    iface->wakeup    = wakeup;
    wakeup->length   = iface->md->page_size;
    status           = tofu_wakeup_open_fds(iface, wakeup);
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
    for (i = 0; i < TOFU_MAX_TNIS; ++i) {
        if (wakeup->bell[i] != NULL) {
            munmap(wakeup->bell[i], wakeup->length);
        }
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
            ((chan->state == TOFU_CHAN_CLAIM) && (chan->retry_us == 0) &&
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

static int tofu_wakeup_polled_ready(const tofu_iface_t *iface)
{
    uint64_t tail;
    uint32_t i;

    return (iface->num_polled > 0) && tofu_am_polled_ready(iface, &i, &tail);
}

/* Is there anything that progress can do now? */
static int tofu_wakeup_ready(tofu_iface_t *iface, int *wait_p)
{
    tofu_am_t *am = iface->am;

    return iface->stashed || tofu_wakeup_polled_ready(iface) ||
           !tofu_list_empty(&iface->done) ||
           !tofu_list_empty(&iface->failed) || !tofu_list_empty(&am->due) ||
           !tofu_list_empty(&am->gone) ||
           (!tofu_list_empty(&am->jobs) && !am->short_of_slots) ||
           tofu_wakeup_am_ready(iface, wait_p);
}

static void tofu_wakeup_state(tofu_wakeup_t *wakeup, uint32_t state)
{
    unsigned i;

    for (i = 0; i < TOFU_MAX_TNIS; ++i) {
        if (wakeup->bell[i] != NULL) {
            atomic_store_explicit(&wakeup->bell[i]->state, state,
                                  memory_order_relaxed);
        }
    }
}

/* Every VCQ has its doorbell; lanes are opened as they are needed. */
static tofu_status_t tofu_wakeup_open_bells(tofu_iface_t *iface)
{
    tofu_wakeup_t *wakeup = iface->wakeup;
    tofu_status_t status  = TOFU_OK;
    unsigned      i;

    for (i = 0; (i < TOFU_MAX_TNIS) && (status == TOFU_OK); ++i) {
        if ((iface->lane[i] != NULL) && (wakeup->bell[i] == NULL) &&
            (wakeup->name_length > 0)) {
            status = tofu_bell_open(iface->lane[i], wakeup);
        }
    }
    return status;
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
    tofu_iface_t *lane;
    unsigned     i;
    int          code;

    for (i = 0; i < TOFU_MAX_TNIS; ++i) {
        lane = iface->lane[i];
        if (lane == NULL) {
            continue;
        }
        if (lane->stashed || (tofu_tcq_drain(lane) > 0)) {
            return 0;
        }
        code = lane->fn.poll_mrq(lane->vcq, 0, &lane->stash.notice);
        if (code != UTOFU_ERR_NOT_FOUND) {
            lane->stash.code = code;
            lane->stashed    = TOFU_STASHED;
            tofu_lane_posted(lane); /* so that progress looks there */
            return 0;
        }
    }
    return 1;
}

/* OK: every VCQ rings, or has none to ring it and *timer_p is set. */
static tofu_status_t tofu_wakeup_bells(const tofu_iface_t *iface, int *timer_p)
{
    const struct tofu_doorbell *page;
    unsigned                   i;

    for (i = 0; i < TOFU_MAX_TNIS; ++i) {
        page = iface->wakeup->bell[i];
        if (iface->lane[i] == NULL) {
            continue;
        }
        if (page == NULL) {
            *timer_p = 1;
        } else if (!atomic_load_explicit(&page->acknowledged, memory_order_relaxed)) {
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

    if ((am->short_of_slots && !tofu_list_empty(&am->jobs)) || (iface->suspects > 0)) {
        us = TOFU_TICK_MS * 1000; /* slots are recalled, peers asked whether they are there */
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
    tofu_am_sleepy(iface->am); /* a message without notice does not ring */
    if (tofu_wakeup_ready(iface, &soon)) {
        return TOFU_ERR_BUSY;
    }
    if (iface->fatal) {
        return TOFU_ERR_IO_ERROR; /* nothing comes any more */
    }
    /* Permits were revoked, but who has not answered may have looked before that: its
     * message would come without a ring. */
    soon   |= (iface->num_polled > 0);
    drained = tofu_wakeup_drain(wakeup);
    if (drained <= 0) {
        return (drained == 0) ? TOFU_ERR_BUSY :
                                tofu_wakeup_errno(iface, "recv");
    }
    status = tofu_wakeup_open_bells(iface);
    if (status != TOFU_OK) {
        return status;
    }
    tofu_wakeup_state(wakeup, TOFU_DOORBELL_ARM);
    status = tofu_wakeup_queues_empty(iface) &&
                             !tofu_wakeup_polled_ready(iface) ?
                     tofu_wakeup_bells(iface, &soon) :
                     TOFU_ERR_BUSY;
    if (status == TOFU_OK) {
        status = tofu_wakeup_start_timer(iface, soon);
    }
    if (status != TOFU_OK) {
        tofu_wakeup_state(wakeup, TOFU_DOORBELL_IDLE);
    }
    return status;
}
