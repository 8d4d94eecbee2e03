/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * memory.c - the kinds of memory that programs register, and byte patterns.
 */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* Blocks of these kinds start at an odd place of a page and of a cache line,
 * as they do in programs. */
#define ODD_OFFSET 24

static _Alignas(16) unsigned char static_area[CONF_STACK_SIZE + ODD_OFFSET];
static void         *stack_area      = NULL;
static size_t        stack_area_size = 0;

const char *conf_kind_name(enum conf_kind kind)
{
    static const char *names[CONF_MEM_NUM] = {
        [CONF_MEM_MALLOC]      = "malloc",
        [CONF_MEM_CALLOC]      = "calloc",
        [CONF_MEM_STACK]       = "stack",
        [CONF_MEM_STATIC]      = "static",
        [CONF_MEM_ANON]        = "private anonymous mapping",
        [CONF_MEM_ANON_SHARED] = "shared anonymous mapping",
        [CONF_MEM_MEMFD]       = "memfd mapping",
        [CONF_MEM_MEMFD_PART]  = "mapping of a part of a memfd",
        [CONF_MEM_SHM]         = "POSIX shared memory mapping",
        [CONF_MEM_FILE]        = "shared file mapping",
        [CONF_MEM_COW]         = "private file mapping",
        [CONF_MEM_MIXED]       = "memfd mapping followed by anonymous memory",
    };

    return names[kind];
}

void conf_mem_lend_stack(void *frame, size_t size)
{
    stack_area      = frame;
    stack_area_size = size;
}

static void *map(size_t size, int flags, int fd, off_t offset)
{
    void *addr = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, offset);

    CONF_CHECK(addr != MAP_FAILED, "mmap of %zu bytes: %s", size,
               strerror(errno));
    return addr;
}

static int make_file(enum conf_kind kind, size_t size)
{
    char  name[64];
    FILE *file;
    int   fd;

    if (kind == CONF_MEM_SHM) {
        snprintf(name, sizeof(name), "/utofu-conformance-%d", (int)getpid());
        fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (fd >= 0) {
            shm_unlink(name);
        }
    } else if (kind == CONF_MEM_FILE) {
        file = tmpfile(); /* has no name any more */
        fd   = (file == NULL) ? -1 : dup(fileno(file));
        if (file != NULL) {
            fclose(file);
        }
    } else {
        fd = memfd_create("utofu-conformance", MFD_CLOEXEC);
    }
    CONF_CHECK((fd >= 0) && (ftruncate(fd, size) == 0),
               "shared memory file of %zu bytes: %s", size, strerror(errno));
    return fd;
}

void conf_mem_alloc(struct conf_mem *mem, enum conf_kind kind, size_t size)
{
    size_t page = sysconf(_SC_PAGESIZE);
    size_t head;

    memset(mem, 0, sizeof(*mem));
    mem->kind       = kind;
    mem->size       = size;
    mem->fd         = -1;
    mem->block_size = size;
    switch (kind) {
    case CONF_MEM_MALLOC:
        mem->block = malloc(size);
        mem->addr  = mem->block;
        break;
    case CONF_MEM_CALLOC:
        mem->block = calloc(1, size + ODD_OFFSET);
        mem->addr  = (unsigned char *)mem->block + ODD_OFFSET;
        break;
    case CONF_MEM_STACK:
        CONF_CHECK(size <= stack_area_size, "the stack area is too small");
        mem->addr = stack_area;
        break;
    case CONF_MEM_STATIC:
        CONF_CHECK(size <= CONF_STACK_SIZE, "the static area is too small");
        mem->addr = static_area + ODD_OFFSET;
        break;
    case CONF_MEM_ANON:
        mem->addr = map(size, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        break;
    case CONF_MEM_ANON_SHARED:
        mem->addr = map(size, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        break;
    case CONF_MEM_MEMFD:
    case CONF_MEM_FILE:
        mem->fd   = make_file(kind, size);
        mem->addr = map(size, MAP_SHARED, mem->fd, 0);
        break;
    case CONF_MEM_SHM:
        mem->fd   = make_file(kind, size);
        mem->addr = map(size, MAP_SHARED, mem->fd, 0);
        close(mem->fd);
        mem->fd = -1;
        break;
    case CONF_MEM_COW:
        mem->fd   = make_file(kind, size);
        mem->addr = map(size, MAP_PRIVATE, mem->fd, 0);
        break;
    case CONF_MEM_MEMFD_PART:
        mem->fd         = make_file(kind, size + 3 * page);
        mem->block_size = size + page;
        mem->block      = map(mem->block_size, MAP_SHARED, mem->fd, page);
        mem->addr       = (unsigned char *)mem->block + ODD_OFFSET;
        break;
    case CONF_MEM_MIXED:
        /* The first half, in whole pages, comes from a memfd. */
        head            = (size / 2 / page + 1) * page;
        mem->block_size = head + size + page;
        mem->block      = map(mem->block_size, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                              0);
        mem->fd         = make_file(kind, head);
        CONF_CHECK(mmap(mem->block, head, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_FIXED, mem->fd, 0) == mem->block,
                   "mmap at a fixed address: %s", strerror(errno));
        mem->addr = (unsigned char *)mem->block + head - size / 2;
        break;
    case CONF_MEM_NUM:
        break;
    }
    CONF_CHECK(mem->addr != NULL, "no memory of kind %s", conf_kind_name(kind));
    memset(mem->addr, 0, size);
}

void conf_mem_free(struct conf_mem *mem)
{
    switch (mem->kind) {
    case CONF_MEM_MALLOC:
    case CONF_MEM_CALLOC:
        free(mem->block);
        break;
    case CONF_MEM_STACK:
    case CONF_MEM_STATIC:
    case CONF_MEM_NUM:
        break;
    case CONF_MEM_MEMFD_PART:
    case CONF_MEM_MIXED:
        munmap(mem->block, mem->block_size);
        break;
    default:
        munmap(mem->addr, mem->size);
        break;
    }
    if (mem->fd >= 0) {
        close(mem->fd);
    }
    mem->addr = NULL;
}

/* -------------------------------------------------------------- patterns */

static unsigned char pattern(size_t i, unsigned seed)
{
    return (unsigned char)(i * 7 + (i >> 8) * 13 + (i >> 16) * 29 +
                           seed * 37 + 1);
}

void conf_fill(void *buffer, size_t length, unsigned seed)
{
    unsigned char *bytes = buffer;
    size_t         i;

    for (i = 0; i < length; i++) {
        bytes[i] = pattern(i, seed);
    }
}

void conf_check_fill(const char *file, int line, const void *buffer,
                     size_t length, unsigned seed, const char *what)
{
    const unsigned char *bytes = buffer;
    size_t               i;

    for (i = 0; i < length; i++) {
        if (bytes[i] != pattern(i, seed)) {
            conf_fail_at(file, line,
                         "%s: byte %zu of %zu is 0x%02x, expected 0x%02x",
                         what, i, length, bytes[i], pattern(i, seed));
        }
    }
}

void conf_check_bytes(const char *file, int line, const void *buffer,
                      size_t length, unsigned char value, const char *what)
{
    const unsigned char *bytes = buffer;
    size_t               i;

    for (i = 0; i < length; i++) {
        if (bytes[i] != value) {
            conf_fail_at(file, line,
                         "%s: byte %zu of %zu is 0x%02x, expected 0x%02x",
                         what, i, length, bytes[i], value);
        }
    }
}
