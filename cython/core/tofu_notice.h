/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_notice.h - what a queue told: of an operation, or of the queue itself?
 */
#ifndef TOFU_NOTICE_H
#define TOFU_NOTICE_H

#include <stdbool.h>
#include <utofu.h>

/* What utofu_poll_mrq returned is the result of one operation, and there is a notice.
 * Else it is NOT_FOUND, or the VCQ has failed. */
static inline bool tofu_is_mrq_result(int code)
{
    return (code == UTOFU_SUCCESS) ||
           ((code <= UTOFU_ERR_MRQ_OTHER) && (code >= UTOFU_ERR_MRQ_RMT_LENGTH));
}

/* The same of utofu_poll_tcq, and callback data. */
static inline bool tofu_is_tcq_result(int code)
{
    return (code == UTOFU_SUCCESS) ||
           ((code <= UTOFU_ERR_TCQ_OTHER) && (code >= UTOFU_ERR_TCQ_LENGTH));
}

/* The result is of an operation that this VCQ posted. */
static inline bool tofu_is_local_notice(const struct utofu_mrq_notice *notice)
{
    return (notice->notice_type == UTOFU_MRQ_TYPE_LCL_PUT) ||
           (notice->notice_type == UTOFU_MRQ_TYPE_LCL_GET) ||
           (notice->notice_type == UTOFU_MRQ_TYPE_LCL_ARMW);
}

#endif /* TOFU_NOTICE_H */
