/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * UCP with threads, between two processes, all data checked.  Argument:
 * "shared": all threads of a process use one worker in multi-threaded mode;
 * "own": each thread has a worker of its own, on one context.
 * Each thread talks with the thread of the same number in the other process, both
 * ways at once, by messages, by put and get, and by one counter that all threads
 * of both processes add to.  Buffers are made anew, so memory is registered and
 * released all the time.
 */
#include "ucp_support.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <signal.h>
#include <stdatomic.h>

#define THREADS 2
#define WINDOW  8
#define MESSAGES 96
#define ADDS    500
#define REGION  (1ul << 20)

static const size_t sizes[] = {0, 8, 33, 1000, 8192, 8193, 40000, 300001};
#define NUM_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static ucp_context_h context;
static int shared_worker, first;
static atomic_uint finished; /* threads of this process that need no endpoint */

struct thread {
    pthread_t    thread;
    unsigned     number;
    ucp_worker_h worker;
    ucp_ep_h     ep;
    int          fd;     /* to the thread of the same number */
    ucp_mem_h    memh;   /* what the other thread writes and reads */
    uint8_t      *region;
    uint64_t     remote, counter;
    ucp_rkey_h   rkey, counter_rkey;
};

/* Meet the other thread, with progress for its sake. */
static void meet(struct thread *thread)
{
    double end = now() + PATIENCE;
    char byte  = 0;

    send_all(thread->fd, &byte, 1);
    while (recv(thread->fd, &byte, 1, MSG_DONTWAIT) != 1) {
        ucp_worker_progress(thread->worker);
        CHECK(now() < end);
    }
}

/*
 * Meet all threads of both processes.  On one worker, UCP connects the endpoints of
 * two workers in the order in which they were made, so this thread's endpoint may be
 * the other end of any thread's; it is open until all of them are finished.
 */
static void meet_all(struct thread *thread)
{
    double end = now() + PATIENCE;

    meet(thread);
    atomic_fetch_add(&finished, 1);
    while (atomic_load(&finished) < THREADS) {
        ucp_worker_progress(thread->worker);
        CHECK(now() < end);
    }
}

static unsigned seed_of(unsigned sender, unsigned number, unsigned message)
{
    return (message * 7) + (number * 3) + sender;
}

/* WINDOW messages each way at a time; each has a tag of its own. */
static void messages(struct thread *thread)
{
    uint8_t *in[WINDOW], *out[WINDOW];
    void *sends[WINDOW], *recvs[WINDOW];
    unsigned start, i, number;
    ucp_tag_t tag;

    for (start = 0; start < MESSAGES; start += WINDOW) {
        for (i = 0; i < WINDOW; ++i) {
            size_t length = sizes[(start + i + (start / WINDOW)) % NUM_SIZES];

            number = start + i;
            tag    = ((ucp_tag_t)thread->number << 32) | number;
            CHECK((in[i] = malloc(length + 1)) != NULL);
            CHECK((out[i] = malloc(length + 1)) != NULL);
            memset(in[i], 0xee, length);
            fill(out[i], length, seed_of(first, thread->number, number));
            recvs[i] = tag_recv(thread->worker, in[i], length, tag);
            sends[i] = tag_send(thread->ep, out[i], length, tag);
        }
        for (i = 0; i < WINDOW; ++i) {
            size_t length = sizes[(start + i + (start / WINDOW)) % NUM_SIZES];

            number = start + i;
            CHECK_STATUS(wait_status(thread->worker, recvs[i]));
            CHECK_STATUS(wait_status(thread->worker, sends[i]));
            verify(in[i], length, seed_of(!first, thread->number, number));
            free(in[i]);
            free(out[i]);
        }
    }
}

static void one_sided(struct thread *thread)
{
    ucp_request_param_t param = {0};
    unsigned turn;

    for (turn = 0; turn < 24; ++turn) {
        size_t length = sizes[turn % NUM_SIZES];
        uint8_t *data = malloc(length + 1);

        CHECK(data != NULL);
        fill(data, length, seed_of(first, thread->number, turn));
        CHECK_STATUS(wait_status(thread->worker,
                                 ucp_put_nbx(thread->ep, data, length,
                                             thread->remote, thread->rkey,
                                             &param)));
        CHECK_STATUS(ep_flush(thread->worker, thread->ep));
        meet(thread);
        verify(thread->region, length, seed_of(!first, thread->number, turn));
        memset(data, 0xee, length);
        CHECK_STATUS(wait_status(thread->worker,
                                 ucp_get_nbx(thread->ep, data, length,
                                             thread->remote, thread->rkey,
                                             &param)));
        verify(data, length, seed_of(first, thread->number, turn));
        meet(thread);
        free(data);
    }
}

