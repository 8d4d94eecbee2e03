/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of the program's own that it maps for its peers (as MPI_Win_create does), and what a
 * program does with such memory meanwhile: writes to it, sends from it, forks, unmaps and
 * maps it again, frees it while UCP's cache still has it registered.  The peer gets, puts and
 * adds; both sides look at every byte.
 *
 * Usage: ucp_windows windows|messages <seed> [nofork]
 * messages: the same memory, never mapped, only sent by rendezvous.
 * nofork: for where a child does not have registered memory, as on the machine.
 */
#include "ucp_support.h"

#include <sys/mman.h>
#include <sys/wait.h>

#define ROUNDS  300
#define WINDOWS 5u
#define MOST    (3ul << 20)
#define TAG     5

struct window {
    uint8_t   *memory;
    size_t    length;
    unsigned  seed;  /* what is in it */
    int       mmaped;
    ucp_mem_h memh; /* NULL: not mapped for peers */
};

struct order {
    uint64_t address, length; /* 0: that was all */
    unsigned seed, next;      /* what is in it, and what shall be */
    int      by_message;
    size_t   key_length;
};

static unsigned state;
static int      forks;

static unsigned chance(unsigned n)
{
    state = state * 1103515245u + 12345u;
    return (state >> 8) % n;
}

static void window_new(struct window *window)
{
    static const size_t most[] = {300, 5000, 70000, 300000, MOST};

    window->length = 8 + chance((unsigned)most[chance(5)]);
    window->mmaped = chance(4) == 0;
    window->memory = window->mmaped ?
                             mmap(NULL, window->length, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) :
                             malloc(window->length);
    CHECK((window->memory != NULL) && (window->memory != MAP_FAILED));
    window->seed = chance(1000);
    fill(window->memory, window->length, window->seed);
}

static void window_free(struct window *window)
{
    if (window->mmaped) {
        munmap(window->memory, window->length);
    } else {
        free(window->memory);
    }
    window->memory = NULL;
}

static void window_map(ucp_context_h context, struct window *window)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                      UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .address    = window->memory,
        .length     = window->length
    };

    CHECK_STATUS(ucp_mem_map(context, &params, &window->memh));
}

static void window_unmap(ucp_context_h context, struct window *window)
{
    if (window->memh != NULL) {
        CHECK_STATUS(ucp_mem_unmap(context, window->memh));
        window->memh = NULL;
    }
}

/* What a child does to its copy is its own. */
static void fork_with(struct window *windows)
{
    pid_t pid = fork();
    int   status;

    CHECK(pid >= 0);
    if (pid == 0) {
        for (unsigned i = 0; i < WINDOWS; ++i) {
            if (windows[i].memory != NULL) {
                verify(windows[i].memory, windows[i].length, windows[i].seed);
                memset(windows[i].memory, 0xee, windows[i].length);
            }
        }
        _exit(0);
    }
    CHECK((waitpid(pid, &status, 0) == pid) && (status == 0));
    for (unsigned i = 0; i < WINDOWS; ++i) {
        if (windows[i].memory != NULL) {
            verify(windows[i].memory, windows[i].length, windows[i].seed);
        }
    }
}

/* The client does as it is told with the window. */
static void let_use(int fd, ucp_context_h context, ucp_worker_h worker, ucp_ep_h ep,
                    struct window *window, int by_message)
{
    struct order order = {(uintptr_t)window->memory, window->length, window->seed,
                          chance(1000), by_message, 0};
    void         *key = NULL, *request;
    char         done = 0;

    if (!by_message) {
        CHECK_STATUS(ucp_rkey_pack(context, window->memh, &key, &order.key_length));
    }
    send_all(fd, &order, sizeof(order));
    if (by_message) {
        request = tag_send(ep, window->memory, window->length, TAG);
        CHECK_STATUS(wait_status(worker, request));
        request = tag_recv(worker, window->memory, window->length, TAG);
        CHECK_STATUS(wait_status(worker, request));
    } else {
        send_all(fd, key, order.key_length);
        ucp_rkey_buffer_release(key);
    }
    while (recv(fd, &done, 1, MSG_DONTWAIT) != 1) {
        ucp_worker_progress(worker);
    }
    verify(window->memory, window->length, order.next);
    window->seed = order.next;
}

