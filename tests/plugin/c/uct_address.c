/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an interface says about itself, and what it makes of bytes from others:
 * addresses, remote keys, parameters.  Nothing here may crash or be believed.
 */
#include "uct_support.h"

#include <sys/mman.h>

static struct node node1, node2;
static struct address address1, address2;

static int reachable(const struct address *address, size_t device_len,
                     size_t iface_len, int scope, char *info, size_t info_len)
{
    uct_iface_is_reachable_params_t params;

    memset(&params, 0, sizeof(params));
    params.field_mask  = UCT_IFACE_IS_REACHABLE_FIELD_DEVICE_ADDR |
                         UCT_IFACE_IS_REACHABLE_FIELD_IFACE_ADDR;
    params.device_addr = (const uct_device_addr_t*)address->device;
    params.iface_addr  = (const uct_iface_addr_t*)address->iface;
    if (device_len != SIZE_MAX) {
        params.field_mask |= UCT_IFACE_IS_REACHABLE_FIELD_DEVICE_ADDR_LENGTH |
                             UCT_IFACE_IS_REACHABLE_FIELD_IFACE_ADDR_LENGTH;
        params.device_addr_length = device_len;
        params.iface_addr_length  = iface_len;
    }
    if (info != NULL) {
        params.field_mask |= UCT_IFACE_IS_REACHABLE_FIELD_INFO_STRING |
                             UCT_IFACE_IS_REACHABLE_FIELD_INFO_STRING_LENGTH;
        params.info_string        = info;
        params.info_string_length = info_len;
    }
    if (scope >= 0) {
        params.field_mask |= UCT_IFACE_IS_REACHABLE_FIELD_SCOPE;
        params.scope       = scope;
    }
    return uct_iface_is_reachable_v2(node1.iface, &params);
}

static void test_reachable(void)
{
    const size_t dev_len   = node1.attr.device_addr_len;
    const size_t iface_len = node1.attr.iface_addr_len;
    char info[128], tiny[4] = {'x', 'x', 'x', 'x'};
    uct_iface_is_reachable_params_t params;
    struct address bad;
    size_t i;

    CHECK(reachable(&address2, SIZE_MAX, 0, -1, NULL, 0));
    CHECK(reachable(&address2, dev_len, iface_len, -1, info, sizeof(info)));
    CHECK(reachable(&address2, dev_len, iface_len,
                    UCT_IFACE_REACHABILITY_SCOPE_NETWORK, NULL, 0));
    CHECK(reachable(&address2, dev_len, iface_len,
                    UCT_IFACE_REACHABILITY_SCOPE_DEVICE, NULL, 0));
    CHECK(reachable(&address1, SIZE_MAX, 0, -1, NULL, 0)); /* itself */
    CHECK(uct_iface_is_reachable(node1.iface,
                                 (const uct_device_addr_t*)address2.device,
                                 (const uct_iface_addr_t*)address2.iface));

    /* The last bytes name the node: another node is reachable, not the same. */
    bad                       = address2;
    bad.device[dev_len - 1]  ^= 1;
    CHECK(reachable(&bad, dev_len, iface_len, -1, NULL, 0));
    CHECK(!reachable(&bad, dev_len, iface_len,
                     UCT_IFACE_REACHABILITY_SCOPE_DEVICE, info, sizeof(info)));
    CHECK(strstr(info, "another node") != NULL);

    /* Wrong lengths, with words that say so. */
    CHECK(!reachable(&address2, dev_len - 1, iface_len, -1, info, sizeof(info)));
    CHECK(strlen(info) > 10);
    CHECK(!reachable(&address2, dev_len + 1, iface_len, -1, info, sizeof(info)));
    CHECK(!reachable(&address2, dev_len, iface_len - 1, -1, info, sizeof(info)));
    CHECK(strlen(info) > 10);
    CHECK(!reachable(&address2, 1, 1, -1, tiny, sizeof(tiny)));
    CHECK(memchr(tiny, 0, sizeof(tiny)) != NULL);

    /* Every single byte of the device address before the node, and of the
     * interface address, is covered. */
    for (i = 0; i < (dev_len - 6); ++i) {
        bad            = address2;
        bad.device[i] ^= 0x10;
        if (reachable(&bad, dev_len, iface_len, -1, info, sizeof(info))) {
            DIE("byte %zu of the device address is not looked at", i);
        }
        CHECK(strlen(info) > 5);
    }
    for (i = 0; i < iface_len; ++i) {
        bad           = address2;
        bad.iface[i] ^= 0x10;
        if (reachable(&bad, dev_len, iface_len, -1, info, sizeof(info))) {
            DIE("byte %zu of the interface address is not looked at", i);
        }
        CHECK(strlen(info) > 5);
    }
    memset(&bad, 0, sizeof(bad));
    CHECK(!reachable(&bad, SIZE_MAX, 0, -1, NULL, 0));
    memset(&bad, 0xff, sizeof(bad));
    CHECK(!reachable(&bad, SIZE_MAX, 0, -1, NULL, 0));

    memset(&params, 0, sizeof(params));
    CHECK(!uct_iface_is_reachable_v2(node1.iface, &params));
}

