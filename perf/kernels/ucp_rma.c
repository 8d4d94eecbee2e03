/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucp_rma.c - put and get of UCP into memory from malloc.
 *
 * ucx_perftest lets UCP allocate its memory; this one registers memory that the
 * program has already.
 * put_lat: ping-pong, the target polls the last byte while it drives UCP.
 * get_lat: one get after the other.  put_bw, get_bw: WINDOW operations in
 * flight, flushed at the end of each chunk.
 *
 * Usage: ucp_rma <cpu0> <cpu1> <memory> <size> <iterations> <test> <UCX_TLS>
 */
#define _GNU_SOURCE
#include "common.h"

#include <ucp/api/ucp.h>

#define WINDOW   16
#define BLOB_MAX 4096

#define UCP_CHECK(_call) \
    do { \
        ucs_status_t _status = (_call); \
        PERF_CHECK(_status == UCS_OK, "%s: %s", #_call, \
                   ucs_status_string(_status)); \
    } while (0)

struct side {
    size_t   address_length, key_length;
    uint64_t memory;
    char     address[BLOB_MAX], key[BLOB_MAX];
};

static ucp_context_h context;
static ucp_worker_h  worker;
static ucp_ep_h      ep;
static ucp_rkey_h    rkey;

static void wait_for(void *request)
{
    ucs_status_t status;

    PERF_CHECK(!UCS_PTR_IS_ERR(request), "a request: %s",
               ucs_status_string(UCS_PTR_STATUS(request)));
    if (request == NULL) {
        return;
    }
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
        ucp_worker_progress(worker);
    }
    PERF_CHECK(status == UCS_OK, "a request: %s", ucs_status_string(status));
    ucp_request_free(request);
}

static void flush(void)
{
    ucp_request_param_t param = {0};

    wait_for(ucp_worker_flush_nbx(worker, &param));
}

static void open_ucp(const char *tls)
{
    ucp_params_t        params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                  .features   = UCP_FEATURE_RMA};
    ucp_worker_params_t worker_params = {
        .field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SINGLE
    };
    ucp_config_t *config;

    UCP_CHECK(ucp_config_read(NULL, NULL, &config));
    UCP_CHECK(ucp_config_modify(config, "TLS", tls));
    UCP_CHECK(ucp_init(&params, config, &context));
    ucp_config_release(config);
    UCP_CHECK(ucp_worker_create(context, &worker_params, &worker));
}

static ucp_mem_h map(void *memory, size_t length, struct side *mine)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                      UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .address    = memory,
        .length     = length
    };
    ucp_mem_h memh;
    void      *key;

    UCP_CHECK(ucp_mem_map(context, &params, &memh));
    UCP_CHECK(ucp_rkey_pack(context, memh, &key, &mine->key_length));
    PERF_CHECK(mine->key_length <= BLOB_MAX, "a long rkey");
    memcpy(mine->key, key, mine->key_length);
    ucp_rkey_buffer_release(key);
    mine->memory = (uintptr_t)memory;
    return memh;
}

static void connect_to(const struct perf_pair *pair, struct side *mine,
                       struct side *peer)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_address_t   *address;

    UCP_CHECK(ucp_worker_get_address(worker, &address, &mine->address_length));
    PERF_CHECK(mine->address_length <= BLOB_MAX, "a long address");
    memcpy(mine->address, address, mine->address_length);
    ucp_worker_release_address(worker, address);
    perf_exchange(pair, mine, peer, sizeof(*mine));
    params.address = (ucp_address_t*)peer->address;
    UCP_CHECK(ucp_ep_create(worker, &params, &ep));
    UCP_CHECK(ucp_ep_rkey_unpack(ep, peer->key, &rkey));
}

/* Both drive UCP until both are there. */
static void meet(const struct perf_pair *pair)
{
    char byte = 'b';

    PERF_CHECK(write(pair->fd, &byte, 1) == 1, "the other process is gone");
    while (recv(pair->fd, &byte, 1, MSG_DONTWAIT) != 1) {
        PERF_CHECK((errno == EAGAIN) || (errno == EINTR),
                   "the other process is gone");
        ucp_worker_progress(worker);
    }
}

