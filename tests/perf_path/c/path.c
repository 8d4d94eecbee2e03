/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * path.c - see path.h.
 */
#include "path.h"

#define PATH_BCOPY 64

static int8_t on_message(void *arg, void *data, size_t length, unsigned flags)
{
    (void)data;
    (void)length;
    (void)flags;
    ++((struct path*)arg)->arrived;
    return TOFU_OK;
}

static void check(tofu_status_t status, const char *call)
{
    PATH_CHECK(status == TOFU_OK, "%s: %s", call, tofu_status_string(status));
}

void path_open(struct path *path)
{
    const struct tofu_backend *backend;
    tofu_iface_config_t       config;
    char                      error[2048], address[256], key[256];
    size_t                    length = 4096;
    tofu_iface_attr_t         attr;
    tofu_md_attr_t            md_attr;
    void                      *memory;

    memset(path, 0, sizeof(*path));
    PATH_CHECK(tofu_backend_load(NULL, &backend, error, sizeof(error)) == 0,
               "no backend: %s", error);
    check(tofu_md_open(backend, NULL, &path->md), "tofu_md_open");
    tofu_iface_config_default(&config);
    check(tofu_iface_open(path->md, &config, &path->tx), "tofu_iface_open");
    check(tofu_iface_open(path->md, &config, &path->rx), "tofu_iface_open");
    check(tofu_iface_set_am_handler(path->rx, PATH_AM_ID, on_message, path),
          "tofu_iface_set_am_handler");
    tofu_iface_query(path->rx, &attr);
    tofu_md_query(path->md, &md_attr);
    PATH_CHECK((attr.iface_addr_len <= sizeof(address)) &&
               (md_attr.rkey_packed_size <= sizeof(key)), "long addresses");
    tofu_iface_get_address(path->rx, address);
    check(tofu_ep_create(path->tx, address, attr.iface_addr_len, &path->ep),
          "tofu_ep_create");
    check(tofu_mem_alloc(path->md, &length, 0, &memory, &path->memh),
          "tofu_mem_alloc");
    tofu_mkey_pack(path->memh, key);
    check(tofu_rkey_unpack(key, md_attr.rkey_packed_size, &path->rkey),
          "tofu_rkey_unpack");
    path->target = (uintptr_t)memory;
}

void path_close(struct path *path)
{
    path_settle(path);
    tofu_rkey_release(path->rkey);
    check(tofu_mem_free(path->memh), "tofu_mem_free");
    tofu_ep_destroy(path->ep);
    tofu_iface_close(path->tx);
    tofu_iface_close(path->rx);
    tofu_md_close(path->md);
}

void path_settle(struct path *path)
{
    unsigned idle = 0;

    while (idle < 200) {
        if (tofu_iface_progress(path->tx) + tofu_iface_progress(path->rx)) {
            idle = 0;
        } else {
            ++idle;
        }
    }
}

static int done(tofu_status_t status, const char *call)
{
    PATH_CHECK((status == TOFU_OK) || (status == TOFU_ERR_NO_RESOURCE),
               "%s: %s", call, tofu_status_string(status));
    return status == TOFU_OK;
}

static int put_short(struct path *path)
{
    static const uint64_t value = 42;

    return done(tofu_ep_put_short(path->ep, &value, sizeof(value),
                                  path->target, path->rkey),
                "tofu_ep_put_short");
}

static int am_short(struct path *path)
{
    static const uint64_t value = 42;

    return done(tofu_ep_am_short(path->ep, PATH_AM_ID, 7, &value,
                                 sizeof(value)), "tofu_ep_am_short");
}

static size_t pack(void *dest, void *arg)
{
    memset(dest, 1, PATH_BCOPY);
    (void)arg;
    return PATH_BCOPY;
}

static int am_bcopy(struct path *path)
{
    intptr_t ret = tofu_ep_am_bcopy(path->ep, PATH_AM_ID, pack, NULL);

    PATH_CHECK((ret == PATH_BCOPY) || (ret == TOFU_ERR_NO_RESOURCE), "tofu_ep_am_bcopy: %s",
               tofu_status_string((tofu_status_t)ret));
    return ret == PATH_BCOPY;
}

static int progress(struct path *path)
{
    tofu_iface_progress(path->tx);
    return 1;
}

static int am_receive(struct path *path)
{
    tofu_iface_progress(path->rx);
    return 1;
}

/* Where things are in a packed iface address (tofu_wire.c) */
enum { VCQ_ID = 8, CHECKSUM = 36, ADDRESS = 40 };

static uint32_t crc32_of(const unsigned char *p, size_t size)
{
    uint32_t crc = ~0u;

    while (size-- > 0) {
        crc ^= *p++;
        for (int i = 0; i < 8; ++i) {
            crc = (crc >> 1) ^ (0xedb88320u & -(crc & 1));
        }
    }
    return ~crc;
}

/* An endpoint to the next node, where nobody is: the receiver's address with another VCQ ID.
 * They go with the iface. */
static int ep_create(struct path *path)
{
    const struct tofu_backend *backend;
    unsigned                  n = path->made++, i;
    uint8_t                   coords[6] = {(uint8_t)(n % 24), (uint8_t)(n / 24 % 23),
                                           (uint8_t)(n / 24 / 23), 1, 2, 1};
    unsigned char             address[256];
    char                      error[2048];
    utofu_vcq_id_t            id;
    uint32_t                  crc;
    tofu_ep_t                 *ep;

    PATH_CHECK(tofu_backend_load(NULL, &backend, error, sizeof(error)) == 0, "no backend: %s", error);
    tofu_iface_get_address(path->rx, address);
    PATH_CHECK(backend->fn.construct_vcq_id(coords, 0, 0, 1, &id) == UTOFU_SUCCESS, "construct_vcq_id");
    for (i = 0; i < 8; ++i) {
        address[VCQ_ID + i] = (unsigned char)(id >> 8 * i);
    }
    crc = crc32_of(address, CHECKSUM);
    for (i = 0; i < 4; ++i) {
        address[CHECKSUM + i] = (unsigned char)(crc >> 8 * i);
    }
    check(tofu_ep_create(path->tx, address, ADDRESS, &ep), "tofu_ep_create");
    return 1;
}

path_op_t path_find(const char *name)
{
    static const struct {
        const char *name;
        path_op_t  op;
    } ops[] = {{"put_short", put_short}, {"am_short", am_short},
               {"am_bcopy", am_bcopy}, {"progress", progress}, {"am_receive", am_receive},
               {"ep_create", ep_create}};

    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); ++i) {
        if (!strcmp(ops[i].name, name)) {
            return ops[i].op;
        }
    }
    PATH_CHECK(0, "no operation %s", name);
    return NULL;
}