static void test_connect(void)
{
    const size_t dev_len   = node1.attr.device_addr_len;
    const size_t iface_len = node1.attr.iface_addr_len;
    uct_ep_is_connected_params_t params;
    uct_ep_attr_t ep_attr;
    uct_ep_params_t ep_params;
    struct address bad;
    uct_ep_h ep;
    size_t i;

    CHECK(try_connect(&node1, &address2, dev_len - 1, iface_len, &ep) < 0);
    CHECK(try_connect(&node1, &address2, dev_len, iface_len - 1, &ep) < 0);
    for (i = 0; i < iface_len; ++i) {
        bad           = address2;
        bad.iface[i] ^= 1;
        CHECK(try_connect(&node1, &bad, dev_len, iface_len, &ep) < 0);
        CHECK(try_connect(&node1, &bad, 0, 0, &ep) < 0);
    }
    bad            = address2;
    bad.device[0] ^= 1;
    CHECK_STATUS(try_connect(&node1, &bad, 0, 0, &ep), UCS_ERR_UNREACHABLE);
    memset(&ep_params, 0, sizeof(ep_params));
    ep_params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
    ep_params.iface      = node1.iface;
    CHECK_STATUS(uct_ep_create(&ep_params, &ep), UCS_ERR_INVALID_PARAM);

    CHECK_OK(try_connect(&node1, &address2, dev_len, iface_len, &ep));
    memset(&params, 0, sizeof(params));
    CHECK(!uct_ep_is_connected(ep, &params));
    params.field_mask  = UCT_EP_IS_CONNECTED_FIELD_DEVICE_ADDR |
                         UCT_EP_IS_CONNECTED_FIELD_IFACE_ADDR;
    params.device_addr = (const uct_device_addr_t*)address2.device;
    params.iface_addr  = (const uct_iface_addr_t*)address2.iface;
    CHECK(uct_ep_is_connected(ep, &params));
    params.device_addr = (const uct_device_addr_t*)address1.device;
    params.iface_addr  = (const uct_iface_addr_t*)address1.iface;
    CHECK(!uct_ep_is_connected(ep, &params));
    memset(&bad, 0xa5, sizeof(bad));
    params.iface_addr  = (const uct_iface_addr_t*)bad.iface;
    CHECK(!uct_ep_is_connected(ep, &params));

    memset(&ep_attr, 0, sizeof(ep_attr));
    CHECK_OK(uct_ep_query(ep, &ep_attr));
    ep_attr.field_mask = 1; /* a socket address */
    CHECK_STATUS(uct_ep_query(ep, &ep_attr), UCS_ERR_UNSUPPORTED);
    uct_ep_destroy(ep);
}

