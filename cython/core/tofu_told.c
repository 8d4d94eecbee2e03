/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_told.c - pages by which a library is told what we do with a VCQ (tofu_vcq.h);
 * without them all works, and the emulator takes longer.
 */
#include "tofu_hub.h"

#include <tofu_vcq.h>

#include <sys/mman.h>
#include <unistd.h>

static void *tofu_told_page(const tofu_md_t *md, const char *name)
{
    int  fd    = md->backend->unordered ? memfd_create(name, MFD_CLOEXEC) : -1;
    void *page = MAP_FAILED;

    if (fd < 0) {
        return NULL;
    }
    if (ftruncate(fd, (off_t)md->page_size) == 0) {
        page = mmap(NULL, md->page_size, PROT_READ, MAP_SHARED, fd, 0);
    }
    close(fd);
    return (page == MAP_FAILED) ? NULL : page;
}

void tofu_told_open(tofu_md_t *md)
{
    md->unordered = tofu_told_page(md, TOFU_UNORDERED_MEMFD);
    md->movable   = tofu_told_page(md, TOFU_MOVABLE_MEMFD);
}

void tofu_told_close(tofu_md_t *md)
{
    if (md->unordered != NULL) {
        munmap(md->unordered, md->page_size);
    }
    if (md->movable != NULL) {
        munmap(md->movable, md->page_size);
    }
}

/* 0: the library does not know */
static int tofu_tell(tofu_md_t *md, utofu_vcq_hdl_t vcq, void *page,
                     const char *name, utofu_stadd_t *stadd_p)
{
    int ret;

    if (page == NULL) {
        return 0;
    }
    ret = md->fn.reg_mem(vcq, page, md->page_size, UTOFU_REG_MEM_FLAG_READ_ONLY,
                         stadd_p);
    if (ret != UTOFU_SUCCESS) {
        tofu_debug("utofu_reg_mem(%s): %s", name, tofu_code_name(ret));
    }
    return ret == UTOFU_SUCCESS;
}

void tofu_tell_unordered(tofu_md_t *md, utofu_vcq_hdl_t vcq)
{
    utofu_stadd_t stadd;

    tofu_tell(md, vcq, md->unordered, TOFU_UNORDERED_MEMFD, &stadd);
}

int tofu_reg_told(tofu_md_t *md, utofu_vcq_hdl_t vcq, tofu_mem_t *memh,
                  utofu_stadd_t *stadd_p)
{
    unsigned long flags = (memh->flags & TOFU_MEM_READ_ONLY) ?
                                  UTOFU_REG_MEM_FLAG_READ_ONLY :
                                  0;
    int           told  = 0, ret;
    utofu_stadd_t page;

    if (memh->flags & TOFU_MEM_MOVABLE) {
        told = tofu_tell(md, vcq, md->movable, TOFU_MOVABLE_MEMFD, &page);
    }
    ret = md->fn.reg_mem(vcq, memh->reg_address, memh->reg_length, flags,
                         stadd_p);
    if (told) {
        md->fn.dereg_mem(vcq, page, 0);
    }
    return ret;
}
