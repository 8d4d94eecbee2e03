/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that UCP allocates from the transport, of which a part is registered once more,
 * as UCP's cache does for what a program sends from it, and which is freed then: again
 * and again, at most a few blocks are in use, and each is zero.
 */
#include "ucp_support.h"

#include <unistd.h>

#define SIZE   (1ul << 20) /* less than a huge page, which UCP would prefer */
#define ROUNDS 200

static size_t shared_kib(void)
{
    FILE   *file = fopen("/proc/self/status", "r");
    char   line[256];
    size_t kib = 0;

    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        (void)sscanf(line, "RssShmem: %zu", &kib);
    }
    fclose(file);
    return kib;
}

static ucp_mem_h map(ucp_context_h context, void *address, size_t length, unsigned flags)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                      UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        .address    = address,
        .length     = length,
        .flags      = flags
    };
    ucp_mem_h memh;

    CHECK_STATUS(ucp_mem_map(context, &params, &memh));
    return memh;
}

int main(void)
{
    ucp_params_t  params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                            .features   = UCP_FEATURE_RMA | UCP_FEATURE_TAG};
    ucp_context_h context;
    ucp_config_t  *config;
    size_t        i, begin = shared_kib(), most = 0;
    unsigned      round;

    CHECK_STATUS(ucp_config_read(NULL, NULL, &config));
    CHECK_STATUS(ucp_init(&params, config, &context));
    ucp_config_release(config);
    for (round = 0; round < ROUNDS; ++round) {
        ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
        ucp_mem_h      whole = map(context, NULL, SIZE, UCP_MEM_MAP_ALLOCATE);
        uint64_t       *words;

        CHECK_STATUS(ucp_mem_query(whole, &attr));
        words = attr.address;
        for (i = 0; i < SIZE / sizeof(*words); ++i) {
            CHECK(words[i] == 0);
        }
        memset(words, 0xa5, SIZE);
        for (i = 0; i < 4; ++i) {
            CHECK_STATUS(ucp_mem_unmap(context, map(context, (char *)words + i * 4096,
                                                    SIZE - i * 4096, 0)));
        }
        CHECK_STATUS(ucp_mem_unmap(context, whole));
        most = (shared_kib() > most) ? shared_kib() : most;
    }
    ucp_cleanup(context);
    if (most - begin > 16 * (SIZE >> 10)) {
        fprintf(stderr, "%zu KiB of memory that was freed stay\n", most - begin);
        return 1;
    }
    printf("ok\n");
    return 0;
}
