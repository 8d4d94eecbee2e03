/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * glue_listener.h - closing a listener while clients come.
 *
 * UCX 1.22 frees a listener although connections refer to it: those that its tcp
 * connection manager has accepted, and whose first message has not come.  When it
 * comes, UCX's own thread calls into freed memory (UCX's issue 11087).  So before a
 * listener is destroyed
 *
 *   1. a filter on its socket drops what comes, so that no further client gets in
 *   2. those that are in, and that UCP has not heard of, are shut for reading; UCX
 *      reads the end of their stream and forgets them, without a look at the listener
 *
 * until there are none.
 */
#ifndef GLUE_LISTENER_H
#define GLUE_LISTENER_H

#include <ucp/api/ucp.h>

#include <dirent.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

typedef struct sockaddr_storage glue_sockaddr_t;

static inline int glue_is_inet(const glue_sockaddr_t *a)
{
    return (a->ss_family == AF_INET) || (a->ss_family == AF_INET6);
}

/* AF_INET and AF_INET6 have the port at the same place. */
static inline in_port_t glue_port(const glue_sockaddr_t *a)
{
    return ((const struct sockaddr_in *)a)->sin_port;
}

static inline int glue_same_host(const glue_sockaddr_t *a, const glue_sockaddr_t *b)
{
    if (a->ss_family != b->ss_family) {
        return 0;
    }
    if (a->ss_family == AF_INET) {
        return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)b)->sin_addr.s_addr;
    }
    return memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
                  &((const struct sockaddr_in6 *)b)->sin6_addr,
                  sizeof(struct in6_addr)) == 0;
}

static inline int glue_any_host(const glue_sockaddr_t *a)
{
    static const struct in6_addr any6 = IN6ADDR_ANY_INIT;

    if (a->ss_family == AF_INET) {
        return ((const struct sockaddr_in *)a)->sin_addr.s_addr == INADDR_ANY;
    }
    return memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr, &any6,
                  sizeof(any6)) == 0;
}

/* Does the socket belong to the listener at this address? */
static inline int glue_belongs(int fd, const glue_sockaddr_t *listener)
{
    glue_sockaddr_t local;
    socklen_t length = sizeof(local);

    return (getsockname(fd, (struct sockaddr *)&local, &length) == 0) &&
           (local.ss_family == listener->ss_family) &&
           (glue_port(&local) == glue_port(listener)) &&
           (glue_any_host(listener) || glue_same_host(&local, listener));
}

/* 1: the listening socket; 0: a connection. */
static inline int glue_is_listening(int fd)
{
    int value        = 0;
    socklen_t length = sizeof(value);

    return (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &length) == 0) && value;
}

/*
 * Drop all that comes to the listener's socket.  Returns 1 while clients that came
 * before wait to be accepted by UCX's thread.
 */
static inline unsigned glue_stop_listening(DIR *folder, const glue_sockaddr_t *listener)
{
    struct sock_filter nothing = {BPF_RET | BPF_K, 0, 0, 0};
    struct sock_fprog filter   = {1, &nothing};
    unsigned wait              = 0;
    struct pollfd queue        = {-1, POLLIN, 0};
    struct dirent *entry;
    int fd;

    while ((entry = readdir(folder)) != NULL) {
        fd = atoi(entry->d_name); /* of "." and "..": 0, which is no harm */
        if (glue_belongs(fd, listener) && glue_is_listening(fd)) {
            /* without filters clients may still come; what is done here helps less */
            (void)setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter,
                             sizeof(filter));
            queue.fd = fd;
            wait    |= poll(&queue, 1, 0) > 0;
        }
    }
    return wait;
}

/* Shut connections of the listener other than those of known clients; returns how
 * many there are. */
static inline unsigned glue_shut_strangers(DIR *folder, const glue_sockaddr_t *listener,
                                           const glue_sockaddr_t *known, size_t count)
{
    unsigned strangers = 0;
    struct dirent *entry;
    glue_sockaddr_t peer;
    socklen_t length;
    size_t i;
    int fd;

    while ((entry = readdir(folder)) != NULL) {
        fd     = atoi(entry->d_name);
        length = sizeof(peer);
        if (!glue_belongs(fd, listener) || glue_is_listening(fd) ||
            /* ended: nothing comes any more */
            (getpeername(fd, (struct sockaddr *)&peer, &length) != 0)) {
            continue;
        }
        for (i = 0; i < count; ++i) {
            if ((glue_port(&peer) == glue_port(&known[i])) &&
                glue_same_host(&peer, &known[i])) {
                break;
            }
        }
        if (i == count) {
            (void)shutdown(fd, SHUT_RD);
            ++strangers;
        }
    }
    return strangers;
}

/* Wait until UCX's thread is not inside UCP: UCP makes no endpoint that leads
 * nowhere, and finds that out with the lock that the thread takes. */
static inline void glue_wait_async(ucp_worker_h worker)
{
    ucp_ep_params_t params = {0};
    ucp_ep_h ep;

    (void)ucp_ep_create(worker, &params, &ep);
}

/*
 * One pass.  `known` are the clients of connections that UCP has told of.  Returns how
 * many others there are, and clients that wait to be accepted.
 */
static inline unsigned glue_shut_half_open(ucp_worker_h worker,
                                           const glue_sockaddr_t *listener,
                                           const glue_sockaddr_t *known, size_t count)
{
    DIR *folder = glue_is_inet(listener) ? opendir("/proc/self/fd") : NULL;
    unsigned left;

    if (folder == NULL) {
        return 0;
    }
    left = glue_stop_listening(folder, listener);
    glue_wait_async(worker); /* it may have taken one that is not among the fds yet */
    rewinddir(folder);
    left += glue_shut_strangers(folder, listener, known, count);
    closedir(folder);
    return left;
}

#endif /* GLUE_LISTENER_H */
