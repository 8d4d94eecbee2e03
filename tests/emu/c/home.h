/* SPDX-License-Identifier: BSD-3-Clause */
/* home.h - the memfd that private memory is moved to (docs/emulator.md, Private memory). */
#ifndef EMU_TEST_HOME_H
#define EMU_TEST_HOME_H

#include "harness.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define HOME "utofu-emu-home"

/* Counted up by the program's own handlers of fork, once before it and 100 times in the parent after
 * it; they run within those of the library (emu_rehome_stack.c).  NULL: nothing is. */
extern volatile uint64_t *in_between;

/* The mapping at addr is one of it. */
static inline bool is_home(const volatile void *addr)
{
    FILE    *f = fopen("/proc/self/maps", "r");
    char     line[512];
    uint64_t begin, end;
    bool     found = false;

    CONF_CHECK(f != NULL, "/proc/self/maps: %s", strerror(errno));
    while (!found && (fgets(line, sizeof(line), f) != NULL)) {
        CONF_CHECK(sscanf(line, "%" SCNx64 "-%" SCNx64, &begin, &end) == 2, "%s", line);
        found = ((uintptr_t)addr >= begin) && ((uintptr_t)addr < end) && (strstr(line, HOME) != NULL);
    }
    fclose(f);
    return found;
}

#endif /* EMU_TEST_HOME_H */