static void *start_one(int is_get, void *buffer, size_t size, uint64_t remote,
                       ucp_mem_h memh)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_MEMH,
                                 .memh         = memh};

    return is_get ? ucp_get_nbx(ep, buffer, size, remote, rkey, &param) :
                    ucp_put_nbx(ep, buffer, size, remote, rkey, &param);
}

static void pingpong(int rank, volatile uint8_t *in, uint8_t *out, size_t size,
                     uint64_t remote, ucp_mem_h memh, long iterations,
                     uint8_t *value_p)
{
    uint8_t value = *value_p;
    long    i;

    for (i = 0; i < iterations; ++i) {
        value         = value % 251 + 1;
        out[size - 1] = value;
        if (rank == 0) {
            wait_for(start_one(0, out, size, remote, memh));
        }
        while (in[size - 1] != value) {
            ucp_worker_progress(worker);
        }
        if (rank == 1) {
            wait_for(start_one(0, out, size, remote, memh));
        }
    }
    *value_p = value;
}

static void stream(int is_get, int window, void *buffer, size_t size,
                   uint64_t remote, ucp_mem_h memh, long iterations)
{
    void *requests[WINDOW] = {NULL};
    long i;

    for (i = 0; i < iterations; ++i) {
        wait_for(requests[i % window]);
        requests[i % window] = start_one(is_get, buffer, size, remote, memh);
    }
    for (i = 0; i < window; ++i) {
        wait_for(requests[i]);
    }
    flush();
}

int main(int argc, char **argv)
{
    static struct side  mine, peer;
    ucp_request_param_t param = {0};
    struct perf_pair    pair;
    uint8_t             *memory, *out, value = 0;
    size_t              size, out_offset;
    ucp_mem_h           memh;
    double              times[PERF_CHUNKS], start;
    int                 chunk, is_get, is_pingpong, window;
    long                iterations;

    PERF_CHECK(argc == 8, "usage: %s cpu0 cpu1 memory size iterations test tls",
               argv[0]);
    size       = strtoull(argv[4], NULL, 0);
    iterations = (atol(argv[5]) + PERF_CHUNKS - 1) / PERF_CHUNKS;
    is_get     = !strncmp(argv[6], "get", 3);
    window     = !strcmp(argv[6] + 3, "_bw") ? WINDOW : 1;
    is_pingpong = !is_get && (window == 1);
    PERF_CHECK((size > 0) && (iterations > 0), "size and iterations");
    perf_pair_start(&pair, atoi(argv[1]), atoi(argv[2]));

    open_ucp(argv[7]);
    /* what comes in, and page-aligned behind it what goes out */
    out_offset = (size + 4095) & ~(size_t)4095;
    memory     = perf_memory(argv[3], out_offset + size);
    out        = memory + out_offset;
    memh       = map(memory, out_offset + size, &mine);
    connect_to(&pair, &mine, &peer);
    /* the endpoint is wired up by the first operation */
    wait_for(start_one(1, out, size, peer.memory, memh));
    memset(out, 0, size);
    meet(&pair);

    for (chunk = -PERF_WARMUP; chunk < PERF_CHUNKS; ++chunk) {
        start = perf_now();
        if (is_pingpong) {
            pingpong(pair.rank, memory, out, size, peer.memory, memh,
                     iterations, &value);
        } else if (pair.rank == 0) {
            stream(is_get, window, out, size, peer.memory, memh, iterations);
        }
        if (chunk >= 0) {
            times[chunk] = perf_now() - start;
        }
    }
    flush();
    if (pair.rank == 0) {
        perf_report(times, is_pingpong ? 2 * iterations : iterations);
    }
    meet(&pair);
    ucp_rkey_destroy(rkey);
    wait_for(ucp_ep_close_nbx(ep, &param));
    meet(&pair);
    UCP_CHECK(ucp_mem_unmap(context, memh));
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    return perf_pair_end(&pair);
}
