/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_md.c - memory domains, and how VCQs of ours are made.
 */
#include "tofu_hub.h"

#include <stdlib.h>
#include <unistd.h>

#define TOFU_TNI_CQS          9u /* of a node: 6.1.2 */
#define TOFU_EXCLUSIVE_CQS    8u /* an iface may have one of its own on any machine */
/* At 6.35 GB/s this takes as long as the further registrations cost. */
#define TOFU_MD_STRIPE_THRESH ((size_t)256 << 10)

void tofu_md_config_default(tofu_md_config_t *config)
{
    config->tni           = TOFU_TNI_AUTO;
    config->tni_mask      = 0;
    config->max_cqs       = 0;
    config->max_vcqs      = TOFU_VCQS_ALL;
    config->stripe_thresh = TOFU_MD_STRIPE_THRESH;
    config->arena_chunk   = 0;
}

tofu_status_t tofu_vcq_open(tofu_md_t *md, utofu_tni_id_t tni,
                            unsigned long flags, utofu_vcq_hdl_t *vcq_p,
                            utofu_vcq_id_t *vcq_id_p)
{
    utofu_vcq_hdl_t vcq;
    int             ret;

    ret = md->fn.create_vcq(tni, flags, &vcq);
    if (ret != UTOFU_SUCCESS) {
        tofu_debug("utofu_create_vcq(TNI %u, flags %#lx): %s", tni, flags,
                   tofu_code_name(ret));
        return ((ret == UTOFU_ERR_FULL) || (ret == UTOFU_ERR_NOT_AVAILABLE) ||
                (ret == UTOFU_ERR_NOT_SUPPORTED) ||
                (ret == UTOFU_ERR_OUT_OF_RESOURCE)) ?
                       TOFU_ERR_NO_DEVICE :
                       tofu_status_from_code(ret);
    }
    ret = md->fn.query_vcq_id(vcq, vcq_id_p);
    if (ret != UTOFU_SUCCESS) {
        tofu_error("utofu_query_vcq_id on TNI %u: %s", tni,
                   tofu_code_name(ret));
        md->fn.free_vcq(vcq);
        return tofu_status_from_code(ret);
    }
    tofu_tell_unordered(md, vcq);
    *vcq_p = vcq;
    return TOFU_OK;
}

tofu_status_t tofu_scratch_open(tofu_md_t *md, const struct tofu_functions *fn,
                                utofu_vcq_hdl_t vcq, void **page_p,
                                tofu_arena_t **arena_p)
{
    utofu_stadd_t stadd;
    tofu_status_t status;
    tofu_arena_t  *arena;
    void          *page;
    int           ret;

    status = tofu_arena_get(md, md->page_size, &page, &arena);
    if (status != TOFU_OK) {
        return status;
    }
    ret = fn->reg_mem_with_stag(vcq, page, md->page_size, TOFU_STAG_SCRATCH, 0,
                                &stadd);
    if (ret != UTOFU_SUCCESS) {
        tofu_error("utofu_reg_mem_with_stag(STag %d): %s", TOFU_STAG_SCRATCH,
                   tofu_code_name(ret));
        tofu_arena_put(md, arena, page, md->page_size);
        return tofu_status_from_code(ret);
    }
    *page_p  = page;
    *arena_p = arena;
    return TOFU_OK;
}

/* Does the TNI have what the core needs? */
static tofu_status_t tofu_md_check_caps(const tofu_md_t *md)
{
    const unsigned long need = UTOFU_ONESIDED_CAP_ARMW_OP_CSWAP |
                               UTOFU_ONESIDED_CAP_ARMW_OP_SWAP |
                               UTOFU_ONESIDED_CAP_ARMW_OP_ADD |
                               UTOFU_ONESIDED_CAP_ARMW_OP_XOR |
                               UTOFU_ONESIDED_CAP_ARMW_OP_AND |
                               UTOFU_ONESIDED_CAP_ARMW_OP_OR;

    if (!(md->caps.flags & UTOFU_ONESIDED_CAP_FLAG_ARMW) ||
        ((md->caps.armw_ops & need) != need) ||
        (md->caps.max_piggyback_size < TOFU_MAX_SHORT) ||
        (md->caps.max_edata_size < 1) || (md->caps.num_reserved_stags < 8) ||
        (md->page_size % md->caps.stag_address_alignment != 0)) {
        tofu_error("TNI %u lacks what this transport needs (atomics, piggyback"
                   " of %u bytes, EDATA, reserved STags)",
                   md->tni, TOFU_MAX_SHORT);
        return TOFU_ERR_UNSUPPORTED;
    }
    return TOFU_OK;
}

/* A number of the first variable that has one; else `otherwise`. */
static unsigned tofu_md_environment(const char *const *names, size_t count,
                                    unsigned otherwise)
{
    const char    *text;
    char          *end;
    unsigned long value;
    size_t        i;

    for (i = 0; i < count; ++i) {
        text = getenv(names[i]);
        if ((text != NULL) && (text[0] != '\0')) {
            value = strtoul(text, &end, 10);
            if (*end == '\0') {
                return (unsigned)(value % 720720); /* divisible by 1 .. 6 */
            }
        }
    }
    return otherwise;
}

