/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_trust.c - what is shared can be written by any process of the job: what such bytes do to others.  The
 * test itself writes them.
 */
#include "own.h"

#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE  4096u
#define BYTES (16 * PAGE)

/* What peers see of the registration of what is at addr */
static struct emu_stag *stag_shown(struct emu_process *own, const void *addr)
{
    for (unsigned i = 0; i < EMU_MAX_VCQS * EMU_NUM_STAGS; i++) {
        struct emu_stag *shown = (struct emu_stag *)(void *)((char *)own + EMU_STAGS_OFF) + i;

        if ((shown->flags & EMU_STAG_VALID) && (shown->addr == (uintptr_t)addr)) {
            return shown;
        }
    }
    CONF_FAIL("it is not registered");
}

/* From `from` to `to`, both of the VCQ itself */
static void put_to_oneself(struct conf_vcq *vcq, utofu_stadd_t from, utofu_stadd_t to)
{
    CONF_POST(vcq->hdl, utofu_put(vcq->hdl, vcq->id, from, to, 64, 3, CONF_LMRQ, NULL));
    CONF_EXPECT_MRQ(vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq->id, 3, NULL);
}

CONF_TEST("trust", own_registrations, 1,
          "a process goes by what it registered, whatever others write into what it shows them of that")
{
    struct conf_vcq     vcq;
    struct conf_mem     mem, other;
    struct emu_process *own;
    struct emu_stag    *shown;
    utofu_stadd_t       stadd, late;
    struct stat         st;
    int                 file;

    conf_vcq_create(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, BYTES);
    conf_mem_alloc(&other, CONF_MEM_MEMFD, BYTES);
    memset(other.addr, 0x11, BYTES);
    stadd = conf_reg(&vcq, mem.addr, BYTES, 0);
    own   = own_segment();
    shown = stag_shown(own, mem.addr);
    file  = open("/dev/null", O_RDWR);
    CONF_CHECK((file >= 0) && (fstat(file, &st) == 0), "/dev/null");
    memset(mem.addr, 0x77, 64);

    for (int turn = 0; turn < 2; turn++) { /* before and after it was looked at */
        shown->addr = (uintptr_t)other.addr;
        shown->end += PAGE;
        shown->seq += 2;
        put_to_oneself(&vcq, stadd, stadd + PAGE);
        CONF_CHECK_BYTES(other.addr, BYTES, 0x11, "which was never registered");
        CONF_CHECK_BYTES(mem.addr + PAGE, 64, 0x77, "what was put");
        memset(mem.addr + PAGE, 0, 64);
    }
    for (unsigned i = 0; i < EMU_MAX_SEGS; i++) { /* not its descriptors, either */
        own->seg[i].fd   = file;
        own->seg[i].dev  = st.st_dev;
        own->seg[i].ino  = st.st_ino;
        own->seg[i].refs = 1;
        atomic_store(&own->seg[i].gen, atomic_load(&own->seg[i].gen) | 1);
    }
    late = conf_reg(&vcq, other.addr, BYTES, 0);
    put_to_oneself(&vcq, stadd, late);
    CONF_CHECK_BYTES(other.addr, 64, 0x77, "registered since");
    conf_dereg(&vcq, late);
    memset(shown, 0xee, sizeof(*shown));
    conf_dereg(&vcq, stadd);
    CONF_CHECK(fcntl(file, F_GETFD) >= 0, "a descriptor of the program was closed");
    munmap(own, (size_t)own->size);
    conf_mem_free(&mem);
    conf_mem_free(&other);
    conf_vcq_close(&vcq);
}

CONF_TEST("trust", own_slot_of_nonsense, 1, "a process whose slot somebody has written into goes on with itself")
{
    struct conf_vcq     vcq, second;
    struct conf_mem     mem;
    struct emu_control *c;
    utofu_stadd_t       stadd;

    conf_vcq_create(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, BYTES);
    stadd = conf_reg(&vcq, mem.addr, BYTES, 0);
    c     = own_control();
    own_slot(c)->gen++;
    for (int i = 0; i < 20; i++) { /* it looks for itself */
        conf_vcq_create(&second, 1, 0);
        utofu_put_piggyback8(second.hdl, vcq.id, 1, stadd, 8, 0, 0, NULL);
        conf_vcq_close(&second);
        usleep(2000); /* its helper thread looks, too */
    }
    own_slot(c)->gen--; /* as long as it is another's there is no such peer */
    put_to_oneself(&vcq, stadd, stadd + 64);
    conf_dereg(&vcq, stadd);
    munmap(c, sizeof(*c));
    conf_mem_free(&mem);
}

