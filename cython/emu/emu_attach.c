/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_attach.c - shared memory of a peer that no descriptor can be had of: System V segments, which have a number
 * by which any process may attach them, and shared anonymous memory, of which a relative of its owner has a
 * mapping as well, from before the fork.
 *
 * What is mapped is compared with what the peer said: the number may be another segment's by now, and another
 * thread of the program may have mapped something else over the mapping that is copied.
 */
#include "emu_internal.h"
#include "emu_job.h"
#include "emu_vma.h"

#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#define NAME_SYSV      "/SYSV" /* and the key; as /proc/self/maps has them */
#define NAME_ANONYMOUS "/dev/zero (deleted)"
#define NAME_MOVED     "/memfd:" EMU_SHARED_NAME " (deleted)"

int emu_attach_how(const struct emu_vma *vma)
{
    if (!strncmp(vma->path, NAME_SYSV, sizeof(NAME_SYSV) - 1) && (emu_ipc_namespace() != 0)) {
        return EMU_SEG_BY_NUMBER;
    }
    return (!strcmp(vma->path, NAME_ANONYMOUS) || !strcmp(vma->path, NAME_MOVED)) ? EMU_SEG_INHERITED : -1;
}

static bool from_its_beginning(const struct emu_mapping *m, void *arg)
{
    struct emu_mapping *longest = arg;

    if ((m->off == 0) && (m->end - m->begin > longest->end - longest->begin)) {
        *longest = *m;
    }
    return true;
}

bool emu_attach_find(struct emu_attached *a)
{
    struct emu_mapping own  = {0};
    uint64_t           page = (uint64_t)sysconf(_SC_PAGESIZE);
    struct shmid_ds    ds;

    if (a->how == EMU_SEG_BY_NUMBER) {
        if ((a->ino > INT32_MAX) || (a->ipc_ns == 0) || (a->ipc_ns != emu_ipc_namespace()) ||
            shmctl((int)a->ino, IPC_STAT, &ds)) {
            return false;
        }
        a->size = ((uint64_t)ds.shm_segsz + page - 1) / page * page;
        return a->size != 0;
    }
    if ((a->how != EMU_SEG_INHERITED) || !emu_vma_each_of_file(a->dev, a->ino, 0, UINTPTR_MAX, from_its_beginning, &own)) {
        return false;
    }
    a->own  = own.begin;
    a->size = own.end - own.begin;
    return a->size != 0;
}

static void *attach(const struct emu_attached *a, bool writable)
{
    void *base;

    if (a->how == EMU_SEG_BY_NUMBER) {
        base = shmat((int)a->ino, NULL, writable ? 0 : SHM_RDONLY);
        return (base == (void *)-1) ? MAP_FAILED : base;
    }
    /* nothing is moved: a length of 0 makes one more mapping of the same memory */
    base = mremap((void *)a->own, 0, (size_t)a->size, MREMAP_MAYMOVE);
    if ((base != MAP_FAILED) && mprotect(base, (size_t)a->size, writable ? PROT_READ | PROT_WRITE : PROT_READ)) {
        munmap(base, (size_t)a->size);
        base = MAP_FAILED;
    }
    return base;
}

static void detach(const struct emu_attached *a, void *base)
{
    if (a->how == EMU_SEG_BY_NUMBER) {
        shmdt(base); /* all of it, however long it is */
    } else {
        munmap(base, (size_t)a->size);
    }
}

/* A segment of huge pages may be longer than its size says: it can't be cut, nor put in the place of another. */
static bool is_as_found(const struct emu_attached *a, void *base)
{
    struct emu_vma vma;

    return emu_vma_query((uintptr_t)base, (size_t)a->size, &vma) && vma.shared && (vma.dev == a->dev) &&
           (vma.ino == a->ino) && (vma.file_off == 0) && (emu_attach_how(&vma) == a->how) &&
           ((a->how != EMU_SEG_BY_NUMBER) || (vma.end - vma.begin == a->size));
}

void *emu_attach_map(const struct emu_attached *a, void *at, bool writable)
{
    void *base = attach(a, writable), *moved;

    if (base == MAP_FAILED) {
        return base;
    }
    munlock(base, (size_t)a->size); /* as emu_map_unlocked; or the program's own has been locked */
    if (!is_as_found(a, base)) {
        detach(a, base);
        return MAP_FAILED;
    }
    moved = (at == NULL) ? base : mremap(base, (size_t)a->size, (size_t)a->size, MREMAP_MAYMOVE | MREMAP_FIXED, at);
    if (moved == MAP_FAILED) {
        detach(a, base);
    }
    return moved;
}
