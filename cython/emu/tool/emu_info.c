/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_info.c - what there is of the emulator on this host, for this user.
 *
 *   emu_info ls      jobs, their processes, VCQs, registrations, lanes, memory
 *   emu_info clean   give back what ended processes hold in jobs that go on
 *
 * Prints JSON; "uct-tofu emu" makes text of it.  Jobs have no files: their control
 * segments are found among the descriptors of living processes.  "ls" opens them
 * for reading, so it disturbs nobody.  "clean" uses the
 * emulator's own lock and its own way to reclaim a slot; the tool is linked with
 * the emulator's sources, but never joins a job.
 */
#include "../emu_job.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEMFD_PREFIX "/memfd:utofu-emu:" /* control segments; see emu_control.c */

/* ------------------------------------------------------------------- JSON */

static void json_string(const char *s)
{
    putchar('"');
    for (; *s != '\0'; s++) {
        unsigned char c = (unsigned char)*s;
        if ((c == '"') || (c == '\\')) {
            printf("\\%c", c);
        } else if ((c < 0x20) || (c == 0x7f)) {
            printf("\\u%04x", c);
        } else {
            putchar(c); /* the reader decides on what is not UTF-8 */
        }
    }
    putchar('"');
}

/* ------------------------------------------------------------ what was found */

struct found {
    pid_t               pid; /* a process that has it open ... */
    int                 fd;  /* ... as this descriptor */
    dev_t               dev;
    ino_t               ino;
    uint64_t            memory;
    char                why[160]; /* "": it is a control segment of this version */
    const struct emu_control *control; /* mapped for reading */
};

static struct found *found;
static size_t        num_found, max_found;

/* All of it, or less when the file is shorter */
static ssize_t read_at(int fd, void *buf, size_t size, uint64_t offset)
{
    size_t done = 0;

    while (done < size) {
        ssize_t n = pread(fd, (char *)buf + done, size - done, (off_t)(offset + done));
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            return -1;
        }
        if (n == 0) {
            break;
        }
        done += (size_t)n;
    }
    return (ssize_t)done;
}

/* Checks the segment, fills f->why with what is wrong with it, else maps it.  Most
 * of it was never written, so it is neither copied nor read as a whole. */
static void control_open(int fd, const struct stat *st, struct found *f)
{
    static struct emu_control head; /* what is before its lock */
    const struct emu_control *c     = &head;
    size_t                    n     = offsetof(struct emu_control, lock);
    void                     *map;

    if (read_at(fd, &head, n, 0) < (ssize_t)n) {
        snprintf(f->why, sizeof(f->why), "too short for a control segment");
    } else if (c->magic != EMU_MAGIC) {
        snprintf(f->why, sizeof(f->why), "not a control segment (magic number)");
    } else if (c->version != EMU_SHM_VERSION) {
        snprintf(f->why, sizeof(f->why), "of another version of the emulator (layout %u, this is %u)", c->version,
                 EMU_SHM_VERSION);
    } else if ((c->size != sizeof(*c)) || (st->st_size != (off_t)sizeof(*c))) {
        snprintf(f->why, sizeof(f->why), "of another size (%llu bytes, says %llu, expected %zu)",
                 (unsigned long long)st->st_size, (unsigned long long)c->size, sizeof(*c));
    } else if (c->uid != geteuid()) {
        snprintf(f->why, sizeof(f->why), "of another user (%u)", c->uid);
    } else if (memchr(c->job, '\0', sizeof(c->job)) == NULL) {
        snprintf(f->why, sizeof(f->why), "without a job name");
    } else if (emu_namespace_differs(c->ns) != NULL) {
        snprintf(f->why, sizeof(f->why), "job %.64s is of another %s namespace: nobody in it can be told from one that "
                 "has ended", c->job, emu_namespace_differs(c->ns));
    } else if (!emu_memfd_stays(fd)) {
        snprintf(f->why, sizeof(f->why), "not sealed"); /* it could shrink under the mapping */
    } else {
        map = mmap(NULL, sizeof(*c), PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED) {
            snprintf(f->why, sizeof(f->why), "can't be mapped: %s", strerror(errno));
        } else {
            f->control = map;
        }
    }
}

static void look_at_fd(pid_t pid, int number, const char *path)
{
    struct stat   st;
    struct found *f;
    int           fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        return; /* ended, or closed it */
    }
    if (fstat(fd, &st)) {
        close(fd);
        return;
    }
    for (size_t i = 0; i < num_found; i++) {
        if ((found[i].dev == st.st_dev) && (found[i].ino == st.st_ino)) {
            close(fd);
            return;
        }
    }
    if (num_found == max_found) {
        struct found *more = realloc(found, (max_found + 64) * sizeof(*found));
        if (more == NULL) {
            close(fd);
            return;
        }
        found = more;
        max_found += 64;
    }
    f = &found[num_found++];
    memset(f, 0, sizeof(*f));
    f->pid    = pid;
    f->fd     = number;
    f->dev    = st.st_dev;
    f->ino    = st.st_ino;
    f->memory = (uint64_t)st.st_blocks * 512;
    control_open(fd, &st, f);
    close(fd);
}