CONF_TEST("trust", lock_of_nonsense, 1, "a lock in shared memory that names a thread which is not there is taken")
{
    static const uint64_t nonsense[] = {UINT64_MAX, 1, 0x8000000000000000, 0x3fffffff, (uint64_t)1 << 31};
    struct conf_vcq       vcq;
    struct emu_control   *c;
    double                begun;

    conf_vcq_create(&vcq, 0, 0);
    c     = own_control();
    begun = conf_now();
    for (unsigned i = 0; i < CONF_LEN(nonsense); i++) {
        struct conf_vcq other;

        atomic_store(&c->lock.word, (nonsense[i] == 1) ? ((uint64_t)7 << 32) | 1 : nonsense[i]);
        conf_vcq_create(&other, 1, UTOFU_VCQ_FLAG_SESSION_MODE);
        conf_vcq_close(&other);
        CONF_CHECK(atomic_load(&c->lock.word) == 0, "it is not given back");
    }
    CONF_CHECK(conf_now() - begun < 5, "it took %.1f s", conf_now() - begun);
    munmap(c, sizeof(*c));
    conf_vcq_close(&vcq);
}

/* A copy of the segment takes its place that can be made shorter. */
static void replace_by_unsealed(void)
{
    struct emu_process   *own = own_segment(), *copy;
    struct emu_control   *c   = own_control();
    struct emu_proc_slot *slot = own_slot(c);
    struct stat           st;
    int                   fd = memfd_create("unsealed", 0);

    CONF_CHECK((fd >= 0) && (ftruncate(fd, (off_t)own->size) == 0) && (fstat(fd, &st) == 0), "memfd_create");
    copy = mmap(NULL, (size_t)own->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    CONF_CHECK(copy != MAP_FAILED, "mmap");
    memcpy(copy, own, EMU_STAGS_OFF);
    slot->seg_dev = st.st_dev;
    slot->seg_ino = st.st_ino;
    slot->seg_fd  = fd;
    munmap(copy, (size_t)own->size);
    munmap(own, (size_t)own->size);
    munmap(c, sizeof(*c));
}

CONF_TEST("trust", segment_that_can_shrink, 2, "a process segment that its owner could cut off is not taken")
{
    struct conf_vcq vcq;
    struct conf_mem mem;
    utofu_stadd_t   stadds[2];

    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, BYTES);
    conf_reg_all(&vcq, mem.addr, BYTES, stadds);
    if (conf_rank == 1) {
        replace_by_unsealed();
    }
    conf_barrier();
    if (conf_rank == 0) {
        CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.peer[1], stadds[0], stadds[1], 8, 4, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ_ERROR(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], 4, UTOFU_ERR_MRQ_PEER);
    }
    conf_barrier();
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_mem_free(&mem);
    conf_vcq_close(&vcq);
}

