/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * endpoints.c - what endpoints to constructed addresses cost: bytes and seconds.
 *
 * One process makes an endpoint to an iface on every other node of the network that
 * UTOFU_EMU_SHAPE describes.  Nobody is there; making an endpoint communicates with
 * nobody.  The addresses are this iface's own with other VCQ IDs, as they are where
 * all processes are configured alike.
 *
 * Usage: endpoints <X> <Y> <Z>   (units of 2 x 3 x 2 nodes, as UTOFU_EMU_SHAPE)
 * Prints lines "name value".
 */
#include <tofu_internal.h>
#include <tofu_am.h>

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define CHECK(_ok, ...) \
    do { \
        if (!(_ok)) { \
            fprintf(stderr, __VA_ARGS__); \
            fprintf(stderr, "\n"); \
            exit(1); \
        } \
    } while (0)

/* Where things are in a packed iface address: see tofu_wire.c. */
enum {
    VCQ_ID   = 8,
    CHECKSUM = 36,
    SIZE     = 40
};

static uint32_t crc32_of(const unsigned char *p, size_t size)
{
    uint32_t crc = ~0u;
    int      i;

    while (size-- > 0) {
        crc ^= *p++;
        for (i = 0; i < 8; ++i) {
            crc = (crc >> 1) ^ (0xedb88320u & -(crc & 1));
        }
    }
    return ~crc;
}

static void put_little(unsigned char *p, uint64_t value, unsigned bytes)
{
    while (bytes-- > 0) {
        *p++   = (unsigned char)value;
        value >>= 8;
    }
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static size_t resident(void)
{
    unsigned long total, pages = 0;
    FILE          *f = fopen("/proc/self/statm", "r");

    CHECK((f != NULL) && (fscanf(f, "%lu %lu", &total, &pages) == 2),
          "no /proc/self/statm");
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static size_t allocated(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

/* The addresses of all other nodes; how many. */
static size_t construct(const struct tofu_backend *backend, const unsigned *shape,
                        const unsigned char *own, unsigned char *out,
                        utofu_vcq_id_t own_id)
{
    size_t  count = 0, i;
    size_t  nodes = (size_t)shape[0] * shape[1] * shape[2] * 12;
    uint8_t mine[6], coords[6];

    CHECK(backend->fn.query_vcq_info != NULL, "no utofu_query_vcq_info");
    {
        utofu_tni_id_t tni;
        utofu_cq_id_t  cq;
        uint16_t       extra;
        CHECK(backend->fn.query_vcq_info(own_id, mine, &tni, &cq, &extra) ==
                      UTOFU_SUCCESS, "utofu_query_vcq_info failed");
    }
    for (i = 0; i < nodes; ++i) {
        unsigned char  *p = out + count * SIZE;
        utofu_vcq_id_t id;
        size_t         unit = i / 12;

        coords[0] = (uint8_t)(unit % shape[0]);
        coords[1] = (uint8_t)(unit / shape[0] % shape[1]);
        coords[2] = (uint8_t)(unit / shape[0] / shape[1]);
        coords[3] = (uint8_t)(i % 12 / 6);
        coords[4] = (uint8_t)(i % 6 / 2);
        coords[5] = (uint8_t)(i % 2);
        if (!memcmp(coords, mine, sizeof(coords))) {
            continue;
        }
        CHECK(backend->fn.construct_vcq_id(coords, 0, 0, 1, &id) ==
                      UTOFU_SUCCESS, "utofu_construct_vcq_id failed");
        memcpy(p, own, SIZE);
        put_little(p + VCQ_ID, id, 8);
        put_little(p + CHECKSUM, crc32_of(p, CHECKSUM), 4);
        ++count;
    }
    return count;
}

int main(int argc, char **argv)
{
    const struct tofu_backend *backend;
    tofu_iface_attr_t         attr;
    tofu_iface_t              *iface;
    tofu_md_t                 *md;
    tofu_ep_t                 **ep;
    unsigned char             own[SIZE], *addresses;
    unsigned                  shape[3], i;
    size_t                    nodes, count, n, rss, heap;
    double                    begin, made, gone;
    char                      err[2048];

    CHECK(argc == 4, "usage: %s X Y Z", argv[0]);
    for (i = 0; i < 3; ++i) {
        shape[i] = (unsigned)strtoul(argv[i + 1], NULL, 10);
        CHECK((shape[i] > 0) && (shape[i] < 64), "%s: no size", argv[i + 1]);
    }
    nodes = (size_t)shape[0] * shape[1] * shape[2] * 12;
    CHECK(tofu_backend_load(NULL, &backend, err, sizeof(err)) == 0, "%s", err);
    CHECK(tofu_md_open(backend, NULL, &md) == TOFU_OK, "tofu_md_open failed");
    CHECK(tofu_iface_open(md, NULL, &iface) == TOFU_OK, "no iface");
    tofu_iface_query(iface, &attr);
    CHECK(attr.iface_addr_len == SIZE,
          "addresses have %zu bytes: this program knows those of %d",
          attr.iface_addr_len, SIZE);
    tofu_iface_get_address(iface, own);
    addresses = malloc(nodes * SIZE);
    ep        = malloc(nodes * sizeof(*ep));
    CHECK((addresses != NULL) && (ep != NULL), "no memory");
    count = construct(backend, shape, own, addresses, iface->vcq_id);
    memset(ep, 0, nodes * sizeof(*ep)); /* resident before the count */

    rss   = resident();
    heap  = allocated();
    begin = now();
    for (n = 0; n < count; ++n) {
        CHECK(tofu_ep_create(iface, addresses + n * SIZE, SIZE, &ep[n]) ==
                      TOFU_OK, "tofu_ep_create failed at %zu", n);
    }
    made = now();
    printf("endpoints %zu\n", count);
    printf("seconds %.6f\n", made - begin);
    printf("resident_bytes %zu\n", resident() - rss);
    printf("allocated_bytes %zu\n", allocated() - heap);
    printf("ep_struct_bytes %zu\n", sizeof(tofu_ep_t));
    printf("receive_bytes %zu\n",
           iface->am->block_size + iface->am->num_segments *
                   (size_t)TOFU_MAILBOX_SEGMENT * sizeof(tofu_mailbox_t));
    begin = now();
    for (n = 0; n < count; ++n) {
        tofu_ep_destroy(ep[n]);
    }
    gone = now();
    printf("destroy_seconds %.6f\n", gone - begin);
    free(ep);
    free(addresses);
    tofu_iface_close(iface);
    tofu_md_close(md);
    return 0;
}