static void look_at_process(pid_t pid)
{
    char           dir[40], path[320], link[256];
    struct dirent *ent;
    struct stat    st;
    DIR           *d;

    snprintf(dir, sizeof(dir), "/proc/%d/fd", (int)pid);
    if (stat(dir, &st) || (st.st_uid != geteuid())) {
        return; /* root, too, sees only its own jobs */
    }
    d = opendir(dir);
    if (d == NULL) {
        return;
    }
    while ((ent = readdir(d)) != NULL) {
        snprintf(path, sizeof(path), "%s/%s", dir, ent->d_name);
        ssize_t n = readlink(path, link, sizeof(link) - 1);
        if (n <= 0) {
            continue;
        }
        link[n] = '\0';
        if (!strncmp(link, MEMFD_PREFIX, strlen(MEMFD_PREFIX))) {
            look_at_fd(pid, atoi(ent->d_name), path);
        }
    }
    closedir(d);
}

static int by_job(const void *a, const void *b)
{
    const struct found *x = a, *y = b;

    if ((x->control == NULL) || (y->control == NULL)) {
        return (x->control == NULL) - (y->control == NULL);
    }
    return strcmp(x->control->job, y->control->job);
}

static int find_all(void)
{
    struct dirent *ent;
    DIR           *d = opendir("/proc");

    if (d == NULL) {
        fprintf(stderr, "emu_info: can't read /proc: %s\n", strerror(errno));
        return -1;
    }
    while ((ent = readdir(d)) != NULL) {
        if (isdigit((unsigned char)ent->d_name[0])) {
            look_at_process((pid_t)atoi(ent->d_name));
        }
    }
    closedir(d);
    if (num_found > 1) {
        qsort(found, num_found, sizeof(*found), by_job);
    }
    return 0;
}

static void print_refused(void)
{
    const char *comma = "";

    printf(",\n \"refused\": [");
    for (size_t i = 0; i < num_found; i++) {
        if (found[i].control == NULL) {
            printf("%s\n  {\"pid\": %d, \"fd\": %d, \"reason\": ", comma, (int)found[i].pid, found[i].fd);
            json_string(found[i].why);
            printf("}");
            comma = ",";
        }
    }
    printf("]");
}

/* --------------------------------------------------------------------- ls */

/* The process segment of a slot, for reading; -1: can't be looked at */
static int segment_open(const struct emu_proc_slot *slot, struct emu_process *head, uint64_t *memory_p)
{
    char        path[64];
    struct stat st;
    int         fd;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)slot->pid, slot->seg_fd);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    if (fstat(fd, &st) || (st.st_dev != slot->seg_dev) || (st.st_ino != slot->seg_ino) ||
        (read_at(fd, head, sizeof(*head), 0) != (ssize_t)sizeof(*head)) || (head->magic != EMU_MAGIC) ||
        (head->version != EMU_SHM_VERSION) || (head->lane_entries > EMU_MRQ_MAX) ||
        (head->session_entries > EMU_MRQ_MAX) ||
        (head->size != EMU_PROCESS_SIZE(head->lane_entries, head->session_entries)) ||
        (st.st_size != (off_t)head->size)) {
        close(fd);
        return -1;
    }
    *memory_p = (uint64_t)st.st_blocks * 512;
    return fd;
}

/* Registrations of a VCQ.  Only what was ever written is read: the rest is a hole. */
static unsigned count_stags(int fd, uint32_t index)
{
    static struct emu_stag part[1024];
    const uint64_t         begin = EMU_STAGS_OFF + index * EMU_STAGS_SIZE, end = begin + EMU_STAGS_SIZE;
    unsigned               count = 0;

    for (uint64_t at = begin; at < end; at += sizeof(part)) {
        off_t data = lseek(fd, (off_t)at, SEEK_DATA);
        if ((data < 0) || ((uint64_t)data >= end)) {
            break;
        }
        at += ((uint64_t)data - at) / sizeof(part) * sizeof(part);
        if (read_at(fd, part, sizeof(part), at) != (ssize_t)sizeof(part)) {
            break;
        }
        for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
            count += (part[i].flags & EMU_STAG_VALID) != 0;
        }
    }
    return count;
}

