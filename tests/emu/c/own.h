/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * own.h - what others see of this process.
 */
#ifndef EMU_TESTS_OWN_H
#define EMU_TESTS_OWN_H

#include "emu_shm.h"

/* This process's segment, mapped once more as a peer maps it: its `size` bytes are
 * the caller's to unmap.  The test fails when there is none. */
struct emu_process *own_segment(void);

/* What it takes, in bytes */
uint64_t own_segment_bytes(void);

/* The job's control segment, mapped once more; the caller's to unmap.  And the slot of this process in it */
struct emu_control   *own_control(void);
struct emu_proc_slot *own_slot(struct emu_control *c);

/* How many descriptors are open, and a constant: for a look at the difference. */
int own_fds(void);

/* From here on this process may not open the file of a mapping by /proc/self/map_files, as no ordinary user may. */
void own_may_not_open_mappings(void);

/* What the memfd has that private memory is moved to (home.h), in bytes; 0: there is none. */
uint64_t own_home_bytes(void);
/* How many mappings have this in their names ("": all) */
unsigned own_mappings(const char *name);
/* How many mappings show it, in one look: to look for each of thousands takes long. */
unsigned own_home_mappings(void);
/* How many blocks it has room for: fewer where the kernel does not answer questions about single mappings */
unsigned own_home_places(void);

#endif