static void add(struct thread *thread)
{
    ucp_request_param_t param = {0};
    uint64_t one = 1, old, last = 0;
    unsigned i;

    param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE |
                         UCP_OP_ATTR_FIELD_REPLY_BUFFER;
    param.datatype     = ucp_dt_make_contig(8);
    param.reply_buffer = &old;
    for (i = 0; i < ADDS; ++i) {
        CHECK_STATUS(wait_status(thread->worker,
                                 ucp_atomic_op_nbx(thread->ep, UCP_ATOMIC_OP_ADD,
                                                   &one, 1, thread->counter,
                                                   thread->counter_rkey,
                                                   &param)));
        CHECK((i == 0) || (old > last));
        last = old;
    }
}

static void region_send(struct thread *thread, void *address, size_t length,
                        ucp_mem_h *memh_p)
{
    ucp_mem_map_params_t params = {0};
    uint64_t remote = (uintptr_t)address;
    void *packed;
    size_t size;

    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                        UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address    = address;
    params.length     = length;
    CHECK_STATUS(ucp_mem_map(context, &params, memh_p));
    CHECK_STATUS(ucp_rkey_pack(context, *memh_p, &packed, &size));
    send_all(thread->fd, &remote, sizeof(remote));
    send_all(thread->fd, &size, sizeof(size));
    send_all(thread->fd, packed, size);
    ucp_rkey_buffer_release(packed);
}

static void region_recv(struct thread *thread, uint64_t *remote_p,
                        ucp_rkey_h *rkey_p)
{
    size_t size;
    void *packed;

    recv_all(thread->fd, remote_p, sizeof(*remote_p));
    recv_all(thread->fd, &size, sizeof(size));
    CHECK((packed = malloc(size)) != NULL);
    recv_all(thread->fd, packed, size);
    CHECK_STATUS(ucp_ep_rkey_unpack(thread->ep, packed, rkey_p));
    free(packed);
}

/* One counter of each process, which the other's threads count up. */
static uint64_t counter __attribute__((aligned(64)));

static void *thread_main(void *arg)
{
    struct thread *thread = arg;
    ucp_mem_h counter_memh;

    if (!shared_worker) {
        thread->worker = worker_open(context, UCS_THREAD_MODE_SINGLE);
    }
    address_send(thread->fd, thread->worker);
    thread->ep = ep_recv(thread->fd, thread->worker, NULL, NULL);
    CHECK((thread->region = calloc(1, REGION)) != NULL);
    region_send(thread, thread->region, REGION, &thread->memh);
    region_recv(thread, &thread->remote, &thread->rkey);
    region_send(thread, &counter, sizeof(counter), &counter_memh);
    region_recv(thread, &thread->counter, &thread->counter_rkey);

    messages(thread);
    one_sided(thread);
    add(thread);

    meet_all(thread);
    ucp_rkey_destroy(thread->rkey);
    ucp_rkey_destroy(thread->counter_rkey);
    CHECK_STATUS(ep_close(thread->worker, thread->ep, 0));
    meet(thread);
    CHECK_STATUS(ucp_mem_unmap(context, thread->memh));
    CHECK_STATUS(ucp_mem_unmap(context, counter_memh));
    free(thread->region);
    if (!shared_worker) {
        ucp_worker_destroy(thread->worker);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct thread threads[THREADS] = {0};
    int fds[THREADS][2], wstatus;
    ucp_worker_h worker = NULL;
    unsigned i;
    pid_t pid;

    CHECK(argc == 2);
    shared_worker = !strcmp(argv[1], "shared");
    for (i = 0; i < THREADS; ++i) {
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds[i]) == 0);
    }
    CHECK((pid = fork()) >= 0);
    first = (pid != 0);
    if (!first) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }

    context = context_open(1);
    if (shared_worker) {
        worker = worker_open(context, UCS_THREAD_MODE_MULTI);
    }
    for (i = 0; i < THREADS; ++i) {
        close(fds[i][!first]);
        threads[i].fd     = fds[i][first];
        threads[i].number = i;
        threads[i].worker = worker;
        CHECK(pthread_create(&threads[i].thread, NULL, thread_main,
                             &threads[i]) == 0);
    }
    for (i = 0; i < THREADS; ++i) {
        CHECK(pthread_join(threads[i].thread, NULL) == 0);
    }
    CHECK(counter == (THREADS * ADDS));
    if (shared_worker) {
        ucp_worker_destroy(worker);
    }
    ucp_cleanup(context);
    if (first) {
        CHECK(waitpid(pid, &wstatus, 0) == pid);
        CHECK(WIFEXITED(wstatus) && (WEXITSTATUS(wstatus) == 0));
        printf("ok\n");
    }
    return 0;
}