/* MRQ lanes that have a producer, per VCQ of the process; returns all of them */
static unsigned count_lanes(int fd, const struct emu_process *head, unsigned per_vcq[EMU_MAX_VCQS])
{
    const uint64_t begin = EMU_LANES_OFF(head->session_entries), step = EMU_LANE_SIZE(head->lane_entries);
    uint32_t       lanes = atomic_load(&head->lanes);
    unsigned       count = 0;

    memset(per_vcq, 0, EMU_MAX_VCQS * sizeof(*per_vcq));
    for (uint32_t i = 0; (i < lanes) && (i < EMU_MAX_LANES); i++) {
        struct emu_lane lane;
        if (read_at(fd, &lane, offsetof(struct emu_lane, pad0), begin + i * step) < 0) {
            break;
        }
        if ((atomic_load(&lane.owner) != 0) && (lane.vcq < EMU_MAX_VCQS)) {
            per_vcq[lane.vcq]++;
            count++;
        }
    }
    return count;
}

static const char *cq_kind(uint32_t kind)
{
    switch (kind) {
    case EMU_CQ_SHARED:
        return "shared";
    case EMU_CQ_EXCLUSIVE:
        return "exclusive";
    case EMU_CQ_SESSION:
        return "session";
    default:
        return "free";
    }
}

static void print_vcqs(const struct emu_control *c, uint32_t slot, int fd, const unsigned *lanes)
{
    const struct emu_node *node = &c->node[c->slot[slot].node % EMU_MAX_NODES];
    const char            *comma = "";

    printf(",\n    \"vcqs\": [");
    for (unsigned i = 0; i < EMU_NODE_VCQS; i++) {
        uint64_t owner = atomic_load(&node->vcq[i]);
        uint32_t index = EMU_VCQ_OWNER_INDEX(owner);
        unsigned cq    = i / EMU_NUM_CMPS;
        if ((owner == 0) || (EMU_VCQ_OWNER_SLOT(owner) != slot) || (index >= EMU_MAX_VCQS)) {
            continue;
        }
        printf("%s\n     {\"tni\": %u, \"cq\": %u, \"component\": %u, \"kind\": \"%s\"", comma, cq / EMU_NUM_CQS,
               cq % EMU_NUM_CQS, i % EMU_NUM_CMPS, cq_kind(node->cq[cq].kind));
        if (fd >= 0) {
            printf(", \"registrations\": %u, \"mrq_lanes\": %u}", count_stags(fd, index), lanes[index]);
        } else {
            printf(", \"registrations\": null, \"mrq_lanes\": null}");
        }
        comma = ",";
    }
    printf("]");
}

static void print_name(pid_t pid)
{
    char    path[64], name[64] = "";
    ssize_t n = 0;
    int     fd;

    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        n = read(fd, name, sizeof(name) - 1);
        close(fd);
    }
    if (n > 0) {
        name[n - (name[n - 1] == '\n')] = '\0';
    }
    json_string(name);
}

/* Of a slot on a node */
static unsigned count_gates(const struct emu_node *node, uint32_t slot)
{
    unsigned count = 0;

    for (unsigned i = 0; i < EMU_NODE_GATES; i++) {
        count += (atomic_load(&node->gate[i].id) != 0) && (node->gate[i].owner == slot);
    }
    return count;
}

static void print_process(const struct emu_control *c, uint32_t index)
{
    static struct emu_process   head;
    static unsigned             lanes[EMU_MAX_VCQS];
    const struct emu_proc_slot *slot = &c->slot[index];
    const struct emu_node      *node = &c->node[slot->node % EMU_MAX_NODES];
    uint64_t                    key  = atomic_load(&node->key), memory = 0;
    bool                        alive = emu_slot_alive(slot);
    int                         fd    = alive ? segment_open(slot, &head, &memory) : -1;

    printf("\n   {\"slot\": %u, \"generation\": %u, \"pid\": %d, \"name\": ", index, slot->gen, (int)slot->pid);
    if (alive) {
        print_name(slot->pid);
    } else {
        printf("\"\""); /* the number may be another process' by now */
    }
    printf(",\n    \"state\": \"%s\", \"coords\": [%u, %u, %u, %u, %u, %u]",
           !alive ? "ended" : (emu_process_stopped(slot->pid) ? "stopped" : "running"), (unsigned)(key >> 40) & 0xff,
           (unsigned)(key >> 32) & 0xff, (unsigned)(key >> 24) & 0xff, (unsigned)(key >> 16) & 0xff,
           (unsigned)(key >> 8) & 0xff, (unsigned)key & 0xff);
    printf(", \"barrier_gates\": %u", count_gates(node, index));
    if (fd >= 0) {
        unsigned all = count_lanes(fd, &head, lanes);
        printf(", \"memory\": %llu, \"mrq_lanes\": %u", (unsigned long long)memory, all);
    } else {
        printf(", \"memory\": null, \"mrq_lanes\": null");
    }
    print_vcqs(c, index, fd, lanes);
    printf("}");
    if (fd >= 0) {
        close(fd);
    }
}

