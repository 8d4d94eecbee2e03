/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * utofu_common.h - what kernels written on utofu.h share: one VCQ, one piece of
 * registered memory, posts that make room when the TOQ is full.
 */
#ifndef PERF_UTOFU_COMMON_H
#define PERF_UTOFU_COMMON_H

#include "common.h"

#include <utofu.h>

#define UTOFU_CHECK(_call) \
    do { \
        int _ret = (_call); \
        PERF_CHECK(_ret == UTOFU_SUCCESS, "%s: %d", #_call, _ret); \
    } while (0)

/* What the other side has to know. */
struct perf_peer {
    utofu_vcq_id_t vcq_id;
    utofu_stadd_t  stadd;
};

/* The three ways in which a put takes its data. */
enum perf_how {
    PERF_PUT,
    PERF_PIGGYBACK,
    PERF_PIGGYBACK8
};

static inline enum perf_how perf_how(const char *name)
{
    static const char *const names[] = {"put", "piggyback", "piggyback8"};

    for (int i = 0; i < 3; ++i) {
        if (!strcmp(name, names[i])) {
            return i;
        }
    }
    PERF_CHECK(0, "put, piggyback or piggyback8, not %s", name);
}

static inline utofu_vcq_hdl_t perf_vcq(unsigned tni_index)
{
    utofu_vcq_hdl_t vcq;
    utofu_tni_id_t  *tnis;
    size_t          num_tnis;

    UTOFU_CHECK(utofu_get_onesided_tnis(&tnis, &num_tnis));
    PERF_CHECK(tni_index < num_tnis, "there are %zu TNIs only", num_tnis);
    UTOFU_CHECK(utofu_create_vcq(tnis[tni_index], 0, &vcq));
    free(tnis);
    return vcq;
}

/* Take what is in the TCQ; returns how many notices there were. */
static inline int perf_drain_tcq(utofu_vcq_hdl_t vcq)
{
    void *cbdata;
    int  ret, count = 0;

    while ((ret = utofu_poll_tcq(vcq, 0, &cbdata)) == UTOFU_SUCCESS) {
        ++count;
    }
    PERF_CHECK(ret == UTOFU_ERR_NOT_FOUND, "utofu_poll_tcq: %d", ret);
    return count;
}

/* Wait for an MRQ notice of the given type. */
static inline void perf_wait_mrq(utofu_vcq_hdl_t vcq, int type,
                                 struct utofu_mrq_notice *notice)
{
    int ret;

    while ((ret = utofu_poll_mrq(vcq, 0, notice)) == UTOFU_ERR_NOT_FOUND) {
    }
    PERF_CHECK((ret == UTOFU_SUCCESS) && (notice->notice_type == type),
               "utofu_poll_mrq: %d, type %d", ret, notice->notice_type);
}

/* Put size bytes at data, which is registered as lcl_stadd; a piggyback takes
 * them from data.  Where the TOQ is full, polling the TCQ frees its entries. */
static inline void perf_put(utofu_vcq_hdl_t vcq, utofu_vcq_id_t to,
                            enum perf_how how, void *data,
                            utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd,
                            size_t size, unsigned long flags)
{
    uint64_t value;
    int      ret;

    for (;;) {
        if (how == PERF_PIGGYBACK8) {
            value = 0;
            memcpy(&value, data, (size < 8) ? size : 8);
            ret = utofu_put_piggyback8(vcq, to, value, rmt_stadd, size, 0,
                                       flags, NULL);
        } else if (how == PERF_PIGGYBACK) {
            ret = utofu_put_piggyback(vcq, to, data, rmt_stadd, size, 0, flags,
                                      NULL);
        } else {
            ret = utofu_put(vcq, to, lcl_stadd, rmt_stadd, size, 0, flags, NULL);
        }
        if (ret != UTOFU_ERR_BUSY) {
            break;
        }
        perf_drain_tcq(vcq);
    }
    PERF_CHECK(ret == UTOFU_SUCCESS, "put: %d", ret);
}

#endif /* PERF_UTOFU_COMMON_H */