static void test_rkey(void)
{
    const size_t size = node1.md_attr.rkey_packed_size;
    uct_rkey_compare_params_t compare = {0};
    uint8_t packed[256], bad[256];
    uct_rkey_bundle_t rkey1, rkey2;
    struct region region;
    size_t i, bit;
    int result;

    region_open(&node1, &region, 1000, 1);
    CHECK_OK(uct_md_mkey_pack(node1.md, region.memh, packed));
    CHECK_OK(uct_rkey_unpack(node1.component, packed, &rkey1));
    CHECK_OK(uct_rkey_unpack(node1.component, packed, &rkey2));
    CHECK_OK(uct_rkey_compare(node1.component, rkey1.rkey, rkey1.rkey, &compare,
                              &result));
    CHECK(result == 0);
    compare.field_mask = 1;
    CHECK_STATUS(uct_rkey_compare(node1.component, rkey1.rkey, rkey2.rkey,
                                  &compare, &result), UCS_ERR_INVALID_PARAM);
    CHECK_OK(uct_rkey_release(node1.component, &rkey1));
    CHECK_OK(uct_rkey_release(node1.component, &rkey2));

    for (i = 0; i < size; ++i) {
        for (bit = 0; bit < 8; ++bit) {
            memcpy(bad, packed, size);
            bad[i] ^= 1u << bit;
            CHECK_STATUS(uct_rkey_unpack(node1.component, bad, &rkey1),
                         UCS_ERR_INVALID_PARAM);
        }
    }
    memset(bad, 0, sizeof(bad));
    CHECK_STATUS(uct_rkey_unpack(node1.component, bad, &rkey1),
                 UCS_ERR_INVALID_PARAM);
    srand(1);
    for (bit = 0; bit < 10000; ++bit) {
        for (i = 0; i < size; ++i) {
            bad[i] = rand() >> 7;
        }
        CHECK_STATUS(uct_rkey_unpack(node1.component, bad, &rkey1),
                     UCS_ERR_INVALID_PARAM);
    }
    region_close(&node1, &region);
}

/* Memory that can't be written is there for reading, whatever access is asked for: UCP asks
 * for all. */
static void test_read_only(char *page, size_t size, uint64_t flags)
{
    uct_md_mem_reg_params_t params = {.field_mask = UCT_MD_MEM_REG_FIELD_FLAGS,
                                      .flags      = flags};
    uct_rkey_bundle_t rkey;
    struct region region;
    struct comp comp;
    uint8_t packed[256];
    uct_mem_h memh;
    uct_ep_h ep;
    uct_iov_t iov;
    ucs_status_t status;

    CHECK_OK(uct_md_mem_reg_v2(node1.md, page, size, &params, &memh));
    CHECK_OK(uct_md_mkey_pack(node1.md, memh, packed));
    CHECK_OK(uct_rkey_unpack(node2.component, packed, &rkey));
    ep = node_connect(&node2, &address1);
    region_open(&node2, &region, 64, 1);
    memset(&iov, 0, sizeof(iov));
    iov.buffer = region.data;
    iov.length = 10;
    iov.memh   = region.memh;
    iov.count  = 1;
    comp_init(&comp);
    RETRY(&node2, NULL, status,
          uct_ep_get_zcopy(ep, &iov, 1, (uintptr_t)page, rkey.rkey,
                           &comp.super));
    CHECK_OK(finish(&node2, NULL, status, &comp));
    CHECK(!strcmp((char*)region.data, "read only"));
    CHECK(uct_ep_put_short(ep, "written", 8, (uintptr_t)page, rkey.rkey) < 0);
    CHECK(!strcmp(page, "read only"));
    region_close(&node2, &region);
    uct_ep_destroy(ep);
    CHECK_OK(uct_rkey_release(node2.component, &rkey));
    CHECK_OK(uct_md_mem_dereg(node1.md, memh));
}