static int ls(void)
{
    const char *job_comma = "";

    printf("{\"jobs\": [");
    for (size_t i = 0; i < num_found; i++) {
        const struct emu_control *c     = found[i].control;
        const char               *comma = "";
        if (c == NULL) {
            continue;
        }
        printf("%s\n {\"job\": ", job_comma);
        json_string(c->job);
        printf(", \"memory\": %llu, \"processes\": [", (unsigned long long)found[i].memory);
        for (uint32_t s = 0; s < EMU_MAX_PROCS; s++) {
            if (atomic_load(&c->slot[s].state) == EMU_SLOT_LIVE) {
                printf("%s", comma);
                print_process(c, s);
                comma = ",";
            }
        }
        printf("]}");
        job_comma = ",";
    }
    printf("]");
    print_refused();
    printf("}\n");
    return 0;
}

/* ------------------------------------------------------------------ clean */

/* Map the segment itself: f->pid may have ended since, then there is nothing to do */
static struct emu_control *control_map_for_write(const struct found *f)
{
    struct emu_control *c;
    struct stat         st;
    char                path[64];
    int                 fd;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)f->pid, f->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    if (fstat(fd, &st) || (st.st_dev != f->dev) || (st.st_ino != f->ino)) {
        close(fd);
        return NULL;
    }
    c = mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return (c == MAP_FAILED) ? NULL : c;
}

/* What slot holds, before it is given back */
static void count_held(const struct emu_control *c, uint32_t slot, unsigned *cqs, unsigned *vcqs, unsigned *gates)
{
    *cqs = *vcqs = *gates = 0;
    for (unsigned n = 0; n < EMU_MAX_NODES; n++) {
        const struct emu_node *node = &c->node[n];
        if (atomic_load(&node->key) == 0) {
            break;
        }
        for (unsigned q = 0; q < EMU_NODE_CQS; q++) {
            *cqs += (node->cq[q].kind != EMU_CQ_FREE) && (node->cq[q].owner == slot);
        }
        for (unsigned i = 0; i < EMU_NODE_VCQS; i++) {
            uint64_t owner = atomic_load(&node->vcq[i]);
            *vcqs += (owner != 0) && (EMU_VCQ_OWNER_SLOT(owner) == slot);
        }
        *gates += count_gates(node, slot);
    }
}

/* Returns whether it could be done */
static bool clean_job(const struct found *f)
{
    struct emu_control *c     = control_map_for_write(f);
    const char         *comma = "";
    bool                done  = true;

    printf("\n {\"job\": ");
    json_string(f->control->job);
    printf(", \"reclaimed\": [");
    if (c != NULL) {
        emu_g.control = c;
        snprintf(emu_g.job, sizeof(emu_g.job), "%s", f->control->job);
        done = emu_control_lock();
        for (uint32_t s = 0; done && (s < EMU_MAX_PROCS); s++) {
            unsigned cqs, vcqs, gates;
            if ((atomic_load(&c->slot[s].state) != EMU_SLOT_LIVE) || emu_slot_alive(&c->slot[s])) {
                continue;
            }
            count_held(c, s, &cqs, &vcqs, &gates);
            printf("%s\n   {\"slot\": %u, \"pid\": %d, \"cqs\": %u, \"vcqs\": %u, \"barrier_gates\": %u}", comma, s,
                   (int)c->slot[s].pid, cqs, vcqs, gates);
            emu_control_reclaim(s);
            comma = ",";
        }
        if (done) {
            emu_control_unlock();
        }
        emu_g.control = NULL;
        munmap(c, sizeof(*c));
    }
    printf("], \"error\": %s}", done ? "null" : "\"the control segment stayed locked\"");
    return done;
}

static int clean(void)
{
    const char *comma = "";
    int         ret   = 0;

    printf("{\"jobs\": [");
    for (size_t i = 0; i < num_found; i++) {
        if (found[i].control != NULL) {
            printf("%s", comma);
            if (!clean_job(&found[i])) {
                ret = 1;
            }
            comma = ",";
        }
    }
    printf("]");
    print_refused();
    printf("}\n");
    return ret;
}

int main(int argc, char **argv)
{
    bool want_clean = (argc == 2) && !strcmp(argv[1], "clean");

    if (!want_clean && !((argc == 2) && !strcmp(argv[1], "ls"))) {
        fprintf(stderr, "usage: emu_info ls | clean\n");
        return 2;
    }
    if (find_all()) {
        return 1;
    }
    return want_clean ? clean() : ls();
}