static void serve(int fd, ucp_context_h context, ucp_worker_h worker, ucp_ep_h ep,
                  int mapped)
{
    struct window windows[WINDOWS] = {{0}};
    struct order  none             = {0};

    for (unsigned round = 0; round < ROUNDS; ++round) {
        struct window *window = &windows[chance(WINDOWS)];

        if (window->memory == NULL) {
            window_new(window);
        }
        if (mapped && (window->memh == NULL)) {
            window_map(context, window);
        }
        let_use(fd, context, worker, ep, window, !mapped || (chance(4) == 0));
        switch (chance(8)) {
        case 0:
        case 1:
            window_unmap(context, window); /* the cache keeps it */
            if (chance(2)) {
                window->seed = chance(1000);
                fill(window->memory, window->length, window->seed);
            }
            break;
        case 2:
        case 3:
            window_unmap(context, window);
            window_free(window);
            break;
        case 4:
            if (!window->mmaped) {
                window_unmap(context, window);
                window->memory = realloc(window->memory, window->length + MOST / 3);
                CHECK(window->memory != NULL);
                verify(window->memory, window->length, window->seed);
            }
            break;
        case 5:
            if (forks) {
                fork_with(windows);
            }
            break;
        default:
            break;
        }
    }
    for (unsigned i = 0; i < WINDOWS; ++i) {
        window_unmap(context, &windows[i]);
        if (windows[i].memory != NULL) {
            verify(windows[i].memory, windows[i].length, windows[i].seed);
            window_free(&windows[i]);
        }
    }
    send_all(fd, &none, sizeof(none));
}

/* Adds to the first aligned word what makes it the next pattern's; the rest is put. */
static void use_key(int fd, ucp_worker_h worker, ucp_ep_h ep, const struct order *order,
                    uint8_t *data)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE,
                                 .datatype     = ucp_dt_make_contig(8)};
    ucp_request_param_t plain = {0};
    size_t              at    = (size_t)(-order->address & 7);
    char                *key  = malloc(order->key_length);
    uint64_t            before = 0, after, add;
    ucp_rkey_h          rkey;

    CHECK(key != NULL);
    recv_all(fd, key, order->key_length);
    CHECK_STATUS(ucp_ep_rkey_unpack(ep, key, &rkey));
    free(key);
    CHECK_STATUS(wait_status(worker, ucp_get_nbx(ep, data, order->length, order->address, rkey,
                                                 &plain)));
    verify(data, order->length, order->seed);
    if (at + 8 > order->length) {
        at = order->length;
    } else {
        memcpy(&before, data + at, 8);
    }
    fill(data, order->length, order->next);
    CHECK_STATUS(wait_status(worker, ucp_put_nbx(ep, data, at, order->address, rkey, &plain)));
    if (at < order->length) {
        memcpy(&after, data + at, 8);
        add = after - before;
        CHECK_STATUS(wait_status(worker, ucp_atomic_op_nbx(ep, UCP_ATOMIC_OP_ADD, &add, 1,
                                                           order->address + at, rkey, &param)));
        CHECK_STATUS(wait_status(worker, ucp_put_nbx(ep, data + at + 8, order->length - at - 8,
                                                     order->address + at + 8, rkey, &plain)));
    }
    CHECK_STATUS(ep_flush(worker, ep));
    ucp_rkey_destroy(rkey);
}

static void use(int fd, ucp_worker_h worker, ucp_ep_h ep)
{
    uint8_t      *data = malloc(2 * MOST);
    struct order order;

    CHECK(data != NULL);
    for (;;) {
        recv_all(fd, &order, sizeof(order));
        if (order.length == 0) {
            break;
        }
        if (order.by_message) {
            CHECK_STATUS(wait_status(worker, tag_recv(worker, data, order.length, TAG)));
            verify(data, order.length, order.seed);
            fill(data, order.length, order.next);
            CHECK_STATUS(wait_status(worker, tag_send(ep, data, order.length, TAG)));
        } else {
            use_key(fd, worker, ep, &order, data);
        }
        send_all(fd, "d", 1);
    }
    free(data);
}

int main(int argc, char **argv)
{
    int           fds[2], server, fd, status = 0;
    ucp_context_h context;
    ucp_worker_h  worker;
    ucp_ep_h      ep;
    pid_t         pid;

    CHECK((argc == 3) || (argc == 4));
    forks = argc == 3;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    CHECK((pid = fork()) >= 0);
    server = pid != 0;
    state  = (unsigned)strtoul(argv[2], NULL, 0);
    fd     = fds[server];
    close(fds[!server]);
    context = context_open(0);
    worker  = worker_open(context, UCS_THREAD_MODE_SINGLE);
    address_send(fd, worker);
    ep = ep_recv(fd, worker, NULL, NULL);
    if (server) {
        serve(fd, context, worker, ep, strcmp(argv[1], "windows") == 0);
    } else {
        use(fd, worker, ep);
    }
    CHECK_STATUS(ep_close(worker, ep, 0));
    send_all(fd, "c", 1); /* the other one flushes, too, while closing */
    while (recv(fd, &status, 1, MSG_DONTWAIT) != 1) {
        ucp_worker_progress(worker);
    }
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    if (server) {
        CHECK((waitpid(pid, &status, 0) == pid) && (status == 0));
        printf("ok\n");
    }
    return 0;
}