CONF_TEST("trust", mailboxes_that_stay_taken, 2,
          "an ARMW for which the target's mailboxes have no room ends with an error before long")
{
    static _Alignas(8) uint64_t word;
    struct conf_vcq             vcq;
    utofu_stadd_t               stadds[2];
    double                      begun;

    conf_timeout(60);
    CONF_CHECK(setenv("UTOFU_EMU_REHOME", "0", 1) == 0, "setenv");
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, &word, sizeof(word), stadds);
    if (conf_rank == 1) {
        struct emu_process *own = own_segment();

        for (unsigned i = 0; i < EMU_MAILBOXES; i++) {
            own->mailbox[i].pid = getpid();
            atomic_store(&own->mailbox[i].state, EMU_MBOX_CLAIMED);
        }
        munmap(own, (size_t)own->size);
    }
    conf_barrier();
    if (conf_rank == 0) {
        begun = conf_now();
        CONF_POST(vcq.hdl, utofu_armw8(vcq.hdl, vcq.peer[1], UTOFU_ARMW_OP_ADD, 1, stadds[1], 5, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ_ERROR(&vcq, UTOFU_MRQ_TYPE_LCL_ARMW, vcq.peer[1], 5, UTOFU_ERR_MRQ_OTHER);
        CONF_CHECK(conf_now() - begun < 20, "it took %.1f s", conf_now() - begun);
    }
    conf_barrier();
    CONF_CHECK(word == 0, "it was changed");
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}

static struct emu_gate *gate_of(struct emu_control *c, utofu_vbg_id_t id)
{
    for (unsigned n = 0; n < EMU_MAX_NODES; n++) {
        for (unsigned g = 0; g < EMU_NODE_GATES; g++) {
            if (atomic_load(&c->node[n].gate[g].id) == id) {
                return &c->gate[n][g];
            }
        }
    }
    CONF_FAIL("no such gate");
}

CONF_TEST("trust", gates_without_end, 1, "a gate that fires for ever, since somebody wrote into it, holds nobody up for long")
{
    const utofu_vbg_id_t none = UTOFU_VBG_ID_NULL;
    struct emu_control  *c;
    utofu_vbg_id_t       id[4]; /* a start gate, and three that relay */
    double               begun;

    conf_timeout(100);
    CONF_OK(utofu_alloc_vbg(0, 4, 0, id));
    struct utofu_vbg_setting of[] = {
        {id[0], none, id[1], none, id[1], {255, 255, 255}}, /* its packet goes to the first relay gate, and comes back */
        {id[1], id[2], id[0], none, id[0], {255, 255, 255}},
        {id[2], none, id[2], none, id[2], {255, 255, 255}}, /* to itself */
        {id[3], none, none, none, none, {255, 255, 255}},
    };
    CONF_OK(utofu_set_vbg(of, 4));
    c = own_control();
    atomic_fetch_add(&gate_of(c, id[2])->in[1].tail, 1); /* a message in the loop */
    atomic_fetch_add(&gate_of(c, id[1])->in[0].tail, 2); /* who takes one from here looks at the third */
    begun = conf_now();
    utofu_barrier(id[0], 0);
    for (int i = 0; i < 3; i++) {
        utofu_poll_barrier(id[0], 0);
    }
    CONF_CHECK(conf_now() - begun < 60, "it took %.1f s", conf_now() - begun);
    munmap(c, sizeof(*c));
    CONF_OK(utofu_free_vbg(id, 4));
}

CONF_TEST("trust", sparse_files_of_others, 2, "files of a peer, as long as they may be, do not take all addresses")
{
    enum { FILES = 40 };
    struct conf_vcq vcq;
    struct conf_mem mem;
    utofu_stadd_t   stadd[FILES] = {0}, all[2][FILES], mine;
    char           *part[FILES];
    void           *p;

    conf_timeout(60);
    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, BYTES);
    mine = conf_reg(&vcq, mem.addr, BYTES, 0);
    for (unsigned i = 0; (conf_rank == 1) && (i < FILES); i++) {
        int fd = memfd_create("sparse", MFD_CLOEXEC);

        CONF_CHECK((fd >= 0) && (ftruncate(fd, (off_t)8 << 40) == 0), "memfd_create");
        part[i] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CONF_CHECK(part[i] != MAP_FAILED, "mmap");
        stadd[i] = conf_reg(&vcq, part[i], BYTES, 0);
        close(fd);
    }
    conf_exchange(stadd, sizeof(stadd), all);
    memset(mem.addr, 0x3c, BYTES);
    for (unsigned i = 0; (conf_rank == 0) && (i < FILES); i++) {
        CONF_POST(vcq.hdl, utofu_put(vcq.hdl, vcq.peer[1], mine, all[1][i], 64, i, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_PUT, vcq.peer[1], i, NULL);
    }
    p = mmap(NULL, (size_t)16 << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CONF_CHECK(p != MAP_FAILED, "the addresses are used up");
    munmap(p, (size_t)16 << 40);
    conf_barrier();
    for (unsigned i = 0; (conf_rank == 1) && (i < FILES); i++) {
        CONF_CHECK_BYTES(part[i], 64, 0x3c, "what was put");
        conf_dereg(&vcq, stadd[i]);
    }
    conf_dereg(&vcq, mine);
    conf_mem_free(&mem);
    conf_vcq_close(&vcq);
}

CONF_TEST("trust", no_descriptor_is_allowed, 1, "a process that may have no descriptors any more ends when it exits")
{
    int   status;
    pid_t pid = fork();

    CONF_CHECK(pid >= 0, "fork");
    if (pid == 0) {
        struct rlimit   none = {0, 0};
        utofu_vcq_hdl_t hdl;

        signal(SIGALRM, SIG_DFL);
        alarm(10);
        CONF_OK(utofu_create_vcq(0, 0, &hdl));
        CONF_CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0, "setrlimit");
        usleep(20000);
        utofu_create_vcq(1, 0, &hdl);
        usleep(20000); /* its helper thread has looked at what there is */
        exit(0);
    }
    CONF_CHECK((waitpid(pid, &status, 0) == pid) && (status == 0), "it ended with 0x%x", (unsigned)status);
}

/* What is registered is made read-only, or something else, by its owner; an ARMW of a peer */
static void armw_after(enum conf_kind kind, bool shared)
{
    struct conf_vcq vcq;
    struct conf_mem own;
    utofu_stadd_t   all[2];
    void           *word = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);

    CONF_CHECK(word != MAP_FAILED, "mmap");
    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&own, kind, PAGE);
    conf_reg_all(&vcq, word, PAGE, all);
    if (conf_rank == 1) {
        CONF_CHECK(mprotect(word, PAGE, PROT_READ) == 0, "mprotect");
    }
    conf_barrier();
    if (conf_rank == 0) {
        CONF_POST(vcq.hdl, utofu_armw8(vcq.hdl, vcq.peer[1], UTOFU_ARMW_OP_ADD, 1, all[1], 5, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ_ERROR(&vcq, UTOFU_MRQ_TYPE_LCL_ARMW, vcq.peer[1], 5, UTOFU_ERR_MRQ_RMT_MEMORY);
    }
    conf_barrier();
    CONF_CHECK(*(uint64_t *)word == 0, "it was changed");
    conf_dereg(&vcq, all[conf_rank]);
    munmap(word, PAGE);
    conf_mem_free(&own);
    conf_vcq_close(&vcq);
}

CONF_TEST("trust", armw_on_what_became_read_only, 2, "an ARMW on memory that its owner has made read-only fails, and nobody ends")
{
    CONF_CHECK(setenv("UTOFU_EMU_REHOME", "0", 1) == 0, "setenv");
    armw_after(CONF_MEM_ANON, false);
}

CONF_TEST("trust", armw_on_shared_that_became_read_only, 2, "the same of a shared mapping without a file")
{
    CONF_CHECK(setenv("UTOFU_EMU_REHOME", "0", 1) == 0, "setenv");
    own_may_not_open_mappings();
    armw_after(CONF_MEM_ANON, true);
}

CONF_TEST("trust", shared_anonymous_memory, 2,
          "peers map shared anonymous memory whose owner may open its file: all of it or a part, also when its owner is "
          "stopped")
{
    struct conf_vcq     vcq;
    struct emu_process *own;
    utofu_stadd_t       all[2];
    _Atomic uint64_t   *words = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char                name[64];
    int                 fd;

    CONF_CHECK(words != MAP_FAILED, "mmap");
    snprintf(name, sizeof(name), "/proc/self/map_files/%lx-%lx", (unsigned long)words, (unsigned long)words + BYTES);
    fd = open(name, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        conf_skip("%s can't be opened: %s", name, strerror(errno));
    }
    close(fd);
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, (char *)words + PAGE, BYTES - 2 * PAGE, all);
    own = own_segment();
    CONF_CHECK(stag_shown(own, (char *)words + PAGE)->kind == EMU_MEM_SHARED, "peers can't map it");
    munmap(own, (size_t)own->size);
    words[PAGE / 8 + 1] = 7;
    conf_barrier();
    if (conf_rank == 0) {
        struct utofu_mrq_notice notice;

        conf_stop(1);
        CONF_POST(vcq.hdl, utofu_armw8(vcq.hdl, vcq.peer[1], UTOFU_ARMW_OP_ADD, 5, all[1] + 8, 5, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_ARMW, vcq.peer[1], 5, &notice);
        CONF_CHECK(notice.rmt_value == 7, "the value before is %llu", (unsigned long long)notice.rmt_value);
        conf_continue(1);
    }
    conf_barrier();
    CONF_CHECK(words[PAGE / 8 + 1] == ((conf_rank == 1) ? 12 : 7), "the word is %llu",
               (unsigned long long)words[PAGE / 8 + 1]);
    conf_dereg(&vcq, all[conf_rank]);
    conf_vcq_close(&vcq);
    munmap((void *)words, BYTES);
}

/* That of the only session-mode VCQ of this process: one whose credit has been set */
static struct emu_session *session_shown(struct emu_process *own)
{
    for (unsigned i = 0; i < EMU_MAX_VCQS; i++) {
        struct emu_session *s = (struct emu_session *)(void *)((char *)own + EMU_SESSIONS_OFF + i * EMU_SESSION_SIZE(own->session_entries));

        if (atomic_load(&s->credits) != 0) {
            return s;
        }
    }
    CONF_FAIL("there is none");
}

CONF_TEST("trust", own_session_of_nonsense, 1,
          "a session-mode VCQ gives what its program has posted, whatever others write about how far that is")
{
    struct conf_vcq     vcq;
    struct emu_process *own;
    struct emu_session *shown;
    double              began = conf_now();
    uint64_t            word  = 0;
    utofu_stadd_t       stadd;
    size_t              unread;
    void               *cbdata;

    conf_vcq_create(&vcq, 0, UTOFU_VCQ_FLAG_SESSION_MODE);
    stadd = conf_reg(&vcq, &word, sizeof(word), 0);
    own   = own_segment();
    shown = session_shown(own);
    atomic_store(&shown->started, UINT64_MAX);
    atomic_store(&shown->mrq_written, UINT64_MAX / 2);
    CONF_OK(utofu_query_num_unread_mrq(vcq.hdl, &unread));
    CONF_CHECK(unread <= 2 * 1024 * 1024, "%zu unread notices", unread);
    CONF_CODE(utofu_poll_tcq(vcq.hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
    /* the entry of one that was posted is found, though nobody has started it: the program's, and just that */
    CONF_OK(utofu_put(vcq.hdl, vcq.id, stadd, stadd, 8, 0, CONF_TCQ, &word));
    CONF_CODE(utofu_poll_tcq(vcq.hdl, 0, &cbdata), UTOFU_SUCCESS, UTOFU_ERR_NOT_FOUND);
    CONF_CODE(utofu_poll_tcq(vcq.hdl, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
    CONF_CHECK(conf_now() - began < 5 * conf_patience, "it took %.1f s", conf_now() - began);
    munmap(own, own->size);
}

CONF_TEST("trust", place_that_is_not_aligned, 2, "a peer's word about where in its file memory is does not lead an atomic operation across a line")
{
    struct conf_vcq     vcq;
    struct conf_mem     mem;
    struct emu_process *own;
    utofu_stadd_t       all[2];
    int                 code;

    conf_vcq_open(&vcq, 0, 0);
    conf_mem_alloc(&mem, CONF_MEM_MEMFD, BYTES);
    conf_reg_all(&vcq, mem.addr, PAGE, all); /* the file is longer: what is said can be */
    if (conf_rank == 1) {
        own = own_segment();
        stag_shown(own, mem.addr)->seg_off = 61;
        munmap(own, own->size);
    }
    conf_barrier();
    if (conf_rank == 0) {
        struct utofu_mrq_notice n;

        CONF_POST(vcq.hdl, utofu_armw8(vcq.hdl, vcq.peer[1], UTOFU_ARMW_OP_ADD, 0x0101010101010101, all[1], 1, CONF_LMRQ, NULL));
        code = CONF_WAIT_MRQ(&vcq, &n);
        CONF_CHECK((code == UTOFU_SUCCESS) || (code == UTOFU_ERR_MRQ_RMT_MEMORY) || (code == UTOFU_ERR_MRQ_OTHER), "%d", code);
    }
    conf_barrier();
    for (unsigned i = 8; (conf_rank == 1) && (i < PAGE); i++) {
        CONF_CHECK(((char *)mem.addr)[i] == 0, "byte %u", i);
    }
    conf_barrier();
}

/* How the helper thread of a process is reached: by slot */
static socklen_t helper(unsigned slot, struct sockaddr_un *sa)
{
    *sa = (struct sockaddr_un){.sun_family = AF_UNIX};
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                       (size_t)snprintf(sa->sun_path + 1, sizeof(sa->sun_path) - 1, "utofu-emu/%u/%s/%u", geteuid(),
                                        getenv("UTOFU_EMU_JOB"), slot));
}

CONF_TEST("trust", connections_of_one, 3, "a process that connects again and again does not keep others from a helper thread")
{
    struct rlimit       files = {4096, 4096};
    static _Alignas(8) uint64_t word;
    struct conf_vcq     vcq;
    struct emu_control *c;
    struct sockaddr_un  sa;
    utofu_stadd_t       all[3];
    unsigned            slot, slots[3];
    socklen_t           len;
    int                 fd;

    CONF_CHECK(!setenv("UTOFU_EMU_REHOME", "0", 1), "setenv");
    if (setrlimit(RLIMIT_NOFILE, &files)) {
        conf_skip("no 4096 descriptors");
    }
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, &word, sizeof(word), all);
    c    = own_control();
    slot = (unsigned)(own_slot(c) - c->slot);
    munmap(c, sizeof(*c));
    conf_exchange(&slot, sizeof(slot), slots);
    for (unsigned i = 0; (conf_rank == 1) && (i < 1024); i++) {
        len = helper(slots[0], &sa);
        fd  = socket(AF_UNIX, SOCK_STREAM, 0);
        CONF_CHECK((fd >= 0) && !connect(fd, (struct sockaddr *)&sa, len), "connection %u: %s", i, strerror(errno));
    }
    conf_barrier();
    if (conf_rank == 2) {
        CONF_POST(vcq.hdl, utofu_armw8(vcq.hdl, vcq.peer[0], UTOFU_ARMW_OP_ADD, 1, all[0], 1, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_ARMW, vcq.peer[0], 1, NULL);
    }
    conf_barrier();
}

CONF_TEST("trust", nobody_answers, 2, "who can't ask a member of the job, since it is stopped and too many did, makes no other job of that name")
{
    struct sockaddr_un  sa;
    struct emu_control *c;
    utofu_vcq_hdl_t     hdl;
    unsigned            slot = 0, slots[2];
    socklen_t           len;
    int                 fd;

    if (conf_rank == 1) {
        CONF_OK(utofu_create_vcq(conf_tni(0), 0, &hdl));
        c    = own_control();
        slot = (unsigned)(own_slot(c) - c->slot);
        munmap(c, sizeof(*c));
    }
    conf_exchange(&slot, sizeof(slot), slots);
    if (conf_rank == 0) {
        len = helper(slots[1], &sa);
        conf_stop(1);
        do {
            fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
            CONF_CHECK(fd >= 0, "socket");
            slot = (unsigned)connect(fd, (struct sockaddr *)&sa, len);
            close(fd);
        } while (slot == 0);
        CONF_CODE(utofu_create_vcq(0, 0, &hdl), UTOFU_ERR_OUT_OF_RESOURCE);
        conf_continue(1);
        usleep(300000);
        CONF_OK(utofu_create_vcq(0, 0, &hdl));
    }
    conf_barrier();
}

CONF_TEST("trust", fifo_of_that_name, 1, "what stands where a registered file was, a FIFO that nobody writes to, is not waited for")
{
    char            dir[] = "fifo-XXXXXX", file[64], fifo[80];
    struct conf_vcq vcq;
    utofu_stadd_t   stadd;
    char           *page;
    int             fd;

    CONF_CHECK(mkdtemp(dir) != NULL, "mkdtemp");
    snprintf(file, sizeof(file), "%s/file", dir);
    snprintf(fifo, sizeof(fifo), "%s (deleted)", file); /* as the kernel calls the file then */
    fd   = open(file, O_RDWR | O_CREAT, 0600);
    page = ((fd < 0) || ftruncate(fd, PAGE)) ? MAP_FAILED : mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    CONF_CHECK((page != MAP_FAILED) && (close(fd) == 0) && (unlink(file) == 0) && (mkfifo(fifo, 0600) == 0),
               "a file and a FIFO: %s", strerror(errno));
    alarm(10);
    conf_vcq_open(&vcq, 0, 0);
    CONF_OK(utofu_reg_mem(vcq.hdl, page, PAGE, UTOFU_REG_MEM_FLAG_READ_ONLY, &stadd));
    conf_dereg(&vcq, stadd);
    conf_vcq_close(&vcq);
    munmap(page, PAGE);
    CONF_CHECK((unlink(fifo) == 0) && (rmdir(dir) == 0), "to remove them");
}