/* Rank of the process on its node, as starters of parallel programs tell it. */
static unsigned tofu_md_local_rank(void)
{
    static const char *const names[] = {
        "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMIX_LOCAL_RANK",
        "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"
    };

    return tofu_md_environment(names, sizeof(names) / sizeof(names[0]), 0);
}

/* Processes on the node, the same way. */
static unsigned tofu_md_local_size(void)
{
    static const char *const names[] = {
        "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMIX_LOCAL_SIZE",
        "MV2_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE"
    };

    return tofu_md_environment(names, sizeof(names) / sizeof(names[0]), 1);
}

/* CPUs of the node, or a few if it has fewer.  Not those of the calling thread's mask: who
 * binds threads has bound this one to a single CPU already. */
static unsigned tofu_md_cpus(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);

    return (cpus > (long)TOFU_EXCLUSIVE_CQS) ? (unsigned)cpus : TOFU_EXCLUSIVE_CQS;
}

/*
 * A node has 9 CQs a TNI, and each is one process's (2.2.1): what a process takes,
 * others of the node don't have.  Its share, at least one, is spent so:
 *   a shared CQ on each of num_tnis TNIs   md, rails, lanes; and ifaces when no other
 *                                          CQ is left
 *   exclusive_cqs                          of ifaces of their own: as many as there are
 *                                          CPUs, for more can't run at once; a CQ that is
 *                                          shared holds eight
 */
static void tofu_md_share_cqs(tofu_md_t *md, unsigned cqs)
{
    unsigned size = tofu_md_local_size();

    md->has_share = size > 1;
    if (cqs == 0) {
        cqs = TOFU_TNI_CQS * md->all_tnis / ((size > 0) ? size : 1);
    }
    cqs               = (cqs > 0) ? cqs : 1;
    md->num_tnis      = (cqs > md->all_tnis) ? md->all_tnis :
                        (cqs > 1)            ? cqs - 1 :
                                               1;
    md->exclusive_cqs = cqs - md->num_tnis;
    if (md->exclusive_cqs > tofu_md_cpus()) {
        md->exclusive_cqs = tofu_md_cpus();
    }
}

/* The TNIs that may be used, the preferred one first. */
static tofu_status_t tofu_md_choose_tni(tofu_md_t *md,
                                        const tofu_md_config_t *config)
{
    utofu_tni_id_t             allowed[TOFU_MAX_TNIS];
    struct utofu_onesided_caps *caps;
    utofu_tni_id_t             *tnis = NULL;
    unsigned                   first = 0, index = config->tni, i;
    size_t                     count = 0;
    int                        ret;

    ret = md->fn.get_onesided_tnis(&tnis, &count);
    if (ret != UTOFU_SUCCESS) {
        tofu_error("utofu_get_onesided_tnis: %s", tofu_code_name(ret));
        return tofu_status_from_code(ret);
    }
    if ((index != TOFU_TNI_AUTO) &&
        ((index >= count) || ((config->tni_mask != 0) &&
                              !(config->tni_mask & (1u << index))))) {
        tofu_error("TNI number %u asked for, %zu can be used (mask %#x)", index,
                   count, config->tni_mask);
        free(tnis);
        return TOFU_ERR_NO_DEVICE;
    }
    for (i = 0; (i < count) && (i < TOFU_MAX_TNIS); ++i) {
        if ((config->tni_mask == 0) || (config->tni_mask & (1u << i))) {
            first                   = (i == index) ? md->all_tnis : first;
            allowed[md->all_tnis++] = tnis[i];
        }
    }
    free(tnis);
    if (md->all_tnis == 0) {
        tofu_error("none of the TNIs of mask %#x can be used, there are %zu",
                   config->tni_mask, count);
        return TOFU_ERR_NO_DEVICE;
    }
    if (index == TOFU_TNI_AUTO) {
        first = tofu_md_local_rank() % md->all_tnis;
    }
    for (i = 0; i < md->all_tnis; ++i) {
        md->tnis[i] = allowed[(first + i) % md->all_tnis];
    }
    md->tni = md->tnis[0];
    tofu_md_share_cqs(md, config->max_cqs);
    ret = md->fn.query_onesided_caps(md->tni, &caps);
    if (ret != UTOFU_SUCCESS) {
        tofu_error("utofu_query_onesided_caps(TNI %u): %s", md->tni,
                   tofu_code_name(ret));
        return tofu_status_from_code(ret);
    }
    md->caps = *caps;
    return tofu_md_check_caps(md);
}

