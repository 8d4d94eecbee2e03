/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys, endpoints and flushes that are ended by their users, through libuct. */
#include "uct_support.h"

ucs_status_t uct_md_mkey_pack_v2(uct_md_h md, uct_mem_h memh, void *address,
                                 size_t length,
                                 const uct_md_mkey_pack_params_t *params,
                                 void *buffer);
ucs_status_t uct_ep_invalidate(uct_ep_h ep,
                               const uct_ep_invalidate_params_t *params);

static struct node origin, target;
static uct_ep_h failed_ep;
static int failures;

static ucs_status_t error_cb(void *arg, uct_ep_h ep, ucs_status_t status)
{
    (void)arg;
    CHECK(status == UCS_ERR_CANCELED);
    failed_ep = ep;
    ++failures;
    return UCS_OK;
}

static ucs_status_t put(uct_ep_h ep, struct region *local, uint64_t address,
                        uct_rkey_t rkey)
{
    uct_iov_t iov = {.buffer = local->data, .length = 64, .memh = local->memh,
                     .count = 1};
    struct comp comp;
    ucs_status_t status;

    comp_init(&comp);
    RETRY(&origin, &target, status,
          uct_ep_put_zcopy(ep, &iov, 1, address, rkey, &comp.super));
    return finish(&origin, &target, status, &comp);
}

static void test_key(uct_ep_h ep, struct region *local)
{
    uct_md_mem_dereg_params_t dereg = {
        .field_mask = UCT_MD_MEM_DEREG_FIELD_MEMH |
                      UCT_MD_MEM_DEREG_FIELD_FLAGS,
        .flags      = UCT_MD_MEM_DEREG_FLAG_INVALIDATE
    };
    uct_md_mkey_pack_params_t pack = {
        .field_mask = UCT_MD_MKEY_PACK_FIELD_FLAGS,
        .flags      = UCT_MD_MKEY_PACK_FLAG_INVALIDATE_RMA |
                      UCT_MD_MKEY_PACK_FLAG_INVALIDATE_AMO
    };
    uint8_t *memory = calloc(1, 10000), packed[256];
    uint64_t base   = (uintptr_t)memory;
    uct_rkey_bundle_t rkey;
    uct_mem_h memh;
    struct comp comp;
    void *pointer;

    CHECK_OK(uct_md_mem_reg(target.md, memory, 10000, UCT_MD_MEM_ACCESS_ALL,
                            &memh));
    CHECK_OK(uct_md_mkey_pack_v2(target.md, memh, memory, 10000, &pack, packed));
    pack.flags = UCT_MD_MKEY_PACK_FLAG_EXPORT;
    CHECK_STATUS(uct_md_mkey_pack_v2(target.md, memh, memory, 10000, &pack,
                                     packed + 128), UCS_ERR_UNSUPPORTED);
    CHECK_OK(uct_rkey_unpack(origin.component, packed, &rkey));
    CHECK_OK(uct_rkey_ptr(origin.component, &rkey, base + 5, &pointer));
    CHECK(pointer == memory + 5);
    CHECK_STATUS(uct_rkey_ptr(origin.component, &rkey, base + 10000, &pointer),
                 UCS_ERR_INVALID_ADDR);
    region_fill(local, 1);
    CHECK_OK(put(ep, local, base, rkey.rkey));
    CHECK(!memcmp(memory, local->data, 64));
    memset(memory, 0, 10000);

    /* without a completion nothing is done; with one it is done at once */
    dereg.memh = memh;
    CHECK_STATUS(uct_md_mem_dereg_v2(target.md, &dereg), UCS_ERR_INVALID_PARAM);
    CHECK_OK(put(ep, local, base + 64, rkey.rkey));
    comp_init(&comp);
    dereg.field_mask |= UCT_MD_MEM_DEREG_FIELD_COMPLETION;
    dereg.comp        = &comp.super;
    CHECK_OK(uct_md_mem_dereg_v2(target.md, &dereg));
    CHECK(comp.calls == 1);
    memset(memory, 0, 10000);
    CHECK_STATUS(put(ep, local, base, rkey.rkey), UCS_ERR_IO_ERROR);
    CHECK(memory[0] == 0);
    CHECK_STATUS(uct_rkey_ptr(origin.component, &rkey, base, &pointer),
                 UCS_ERR_UNREACHABLE);
    CHECK_OK(uct_rkey_release(origin.component, &rkey));
    free(memory);
}

int main(void)
{
    struct region local, remote;
    struct address address;
    ucs_status_t status;
    struct comp comp;
    uct_ep_h ep, other;

    node_open(&origin, error_cb, NULL);
    node_open(&target, NULL, NULL);
    node_address(&target, &address);
    region_open(&origin, &local, 4096, 0);
    region_open(&target, &remote, 4096, 1);
    ep    = node_connect(&origin, &address);
    other = node_connect(&origin, &address);

    test_key(ep, &local);
    RETRY(&origin, &target, status, uct_ep_flush(ep, 0, NULL)); /* its error */

    CHECK_OK(uct_ep_invalidate(ep, NULL));
    WAIT(&origin, &target, failures > 0);
    CHECK(failed_ep == ep);
    CHECK_STATUS(put(ep, &local, (uintptr_t)remote.data, remote.rkey.rkey),
                 UCS_ERR_CANCELED);
    CHECK_OK(put(other, &local, (uintptr_t)remote.data, remote.rkey.rkey));

    comp_init(&comp);
    RETRY(&origin, &target, status,
          uct_ep_flush(other, UCT_FLUSH_FLAG_CANCEL, &comp.super));
    CHECK_OK(finish(&origin, &target, status, &comp));
    CHECK_STATUS(put(other, &local, (uintptr_t)remote.data, remote.rkey.rkey),
                 UCS_ERR_CANCELED);
    CHECK(failures == 1);

    uct_ep_destroy(other);
    uct_ep_destroy(ep);
    region_close(&target, &remote);
    region_close(&origin, &local);
    node_close(&target);
    node_close(&origin);
    printf("ok\n");
    return 0;
}
