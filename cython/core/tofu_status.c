/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_status.c - statuses, and the one table from codes of utofu.h to them.
 */
#include "tofu_internal.h"

const char *tofu_status_string(tofu_status_t status)
{
    switch (status) {
    case TOFU_OK:
        return "success";
    case TOFU_INPROGRESS:
        return "operation in progress";
    case TOFU_ERR_NO_MESSAGE:
        return "no pending message";
    case TOFU_ERR_NO_RESOURCE:
        return "no resources are available now";
    case TOFU_ERR_IO_ERROR:
        return "input/output error";
    case TOFU_ERR_NO_MEMORY:
        return "out of memory";
    case TOFU_ERR_INVALID_PARAM:
        return "invalid parameter";
    case TOFU_ERR_UNREACHABLE:
        return "destination is unreachable";
    case TOFU_ERR_INVALID_ADDR:
        return "address not valid";
    case TOFU_ERR_NO_ELEM:
        return "no such element";
    case TOFU_ERR_NO_DEVICE:
        return "no such device";
    case TOFU_ERR_BUSY:
        return "device is busy";
    case TOFU_ERR_CANCELED:
        return "request canceled";
    case TOFU_ERR_ALREADY_EXISTS:
        return "element already exists";
    case TOFU_ERR_OUT_OF_RANGE:
        return "index out of range";
    case TOFU_ERR_TIMED_OUT:
        return "operation timed out";
    case TOFU_ERR_EXCEEDS_LIMIT:
        return "limit exceeded";
    case TOFU_ERR_UNSUPPORTED:
        return "unsupported operation";
    case TOFU_ERR_ENDPOINT_TIMEOUT:
        return "endpoint timeout";
    }
    return "unknown status";
}

tofu_status_t tofu_status_from_code(int utofu_code)
{
    /* no default: the compiler tells when a code is forgotten */
    switch ((enum utofu_return_code)utofu_code) {
    case UTOFU_SUCCESS:
        return TOFU_OK;
    case UTOFU_ERR_NOT_FOUND:
        return TOFU_ERR_NO_ELEM;
    case UTOFU_ERR_NOT_COMPLETED:
    case UTOFU_ERR_NOT_PROCESSED:
        return TOFU_INPROGRESS;
    case UTOFU_ERR_BUSY:
        return TOFU_ERR_NO_RESOURCE;
    case UTOFU_ERR_USED:
        return TOFU_ERR_ALREADY_EXISTS;
    case UTOFU_ERR_FULL:
    case UTOFU_ERR_OUT_OF_RESOURCE:
        return TOFU_ERR_EXCEEDS_LIMIT;
    case UTOFU_ERR_NOT_AVAILABLE:
        return TOFU_ERR_NO_DEVICE;
    case UTOFU_ERR_NOT_SUPPORTED:
        return TOFU_ERR_UNSUPPORTED;
    case UTOFU_ERR_MRQ_PEER: /* no answer: gone, or never there; as UCX's rc and ud */
        return TOFU_ERR_ENDPOINT_TIMEOUT;
    case UTOFU_ERR_TCQ_OTHER:
    case UTOFU_ERR_TCQ_DESC:
    case UTOFU_ERR_TCQ_MEMORY:
    case UTOFU_ERR_TCQ_STADD:
    case UTOFU_ERR_TCQ_LENGTH:
    case UTOFU_ERR_MRQ_OTHER:
    case UTOFU_ERR_MRQ_LCL_MEMORY:
    case UTOFU_ERR_MRQ_RMT_MEMORY:
    case UTOFU_ERR_MRQ_LCL_STADD:
    case UTOFU_ERR_MRQ_RMT_STADD:
    case UTOFU_ERR_MRQ_LCL_LENGTH:
    case UTOFU_ERR_MRQ_RMT_LENGTH:
    case UTOFU_ERR_BARRIER_OTHER:
    case UTOFU_ERR_BARRIER_MISMATCH:
    case UTOFU_ERR_FATAL:
        return TOFU_ERR_IO_ERROR;
    case UTOFU_ERR_INVALID_COORDS:
    case UTOFU_ERR_INVALID_PATH:
    case UTOFU_ERR_INVALID_VCQ_ID:
    case UTOFU_ERR_INVALID_PATH_ID:
        return TOFU_ERR_INVALID_ADDR;
    case UTOFU_ERR_INVALID_ARG:
    case UTOFU_ERR_INVALID_POINTER:
    case UTOFU_ERR_INVALID_FLAGS:
    case UTOFU_ERR_INVALID_TNI_ID:
    case UTOFU_ERR_INVALID_CQ_ID:
    case UTOFU_ERR_INVALID_BG_ID:
    case UTOFU_ERR_INVALID_CMP_ID:
    case UTOFU_ERR_INVALID_VCQ_HDL:
    case UTOFU_ERR_INVALID_VBG_ID:
    case UTOFU_ERR_INVALID_STADD:
    case UTOFU_ERR_INVALID_ADDRESS:
    case UTOFU_ERR_INVALID_SIZE:
    case UTOFU_ERR_INVALID_STAG:
    case UTOFU_ERR_INVALID_EDATA:
    case UTOFU_ERR_INVALID_NUMBER:
    case UTOFU_ERR_INVALID_OP:
    case UTOFU_ERR_INVALID_DESC:
    case UTOFU_ERR_INVALID_DATA:
        return TOFU_ERR_INVALID_PARAM;
    case UTOFU_ERR_OUT_OF_MEMORY:
        return TOFU_ERR_NO_MEMORY;
    }
    return TOFU_ERR_IO_ERROR; /* a code that utofu.h does not list */
}
