/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_quarantine.c - STags of invalidated keys are kept from new memory.
 *
 * Nothing in a STADD says which registration it belonged to: when a STag is given
 * out again, an old key leads to the new memory.  Which STag a registration gets is
 * for the driver to say; one that is free again is often the next.  So, right after
 * the registration of an invalidated key went away, one byte of a read-only page of
 * ours is registered.  When it gets that same STag it holds it, and operations with
 * the old key go on failing: the range of the STag is one byte that can't be
 * written, and that is outside of the old range unless the old memory began at a
 * multiple of 256 (then a get of exactly that byte reads a zero).  When it gets
 * another, the driver does not hurry to use STags again, and the byte goes back.
 *
 * The number of STags held is bounded; the one held longest is let go first.
 */
#include "tofu_internal.h"

#include <stdlib.h>
#include <sys/mman.h>

#define TOFU_QUARANTINE_MAX  512u
#define TOFU_QUARANTINE_STEP 256u /* alignment of STags, so of what has one */

struct tofu_quarantine {
    char     *pages; /* TOFU_QUARANTINE_STEP bytes for each */
    unsigned next;   /* to be used, or to be let go */
    struct {
        utofu_vcq_hdl_t vcq;
        utofu_stadd_t   stadd;
        int             held;
    } entry[TOFU_QUARANTINE_MAX];
};

static struct tofu_quarantine *tofu_quarantine_new(void)
{
    struct tofu_quarantine *quarantine = calloc(1, sizeof(*quarantine));

    if (quarantine == NULL) {
        return NULL;
    }
    quarantine->pages = mmap(NULL, TOFU_QUARANTINE_MAX * TOFU_QUARANTINE_STEP,
                             PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (quarantine->pages == MAP_FAILED) {
        free(quarantine);
        return NULL;
    }
    return quarantine;
}

static void tofu_quarantine_release(tofu_md_t *md, unsigned i)
{
    struct tofu_quarantine *quarantine = md->quarantine;
    int                    ret;

    if (!quarantine->entry[i].held) {
        return;
    }
    quarantine->entry[i].held = 0;
    ret = md->fn.dereg_mem(quarantine->entry[i].vcq,
                           quarantine->entry[i].stadd, 0);
    if (ret != UTOFU_SUCCESS) {
        tofu_error("utofu_dereg_mem(STADD %#llx, held in place of an "
                   "invalidated key): %s",
                   (unsigned long long)quarantine->entry[i].stadd,
                   tofu_code_name(ret));
    }
}

void tofu_quarantine_add(tofu_md_t *md, utofu_vcq_hdl_t vcq,
                         utofu_stadd_t stadd)
{
    unsigned      offset = stadd % TOFU_QUARANTINE_STEP;
    utofu_stadd_t head   = stadd - offset;
    utofu_stadd_t plug;
    unsigned      i;
    int           ret;

    if (md->quarantine == NULL) {
        md->quarantine = tofu_quarantine_new();
        if (md->quarantine == NULL) {
            tofu_warn("out of memory: the STag of an invalidated key may be "
                      "used again at once");
            return;
        }
    }
    i   = md->quarantine->next;
    /* below the old range, or far into it when there is no below */
    ret = md->fn.reg_mem(vcq, md->quarantine->pages + i * TOFU_QUARANTINE_STEP +
                                      ((offset > 0) ? 0 :
                                                TOFU_QUARANTINE_STEP - 1),
                         1, UTOFU_REG_MEM_FLAG_READ_ONLY, &plug);
    if (ret != UTOFU_SUCCESS) {
        tofu_warn("utofu_reg_mem(1 byte, in place of an invalidated key): %s",
                  tofu_code_name(ret));
        return;
    }
    if (plug - head >= TOFU_QUARANTINE_STEP) {
        md->fn.dereg_mem(vcq, plug, 0); /* another STag */
        return;
    }
    md->quarantine->entry[i].vcq   = vcq;
    md->quarantine->entry[i].stadd = plug;
    md->quarantine->entry[i].held  = 1;
    md->quarantine->next           = (i + 1) % TOFU_QUARANTINE_MAX;
    tofu_quarantine_release(md, md->quarantine->next);
}

void tofu_quarantine_cleanup(tofu_md_t *md)
{
    unsigned i;

    if (md->quarantine == NULL) {
        return;
    }
    for (i = 0; i < TOFU_QUARANTINE_MAX; ++i) {
        tofu_quarantine_release(md, i);
    }
    munmap(md->quarantine->pages, TOFU_QUARANTINE_MAX * TOFU_QUARANTINE_STEP);
    free(md->quarantine);
    md->quarantine = NULL;
}
