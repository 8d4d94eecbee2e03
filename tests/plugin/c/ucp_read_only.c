/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucp_read_only.c - what is sent from memory that can't be written, though UCP registers it
 * for every access: tags, active messages, puts; such memory mapped for peers to get from.
 * Usage: ucp_read_only BYTES
 */
#include "ucp_support.h"

#include <sys/mman.h>

static ucp_worker_h worker;
static size_t       arrived;

static ucs_status_t wait_for(void *request)
{
    ucs_status_t status = UCS_PTR_STATUS(request);

    if (UCS_PTR_IS_PTR(request)) {
        while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
            ucp_worker_progress(worker);
        }
        ucp_request_free(request);
    }
    return status;
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data,
                               size_t length, const ucp_am_recv_param_t *param)
{
    ucp_request_param_t none = {0};

    (void)header;
    (void)header_length;
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        void *request = ucp_am_recv_data_nbx(worker, data, arg, length, &none);
        CHECK(!UCS_PTR_IS_ERR(request));
        if (UCS_PTR_IS_PTR(request)) {
            ucp_request_free(request);
        }
        arrived = length;
        return UCS_INPROGRESS;
    }
    memcpy(arg, data, length);
    arrived = length;
    return UCS_OK;
}

int main(int argc, char **argv)
{
    const size_t         bytes = (argc > 1) ? (size_t)atol(argv[1]) : 100000;
    ucp_params_t         params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                   .features   = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AM};
    ucp_worker_params_t  worker_params = {0};
    ucp_ep_params_t      ep_params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_mem_map_params_t map = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                              UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                .length     = bytes};
    ucp_request_param_t  none = {0};
    uint8_t              *from, *to = malloc(bytes);
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                                                    UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                    UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                      .id = 1, .cb = on_message, .arg = to};
    ucp_context_h context;
    ucp_address_t *address;
    ucp_rkey_h    rkey[2];
    ucp_mem_h     memh[2];
    void          *packed[2], *receive;
    size_t        length, i;
    ucp_ep_h      ep;

    CHECK_STATUS(ucp_init(&params, NULL, &context));
    CHECK_STATUS(ucp_worker_create(context, &worker_params, &worker));
    CHECK_STATUS(ucp_worker_set_am_recv_handler(worker, &handler));
    CHECK_STATUS(ucp_worker_get_address(worker, &address, &length));
    ep_params.address = address;
    CHECK_STATUS(ucp_ep_create(worker, &ep_params, &ep));
    from = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(from != MAP_FAILED);
    fill(from, bytes, 3);
    CHECK(mprotect(from, bytes, PROT_READ) == 0);

    receive = ucp_tag_recv_nbx(worker, to, bytes, 1, ~0ull, &none);
    CHECK_STATUS(wait_for(ucp_tag_send_nbx(ep, from, bytes, 1, &none)));
    CHECK_STATUS(wait_for(receive));
    verify(to, bytes, 3);

    memset(to, 0, bytes);
    CHECK_STATUS(wait_for(ucp_am_send_nbx(ep, 1, NULL, 0, from, bytes, &none)));
    while (arrived == 0) {
        ucp_worker_progress(worker);
    }
    CHECK_STATUS(wait_for(ucp_worker_flush_nbx(worker, &none)));
    verify(to, bytes, 3);

    for (i = 0; i < 2; ++i) {
        map.address = (i == 0) ? to : from;
        if (i == 1) {
            map.field_mask |= UCP_MEM_MAP_PARAM_FIELD_PROT;
            map.prot        = UCP_MEM_MAP_PROT_LOCAL_READ | UCP_MEM_MAP_PROT_REMOTE_READ;
        }
        CHECK_STATUS(ucp_mem_map(context, &map, &memh[i]));
        CHECK_STATUS(ucp_rkey_pack(context, memh[i], &packed[i], &length));
        CHECK_STATUS(ucp_ep_rkey_unpack(ep, packed[i], &rkey[i]));
    }
    memset(to, 0, bytes);
    CHECK_STATUS(wait_for(ucp_put_nbx(ep, from, bytes, (uintptr_t)to, rkey[0], &none)));
    CHECK_STATUS(wait_for(ucp_worker_flush_nbx(worker, &none)));
    verify(to, bytes, 3);
    memset(to, 0, bytes);
    CHECK_STATUS(wait_for(ucp_get_nbx(ep, to, bytes, (uintptr_t)from, rkey[1], &none)));
    verify(to, bytes, 3);

    for (i = 0; i < 2; ++i) {
        ucp_rkey_destroy(rkey[i]);
        ucp_rkey_buffer_release(packed[i]);
        CHECK_STATUS(ucp_mem_unmap(context, memh[i]));
    }
    CHECK_STATUS(wait_for(ucp_ep_close_nbx(ep, &none)));
    ucp_worker_release_address(worker, address);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    munmap(from, bytes);
    free(to);
    printf("ok\n");
    return 0;
}