tofu_status_t tofu_md_open(const struct tofu_backend *backend,
                           const tofu_md_config_t *config, tofu_md_t **md_p)
{
    tofu_md_config_t defaults;
    tofu_arena_t     *arena;
    tofu_status_t    status;
    tofu_md_t        *md;
    unsigned         i;
    int              ret;

    if (backend == NULL) {
        return TOFU_ERR_INVALID_PARAM;
    }
    if (config == NULL) {
        tofu_md_config_default(&defaults);
        config = &defaults;
    }
    if (config->stripe_thresh == 0) {
        tofu_error("stripe_thresh 0: it is at least 1 byte");
        return TOFU_ERR_INVALID_PARAM;
    }
    md = calloc(1, sizeof(*md));
    if (md == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    md->backend     = backend;
    md->fn          = backend->fn;
    md->page_size   = (size_t)sysconf(_SC_PAGESIZE);
    md->arena_chunk = (config->arena_chunk + md->page_size - 1) /
                      md->page_size * md->page_size;
    pthread_mutex_init(&md->lock, NULL);
    tofu_told_open(md);

    md->max_vcqs      = config->max_vcqs;
    md->stripe_thresh = config->stripe_thresh;
    status = tofu_md_choose_tni(md, config);
    if (status != TOFU_OK) {
        goto err_free;
    }
    ret = md->fn.query_my_coords(md->coords);
    if (ret != UTOFU_SUCCESS) {
        tofu_error("utofu_query_my_coords: %s", tofu_code_name(ret));
        status = tofu_status_from_code(ret);
        goto err_free;
    }
    /* registrations come from any thread */
    status = TOFU_ERR_NO_DEVICE;
    for (i = 0; (i < md->all_tnis) && (status != TOFU_OK); ++i) {
        md->tni = md->tnis[i];
        status  = tofu_vcq_open(md, md->tni, UTOFU_VCQ_FLAG_THREAD_SAFE,
                                &md->vcq, &md->vcq_id);
    }
    if (status != TOFU_OK) {
        tofu_error("no VCQ for an md is left on %u TNIs of this node: %s; "
                   "processes that nobody told how many they are on the node "
                   "(UCX_UTOFU_MAX_CQS) take up to %u CQs each",
                   md->all_tnis, tofu_status_string(status),
                   TOFU_TNI_CQS * md->all_tnis);
        goto err_free;
    }
    status = tofu_scratch_open(md, &md->fn, md->vcq, &md->scratch, &arena);
    if (status != TOFU_OK) {
        goto err_free_vcq;
    }
    tofu_local_add(md);
    *md_p = md;
    return TOFU_OK;

err_free_vcq:
    md->fn.free_vcq(md->vcq);
    tofu_arena_cleanup(md);
err_free:
    tofu_told_close(md);
    pthread_mutex_destroy(&md->lock);
    free(md);
    return status;
}

void tofu_rails_open(tofu_md_t *md, size_t length)
{
    utofu_stadd_t stadd;
    tofu_rail_t   *rail;
    unsigned      i;

    for (i = 1; (length >= md->stripe_thresh) && (i < md->num_tnis); ++i) {
        rail = &md->rail[i];
        if (rail->open || rail->failed) {
            continue;
        }
        if (tofu_vcq_open(md, md->tnis[i], UTOFU_VCQ_FLAG_THREAD_SAFE,
                          &rail->vcq, &rail->vcq_id) != TOFU_OK) {
            rail->failed = 1;
        } else if (md->fn.reg_mem_with_stag(rail->vcq, md->scratch,
                                            md->page_size, TOFU_STAG_SCRATCH,
                                            0, &stadd) != UTOFU_SUCCESS) {
            md->fn.free_vcq(rail->vcq);
            rail->failed = 1;
        } else {
            rail->open = 1;
        }
        if (rail->failed) {
            tofu_log(2, "md of VCQ %#llx: no VCQ is left on TNI %u; large "
                     "transfers to it come by fewer TNIs",
                     (unsigned long long)md->vcq_id, md->tnis[i]);
        }
    }
}

void tofu_md_close(tofu_md_t *md)
{
    unsigned i;
    int      ret;

    tofu_local_remove(md);
    tofu_reg_cleanup(md);
    tofu_quarantine_cleanup(md);
    for (i = 1; i < md->num_tnis; ++i) {
        if (md->rail[i].open) {
            md->fn.free_vcq(md->rail[i].vcq);
        }
    }
    tofu_hubs_close(md);
    ret = md->fn.free_vcq(md->vcq); /* and the scratch page with it */
    if (ret != UTOFU_SUCCESS) {
        tofu_error("utofu_free_vcq(%#llx): %s", (unsigned long long)md->vcq_id,
                   tofu_code_name(ret));
    }
    tofu_told_close(md); /* all VCQs are freed */
    tofu_arena_cleanup(md);
    free(md->ifaces);
    pthread_mutex_destroy(&md->lock);
    free(md);
}

void tofu_md_query(tofu_md_t *md, tofu_md_attr_t *attr)
{
    tofu_attr_md(md, attr);
    pthread_mutex_lock(&md->lock);
    attr->num_registrations = md->num_regs;
    pthread_mutex_unlock(&md->lock);
}