static void test_registration(void)
{
    uct_md_mem_dereg_params_t dereg = {0};
    uct_md_mem_reg_params_t params  = {0};
    uct_mem_h memh;
    char *page;
    size_t size;

    size = sysconf(_SC_PAGESIZE);
    page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                -1, 0);
    CHECK(page != MAP_FAILED);
    strcpy(page, "read only");
    CHECK(mprotect(page, size, PROT_READ) == 0);

    test_read_only(page, size, UCT_MD_MEM_ACCESS_ALL);
    test_read_only(page, size, UCT_MD_MEM_ACCESS_REMOTE_GET |
                               UCT_MD_MEM_ACCESS_LOCAL_READ);

    /* What isn't supported is refused, not ignored. */
    CHECK_STATUS(uct_md_mem_dereg_v2(node1.md, &dereg), UCS_ERR_INVALID_PARAM);
    params.field_mask = UCT_MD_MEM_REG_FIELD_MEM_TYPE;
    params.mem_type   = UCS_MEMORY_TYPE_CUDA;
    CHECK_STATUS(uct_md_mem_reg_v2(node1.md, page, size, &params, &memh),
                 UCS_ERR_UNSUPPORTED);
    params.field_mask = UCT_MD_MEM_REG_FIELD_DMABUF_FD;
    params.dmabuf_fd  = 0;
    CHECK_STATUS(uct_md_mem_reg_v2(node1.md, page, size, &params, &memh),
                 UCS_ERR_UNSUPPORTED);
    CHECK(munmap(page, size) == 0);
}

static void test_attributes(void)
{
    uct_iface_attr_v2_t attr_v2;
    uct_md_attr_v2_t md_attr, md_attr2;
    uct_perf_attr_t perf;
    unsigned op;

    /* The sizes of the library's structures and of ours agree at run time. */
    memset(&md_attr, 0xff, sizeof(md_attr));
    CHECK_OK(uct_md_query_v2(node1.md, &md_attr));
    memset(&md_attr2, 0xff, sizeof(md_attr2));
    CHECK_OK(uct_md_query_v2(node2.md, &md_attr2));
    CHECK(!strcmp(md_attr.component_name, "utofu"));
    CHECK(!memcmp(md_attr.global_id, md_attr2.global_id,
                  sizeof(md_attr.global_id)));
    CHECK(md_attr.global_id[0] != 0);
    CHECK(md_attr.rkey_packed_size == node1.md_attr.rkey_packed_size);
    CHECK(md_attr.flags == (UCT_MD_FLAG_ALLOC | UCT_MD_FLAG_REG |
                            UCT_MD_FLAG_NEED_MEMH | UCT_MD_FLAG_NEED_RKEY |
                            UCT_MD_FLAG_INVALIDATE |
                            UCT_MD_FLAG_INVALIDATE_RMA |
                            UCT_MD_FLAG_INVALIDATE_AMO));

    memset(&attr_v2, 0xff, sizeof(attr_v2));
    CHECK_OK(uct_iface_query_v2(node1.iface, &attr_v2));
    CHECK((attr_v2.cap.flags == 0) && (attr_v2.max_put_sgl_zcopy_count == 0));
    CHECK((attr_v2.tx_token_length == 0) && (attr_v2.rx_token_length == 0));

    for (op = 0; op <= UCT_EP_OP_LAST; ++op) {
        memset(&perf, 0xff, sizeof(perf));
        perf.operation = op;
        CHECK_OK(uct_iface_estimate_perf(node1.iface, &perf));
        CHECK((perf.send_pre_overhead > 0) && (perf.send_pre_overhead < 1e-3));
        CHECK((perf.recv_overhead >= 0) && (perf.recv_overhead < 1e-3));
        CHECK((perf.latency.c > 0) && (perf.latency.c < 1e-3));
        CHECK((perf.bandwidth.dedicated + perf.bandwidth.shared) > 1e8);
        CHECK(perf.flags == 0);
    }
}

static uct_perf_attr_t estimate(uct_ep_operation_t op)
{
    uct_perf_attr_t perf;

    memset(&perf, 0xff, sizeof(perf));
    perf.operation = op;
    CHECK_OK(uct_iface_estimate_perf(node1.iface, &perf));
    return perf;
}

