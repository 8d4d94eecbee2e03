/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which flags of a registration say that the memory may be moved to where peers can map it
 * (docs/emulator.md, Private memory): those of windows and heaps, and none of those that UCP
 * registers messages with, also when its cache puts several of them together.
 */
#include "uct_support.h"

#include <inttypes.h>

#define LENGTH (64ul << 10)

#define PUT    UCT_MD_MEM_ACCESS_REMOTE_PUT
#define GET    UCT_MD_MEM_ACCESS_REMOTE_GET
#define ATOMIC UCT_MD_MEM_ACCESS_REMOTE_ATOMIC
#define LOCAL  (UCT_MD_MEM_ACCESS_LOCAL_READ | UCT_MD_MEM_ACCESS_LOCAL_WRITE)
#define HIDE   UCT_MD_MEM_FLAG_HIDE_ERRORS

static int is_moved(const void *address)
{
    FILE      *maps = fopen("/proc/self/maps", "r");
    int       result = -1;
    uintptr_t begin, end;
    char      line[512];

    CHECK(maps != NULL);
    while ((result < 0) && (fgets(line, sizeof(line), maps) != NULL)) {
        CHECK(sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &begin, &end) == 2);
        if (((uintptr_t)address >= begin) && ((uintptr_t)address < end)) {
            result = strstr(line, "utofu-emu-home") != NULL;
        }
    }
    fclose(maps);
    CHECK(result >= 0);
    return result;
}

int main(void)
{
    static const struct {
        const char *what;
        uint64_t   flags;
        int        moved;
    } cases[] = {
        {"a window", PUT | GET | LOCAL, 1},
        {"a window for atomics, too", PUT | GET | ATOMIC | LOCAL, 1},
        {"atomics only", ATOMIC, 1},
        {"a window in a hurry", PUT | GET | LOCAL | UCT_MD_MEM_FLAG_NONBLOCK, 0},
        {"to send from by copy", UCT_MD_MEM_ACCESS_LOCAL_READ, 0},
        {"for gets of one's own", LOCAL, 0},
        {"a rendezvous' sender", PUT | GET | LOCAL | HIDE, 0},
        {"a rendezvous' receiver", PUT | HIDE, 0},
        {"the same, then for gets of one's own", PUT | LOCAL, 0},
    };
    uct_md_mem_reg_params_t params = {.field_mask = UCT_MD_MEM_REG_FIELD_FLAGS};
    struct node             node;
    uct_mem_h               memh;
    char                    *memory;
    unsigned                i;

    node_open(&node, NULL, NULL);
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        CHECK(posix_memalign((void**)&memory, 4096, LENGTH) == 0);
        memset(memory, (int)i + 1, LENGTH);
        params.flags = cases[i].flags;
        CHECK_OK(uct_md_mem_reg_v2(node.md, memory, LENGTH, &params, &memh));
        if (is_moved(memory) != cases[i].moved) {
            DIE("%s (flags %#" PRIx64 "): %smoved", cases[i].what,
                cases[i].flags, cases[i].moved ? "not " : "");
        }
        CHECK((memory[0] == (char)(i + 1)) && (memory[LENGTH - 1] == memory[0]));
        CHECK_OK(uct_md_mem_dereg(node.md, memh));
        CHECK(!is_moved(memory));
        CHECK((memory[0] == (char)(i + 1)) && (memory[LENGTH - 1] == memory[0]));
        free(memory);
    }
    node_close(&node);
    printf("ok\n");
    return 0;
}
