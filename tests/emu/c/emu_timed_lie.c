/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_timed_lie.c - the timed mode, when what peers write about times is not true.
 */
#include "harness.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "emu_shm.h"

static uint64_t words[64] __attribute__((aligned(256)));

static double now_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + ts.tv_nsec * 1e-9;
}

/* This process's own segment, mapped once more as a peer maps it. */
static char *segment(struct emu_process *head)
{
    char           path[300], *map = NULL;
    struct dirent *ent;
    struct stat    st;
    DIR           *d = opendir("/proc/self/fd");

    CONF_CHECK(d != NULL, "/proc/self/fd");
    while ((map == NULL) && ((ent = readdir(d)) != NULL)) {
        int fd;
        snprintf(path, sizeof(path), "/proc/self/fd/%s", ent->d_name);
        if (stat(path, &st) || !S_ISREG(st.st_mode) || ((fd = open(path, O_RDWR | O_CLOEXEC)) < 0)) {
            continue;
        }
        if ((pread(fd, head, sizeof(*head), 0) == (ssize_t)sizeof(*head)) && (head->magic == EMU_MAGIC) &&
            (head->size == (uint64_t)st.st_size) && (head->pid == getpid())) {
            map = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
            CONF_CHECK(map != MAP_FAILED, "mmap");
        }
        close(fd);
    }
    closedir(d);
    CONF_CHECK(map != NULL, "the segment is not among the descriptors");
    return map;
}

/* The notices that came from `origin` and were not read may be seen in ten years. */
static int postpone(char *map, const struct emu_process *head, utofu_vcq_id_t origin)
{
    int changed = 0;

    for (unsigned i = 0; i < ((struct emu_process *)(void *)map)->lanes; i++) {
        struct emu_lane *lane =
                (struct emu_lane *)(void *)(map + EMU_LANES_OFF(head->session_entries) +
                                            i * EMU_LANE_SIZE(head->lane_entries));
        struct emu_lane_entry *e = (struct emu_lane_entry *)((char *)lane + EMU_LANE_HEAD);

        if (lane->origin != origin) {
            continue;
        }
        for (unsigned k = 0; k + 1 < EMU_LANE_A; k += 2) {
            if (e[k].word & EMU_ENTRY_PAIR) { /* the second one has the time */
                e[k + 1].stadd += (uint64_t)1 << 60;
                changed++;
            }
        }
    }
    return changed;
}

CONF_TEST("timed", timed_far_future, 3, "a peer's notice that is for ten years from now does not hide those of others")
{
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    struct emu_process      head;
    struct {
        utofu_vcq_id_t id;
        utofu_stadd_t  stadd;
    } mine, all[3];
    double end;
    int    code, seen[3] = {0, 0, 0};

    CONF_CHECK(setenv("UTOFU_EMU_TIMING", "tofud", 1) == 0, "setenv");
    conf_vcq_create(&vcq, 0, 0);
    mine.id    = vcq.id;
    mine.stadd = conf_reg(&vcq, words, sizeof(words), 0);
    conf_exchange(&mine, sizeof(mine), all);
    for (int round = 0; round < 2; round++) {
        conf_barrier();
        if (conf_rank != 0) {
            CONF_OK(utofu_put_piggyback8(vcq.hdl, all[0].id, 7, all[0].stadd + 8 * conf_rank, 8, conf_rank,
                                         CONF_RMRQ | CONF_LMRQ, NULL));
            CONF_CHECK(CONF_WAIT_MRQ(&vcq, &notice) == UTOFU_SUCCESS, "put");
        }
        conf_barrier();
        if (conf_rank == 0) {
            if (round == 1) { /* both lanes are known and looked at since the first */
                char *map = segment(&head);
                CONF_CHECK(postpone(map, &head, all[1].id) > 0, "no notice of rank 1 was found");
                munmap(map, head.size);
            }
            end = now_s() + 5;
            while (((seen[1] <= round) || (seen[2] <= round)) && (now_s() < end)) {
                code = utofu_poll_mrq(vcq.hdl, 0, &notice);
                if (code == UTOFU_SUCCESS) {
                    CONF_CHECK((notice.edata == 1) || (notice.edata == 2), "EDATA %d", (int)notice.edata);
                    seen[notice.edata]++;
                } else {
                    CONF_CHECK(code == UTOFU_ERR_NOT_FOUND, "poll: %d", code);
                }
            }
            CONF_CHECK(seen[2] == round + 1, "%d notices of who tells the truth", seen[2]);
            CONF_CHECK(seen[1] == round + 1, "%d notices of who does not", seen[1]);
        }
    }
    conf_barrier();
}
