/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_arena.c - where tofu_mem_alloc gets its memory.
 *
 * Arenas are sparse sealed memfds, mapped shared: plain Linux memory for the
 * machine, and for the emulator memory that peers can map, which is the fastest
 * it has.  The descriptor stays open as long as the arena, for it is by the
 * descriptor that others find the memory.
 */
#include "tofu_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define TOFU_ARENA_MAX_LENGTH ((size_t)1 << 46)

/* Few arenas, however much there is in them; but what looks at all that a process maps (memcheck
 * for leaks at its end) fills the holes. */
#define TOFU_ARENA_FIRST ((size_t)32 << 20)
#define TOFU_ARENA_LAST  ((size_t)16 << 30)

typedef struct tofu_arena_hole { /* free pages, by address, never adjacent */
    struct tofu_arena_hole *next;
    size_t                 offset;
    size_t                 length;
} tofu_arena_hole_t;

struct tofu_arena {
    tofu_arena_t      *next;
    int               fd;
    int               own; /* one allocation's, and in no list */
    char              *base;
    size_t            length;
    tofu_arena_hole_t *holes;
};

static tofu_status_t tofu_arena_map(size_t length, tofu_arena_t *arena)
{
    arena->fd = memfd_create("tofu-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (arena->fd < 0) {
        return TOFU_ERR_NO_MEMORY;
    }
    if ((ftruncate(arena->fd, (off_t)length) != 0) ||
        (fcntl(arena->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)) {
        goto err_close;
    }
    arena->base = mmap(NULL, length, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_NORESERVE, arena->fd, 0);
    if (arena->base == MAP_FAILED) {
        goto err_close;
    }
    arena->length = length;
    return TOFU_OK;

err_close:
    close(arena->fd);
    return TOFU_ERR_NO_MEMORY;
}

static size_t tofu_arena_chunk(const tofu_md_t *md)
{
    if (md->arena_chunk > 0) {
        return md->arena_chunk;
    }
    return (md->arena_last == 0) ? TOFU_ARENA_FIRST :
           (md->arena_last < TOFU_ARENA_LAST / 2) ? 2 * md->arena_last : TOFU_ARENA_LAST;
}

/* A new arena for at least `length` bytes; a whole chunk if there is room. */
static tofu_status_t tofu_arena_new(tofu_md_t *md, size_t length,
                                    tofu_arena_t **arena_p)
{
    size_t        chunk = tofu_arena_chunk(md);
    size_t        size  = (chunk > length) ? chunk : length;
    tofu_arena_t  *arena;
    tofu_status_t status;

    arena = calloc(1, sizeof(*arena));
    if (arena == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    arena->holes = calloc(1, sizeof(*arena->holes));
    if (arena->holes == NULL) {
        free(arena);
        return TOFU_ERR_NO_MEMORY;
    }
    /* address space may be limited (RLIMIT_AS): take less, but enough */
    while ((status = tofu_arena_map(size, arena)) != TOFU_OK) {
        if (size == length) {
            tofu_error("no memory for %zu bytes (memfd and mmap): %s", length,
                       strerror(errno));
            free(arena->holes);
            free(arena);
            return status;
        }
        size = (size / 2 > length) ? size / 2 / md->page_size * md->page_size :
                                     length;
        size = (size < length) ? length : size;
    }
    arena->holes->length = size;
    md->arena_last       = size;
    arena->next          = md->arenas;
    md->arenas           = arena;
    *arena_p             = arena;
    return TOFU_OK;
}

tofu_status_t tofu_arena_get_own(size_t length, void **address_p,
                                 tofu_arena_t **arena_p)
{
    tofu_arena_t  *arena = calloc(1, sizeof(*arena));
    tofu_status_t status;

    if (arena == NULL) {
        return TOFU_ERR_NO_MEMORY;
    }
    status = tofu_arena_map(length, arena);
    if (status != TOFU_OK) {
        free(arena);
        return status;
    }
    arena->own = 1;
    *address_p = arena->base;
    *arena_p   = arena;
    return TOFU_OK;
}

int tofu_arena_own_fd(const tofu_arena_t *arena)
{
    return arena->own ? arena->fd : -1;
}

/* First fit. */
static int tofu_arena_take(tofu_arena_t *arena, size_t length, size_t *offset_p)
{
    tofu_arena_hole_t **link, *hole;

    for (link = &arena->holes; (hole = *link) != NULL; link = &hole->next) {
        if (hole->length < length) {
            continue;
        }
        *offset_p     = hole->offset;
        hole->offset += length;
        hole->length -= length;
        if (hole->length == 0) {
            *link = hole->next;
            free(hole);
        }
        return 1;
    }
    return 0;
}

tofu_status_t tofu_arena_get(tofu_md_t *md, size_t length, void **address_p,
                             tofu_arena_t **arena_p)
{
    tofu_status_t status = TOFU_OK;
    tofu_arena_t  *arena;
    size_t        offset = 0;

    if ((length == 0) || (length > TOFU_ARENA_MAX_LENGTH)) {
        return TOFU_ERR_NO_MEMORY;
    }
    pthread_mutex_lock(&md->lock);
    for (arena = md->arenas; arena != NULL; arena = arena->next) {
        if (tofu_arena_take(arena, length, &offset)) {
            break;
        }
    }
    if (arena == NULL) {
        status = tofu_arena_new(md, length, &arena);
        if (status == TOFU_OK) {
            tofu_arena_take(arena, length, &offset);
        }
    }
    pthread_mutex_unlock(&md->lock);
    if (status == TOFU_OK) {
        *address_p = arena->base + offset;
        *arena_p   = arena;
    }
    return status;
}

void tofu_arena_put(tofu_md_t *md, tofu_arena_t *arena, void *address,
                    size_t length)
{
    size_t            offset = (size_t)((char *)address - arena->base);
    tofu_arena_hole_t **link, *hole, *prev = NULL;

    /* Give the pages back; they read zero when they are taken again.  tofu_mem_free has
     * done it before the deregistration, but what peers put meanwhile came after it. */
    if (fallocate(arena->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)offset, (off_t)length) != 0) {
        memset(address, 0, length);
    }
    if (arena->own) {
        munmap(arena->base, arena->length);
        close(arena->fd);
        free(arena);
        return;
    }

    pthread_mutex_lock(&md->lock);
    for (link = &arena->holes; ((hole = *link) != NULL) &&
                               (hole->offset < offset); link = &hole->next) {
        prev = hole;
    }
    if ((prev != NULL) && (prev->offset + prev->length == offset)) {
        prev->length += length;
        if ((hole != NULL) && (prev->offset + prev->length == hole->offset)) {
            prev->length += hole->length;
            prev->next    = hole->next;
            free(hole);
        }
    } else if ((hole != NULL) && (offset + length == hole->offset)) {
        hole->offset  = offset;
        hole->length += length;
    } else {
        hole = malloc(sizeof(*hole));
        if (hole != NULL) {
            hole->offset = offset;
            hole->length = length;
            hole->next   = *link;
            *link        = hole;
        } else {
            tofu_warn("out of memory: %zu bytes of an arena are lost", length);
        }
    }
    pthread_mutex_unlock(&md->lock);
}

void tofu_arena_cleanup(tofu_md_t *md)
{
    tofu_arena_t      *arena;
    tofu_arena_hole_t *hole;

    while ((arena = md->arenas) != NULL) {
        md->arenas = arena->next;
        while ((hole = arena->holes) != NULL) {
            arena->holes = hole->next;
            free(hole);
        }
        munmap(arena->base, arena->length);
        close(arena->fd);
        free(arena);
    }
}
