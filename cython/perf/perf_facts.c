/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_facts.c - which uTofu library ran, for the layers that use one. */
#include "perf_utofu.h"

void perf_utofu_facts(const struct tofu_backend *of, FILE *out)
{
    const char *name = strrchr(of->path, '/');
    int        major, minor;

    of->fn.query_utofu_version(&major, &minor);
    fprintf(out, ",\"backend\":{\"kind\":\"%s\",\"utofu_version\":\"%d.%d\","
            "\"library\":\"%s\"}",
            (of->kind == TOFU_BACKEND_EMULATOR) ? "emulator" : "tofu", major, minor,
            name ? name + 1 : of->path);
}