/* What UCP chooses protocols by: "fast", "timed", or "told" 1 us and 2e9. */
static void test_estimates(const char *mode)
{
    uct_perf_attr_t am    = estimate(UCT_EP_OP_AM_BCOPY);
    uct_perf_attr_t brief = estimate(UCT_EP_OP_AM_SHORT);
    uct_perf_attr_t put   = estimate(UCT_EP_OP_PUT_ZCOPY);
    uct_perf_attr_t get   = estimate(UCT_EP_OP_GET_ZCOPY);

    CHECK((put.recv_overhead == 0) && (get.recv_overhead == 0));
    CHECK(am.recv_overhead > 0);
    if (!strcmp(mode, "fast")) {
        /* memory of the program is behind the kernel, slots are not */
        CHECK(put.send_pre_overhead > 10 * am.send_pre_overhead);
        CHECK(get.send_pre_overhead == put.send_pre_overhead);
        CHECK(put.bandwidth.dedicated < brief.bandwidth.dedicated);
        CHECK((am.send_post_overhead == 0) && (put.send_post_overhead == 0));
    } else if (!strcmp(mode, "timed")) {
        /* one TNI, whoever's memory it is */
        CHECK(put.bandwidth.dedicated == 6.35e9);
        CHECK(am.bandwidth.dedicated == 6.35e9);
        CHECK(put.send_pre_overhead == am.send_pre_overhead);
        CHECK(put.latency.c > 0.4e-6);
        /* what UCP does besides: more for a rendezvous than for a message */
        CHECK(am.send_post_overhead > 0);
        CHECK(get.send_post_overhead == put.send_post_overhead);
        CHECK(put.send_post_overhead > 5 * am.send_post_overhead);
    } else {
        CHECK((am.bandwidth.dedicated == 2e9) &&
              (put.bandwidth.dedicated == 2e9) &&
              (brief.bandwidth.dedicated == 2e9));
        CHECK((am.send_pre_overhead == 1e-6) &&
              (put.send_pre_overhead == 1e-6));
        CHECK((am.send_post_overhead == 0) && (put.send_post_overhead == 0));
    }
}

static ucs_status_t open_with(const char *dev_name, uint64_t fields,
                              size_t alignment)
{
    uct_iface_config_t *config;
    uct_iface_params_t params;
    ucs_status_t status;
    uct_iface_h iface;

    memset(&params, 0, sizeof(params));
    params.field_mask           = UCT_IFACE_PARAM_FIELD_OPEN_MODE |
                                  UCT_IFACE_PARAM_FIELD_DEVICE | fields;
    params.open_mode            = UCT_IFACE_OPEN_MODE_DEVICE;
    params.mode.device.tl_name  = "utofu";
    params.mode.device.dev_name = dev_name;
    params.am_alignment         = alignment;
    params.am_align_offset      = 8;
    CHECK_OK(uct_md_iface_config_read(node1.md, "utofu", NULL, NULL, &config));
    status = uct_iface_open(node1.md, node1.worker, &params, config, &iface);
    uct_config_release(config);
    if (status == UCS_OK) {
        uct_iface_close(iface);
    }
    return status;
}

static void test_open(void)
{
    CHECK_OK(open_with("tofu0", 0, 0));
    CHECK_OK(open_with("tofu0", UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT, 64));
    CHECK_STATUS(open_with("tofu7", 0, 0), UCS_ERR_NO_DEVICE);
    CHECK_STATUS(open_with("tofu0", UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT, 0),
                 UCS_ERR_INVALID_PARAM);
    CHECK_STATUS(open_with("tofu0", UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT, 48),
                 UCS_ERR_INVALID_PARAM);
    CHECK_STATUS(open_with("tofu0", UCT_IFACE_PARAM_FIELD_AM_ALIGN_OFFSET, 0),
                 UCS_ERR_INVALID_PARAM);
}

int main(int argc, char **argv)
{
    node_open(&node1, NULL, NULL);
    node_open(&node2, NULL, NULL);
    node_address(&node1, &address1);
    node_address(&node2, &address2);
    test_attributes();
    test_estimates((argc > 1) ? argv[1] : "fast");
    test_reachable();
    test_connect();
    test_rkey();
    test_registration();
    test_open();
    node_close(&node2);
    node_close(&node1);
    printf("ok\n");
    return 0;
}
