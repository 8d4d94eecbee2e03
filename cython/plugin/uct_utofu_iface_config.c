/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is asked of an interface when it is opened: the parameters of UCX, and
 * the variables UCX_UTOFU_* of the user.
 */
#include "uct_utofu.h"

#include <limits.h>
#include <math.h>
#include <string.h>

ucs_status_t uct_utofu_iface_check_params(uct_worker_h worker,
                                          const uct_iface_params_t *params)
{
    uct_priv_worker_t *priv_worker = (uct_priv_worker_t*)worker;
    const char *dev_name;

    if (!(params->field_mask & UCT_IFACE_PARAM_FIELD_OPEN_MODE) ||
        !(params->open_mode & UCT_IFACE_OPEN_MODE_DEVICE)) {
        uct_utofu_error("a utofu interface is opened by its device name only");
        return UCS_ERR_UNSUPPORTED;
    }

    dev_name = (params->field_mask & UCT_IFACE_PARAM_FIELD_DEVICE) ?
               params->mode.device.dev_name : NULL;
    if ((dev_name == NULL) || strcmp(dev_name, UCT_UTOFU_DEVICE_NAME)) {
        uct_utofu_error("no device %s, the one of transport utofu is %s",
                        (dev_name == NULL) ? "name given" : dev_name,
                        UCT_UTOFU_DEVICE_NAME);
        return UCS_ERR_NO_DEVICE;
    }

    if (priv_worker->thread_mode == UCS_THREAD_MODE_MULTI) {
        uct_utofu_error("a utofu interface is for one thread at a time, the "
                        "worker is in multi-threaded mode");
        return UCS_ERR_INVALID_PARAM;
    }

    /* It is for messages that the user may keep: those that don't have it are
     * not offered. */
    if (params->field_mask & UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT) {
        if ((params->am_alignment == 0) ||
            (params->am_alignment & (params->am_alignment - 1))) {
            uct_utofu_error("AM alignment %zu is not a power of two",
                            params->am_alignment);
            return UCS_ERR_INVALID_PARAM;
        }
    } else if (params->field_mask & UCT_IFACE_PARAM_FIELD_AM_ALIGN_OFFSET) {
        uct_utofu_error("AM alignment offset %zu without an alignment",
                        params->am_align_offset);
        return UCS_ERR_INVALID_PARAM;
    }

    return UCS_OK;
}

static ucs_status_t uct_utofu_config_count(const char *name,
                                           unsigned long value,
                                           unsigned *count_p)
{
    if (value == UCT_UTOFU_COUNT_AUTO) {
        return UCS_OK; /* stays at the core's default */
    }
    if ((value == 0) || (value > UINT_MAX)) {
        uct_utofu_error("UCX_UTOFU_%s: %s is not possible", name,
                        (value == 0) ? "0" : "a number this large");
        return UCS_ERR_INVALID_PARAM;
    }
    *count_p = value;
    return UCS_OK;
}

/* UCP divides by some of them, and adds others up. */
static ucs_status_t uct_utofu_config_figure(const char *name, double value,
                                            double least)
{
    if (UCS_CONFIG_DBL_IS_AUTO(value) || ((value >= least) && isfinite(value))) {
        return UCS_OK;
    }
    uct_utofu_error("UCX_UTOFU_%s: %g is not possible", name, value);
    return UCS_ERR_INVALID_PARAM;
}

static ucs_status_t
uct_utofu_config_figures(const uct_utofu_iface_config_t *config)
{
    ucs_status_t status;

    status = uct_utofu_config_figure("BANDWIDTH", config->bandwidth, 1.0);
    if (status == UCS_OK) {
        status = uct_utofu_config_figure("LATENCY", config->latency, 0.0);
    }
    if (status == UCS_OK) {
        status = uct_utofu_config_figure("OVERHEAD", config->overhead, 0.0);
    }
    return status;
}

/* Messages in large slots may be kept, with the user's headroom in front. */
static void uct_utofu_config_desc(const uct_iface_params_t *params,
                                  tofu_iface_config_t *core_config)
{
    if (params->field_mask & UCT_IFACE_PARAM_FIELD_RX_HEADROOM) {
        core_config->rx_headroom = params->rx_headroom;
    }
    if (params->field_mask & UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT) {
        core_config->am_alignment = params->am_alignment;
        if (params->field_mask & UCT_IFACE_PARAM_FIELD_AM_ALIGN_OFFSET) {
            core_config->am_align_offset = params->am_align_offset;
        }
    }
}

ucs_status_t
uct_utofu_iface_config_core(const uct_utofu_iface_config_t *config,
                            const uct_iface_params_t *params,
                            tofu_iface_config_t *core_config)
{
    ucs_status_t status;

    uct_utofu_config_desc(params, core_config);
    if (((status = uct_utofu_config_count("RX_SLOTS", config->rx_slots,
                                          &core_config->rx_slots)) != UCS_OK) ||
        ((status = uct_utofu_config_count("RX_SHORT_SLOTS",
                                          config->rx_short_slots,
                                          &core_config->rx_short_slots)) !=
         UCS_OK) ||
        ((status = uct_utofu_config_count("TX_BOUNCE", config->tx_bounce,
                                          &core_config->tx_bounce)) !=
         UCS_OK) ||
        ((status = uct_utofu_config_count("TX_NOTIFIED", config->tx_notified,
                                          &core_config->tx_notified)) !=
         UCS_OK)) {
        return status;
    }

    if (config->am_seg_size != UCS_MEMUNITS_AUTO) {
        if ((config->am_seg_size < UCT_UTOFU_AM_SEG_SIZE_MIN) ||
            (config->am_seg_size > TOFU_AM_MAX_SEG_SIZE)) {
            uct_utofu_error("UCX_UTOFU_AM_SEG_SIZE: it can be %u to %u bytes",
                            UCT_UTOFU_AM_SEG_SIZE_MIN, TOFU_AM_MAX_SEG_SIZE);
            return UCS_ERR_INVALID_PARAM;
        }
        core_config->am_seg_size = config->am_seg_size;
    }
    if (config->am_polled != UCT_UTOFU_COUNT_AUTO) { /* 0 is a number here */
        if (config->am_polled > 8) {
            uct_utofu_error("UCX_UTOFU_AM_POLLED: it can be 0 to 8");
            return UCS_ERR_INVALID_PARAM;
        }
        core_config->am_polled = (unsigned)config->am_polled;
    }
    if ((config->am_in_place == 0) || (config->am_in_place == 1)) {
        core_config->am_in_place = config->am_in_place;
    }
    /* who says which features it uses is UCP */
    core_config->am_ahead =
            ((config->am_ahead == 0) || (config->am_ahead == 1)) ? config->am_ahead :
            (params->field_mask & UCT_IFACE_PARAM_FIELD_FEATURES) ? -1 : 0;
    core_config->strong_order   = config->strong_order;
    core_config->early_complete = config->early_complete;
    if (!UCS_CONFIG_DBL_IS_AUTO(config->wakeup_timer)) {
        if (!(config->wakeup_timer >= 1e-6) || (config->wakeup_timer > 0.1)) {
            uct_utofu_error("UCX_UTOFU_WAKEUP_TIMER: it can be 1us to 100ms");
            return UCS_ERR_INVALID_PARAM;
        }
        core_config->wakeup_timer_us =
                (unsigned)((config->wakeup_timer * 1e6) + 0.5);
    }
    return uct_utofu_config_figures(config);
}

static void uct_utofu_override(double value, double *attr_p)
{
    if (!UCS_CONFIG_DBL_IS_AUTO(value)) {
        *attr_p = value;
    }
}

void uct_utofu_iface_config_attr(const uct_utofu_iface_config_t *config,
                                 tofu_iface_attr_t *attr)
{
    /* what the user says is said of every operation */
    uct_utofu_override(config->bandwidth, &attr->bandwidth);
    uct_utofu_override(config->bandwidth, &attr->rma_bandwidth);
    uct_utofu_override(config->bandwidth, &attr->am_bandwidth);
    uct_utofu_override(config->overhead, &attr->rma_overhead);
    uct_utofu_override(config->overhead, &attr->put_bcopy_overhead);
    uct_utofu_override(config->overhead, &attr->get_bcopy_overhead);
    uct_utofu_override(config->overhead, &attr->am_zcopy_overhead);
    if (!UCS_CONFIG_DBL_IS_AUTO(config->overhead)) {
        attr->post_overhead     = 0; /* it is all of it */
        attr->rma_post_overhead = 0;
    }
    uct_utofu_override(config->latency, &attr->latency);
    uct_utofu_override(config->overhead, &attr->overhead);
}
