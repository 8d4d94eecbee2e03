/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_rehome_shared.c - shared anonymous memory that nobody else has gets a file when it is registered, where its owner
 * may not open the kernel's; peers map it then, and children share it as before.
 */
#include "own.h"

#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE  4096u
#define BYTES (16 * PAGE)
#define WORDS (BYTES / sizeof(uint64_t))
#define FILE_OF_IT "utofu-emu-shared"

static _Atomic uint64_t *shared_words(size_t size)
{
    _Atomic uint64_t *words = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CONF_CHECK(words != MAP_FAILED, "mmap: %s", strerror(errno));
    for (size_t i = 0; i < size / sizeof(*words); i++) {
        words[i] = i;
    }
    return words;
}

static void check_words(const _Atomic uint64_t *words, size_t size)
{
    for (size_t i = 0; i < size / sizeof(*words); i++) {
        CONF_CHECK(words[i] == i, "word %zu is %llu", i, (unsigned long long)words[i]);
    }
}

static void end_of(pid_t pid)
{
    int status;

    CONF_CHECK((waitpid(pid, &status, 0) == pid) && (status == 0), "the child: %x", (unsigned)status);
}

/* A child writes to one word, and what is there shows whether it shares the memory. */
static void check_shared(_Atomic uint64_t *word)
{
    uint64_t was = *word;
    pid_t    pid = fork();

    if (pid == 0) {
        *word += 1;
        _exit(0);
    }
    end_of(pid);
    CONF_CHECK(*word == was + 1, "a child does not share it");
    *word = was;
}

CONF_TEST("rehome", shared_of_its_own, 2,
          "shared anonymous memory that nobody else has is mapped by peers, also when its owner is stopped, with what was in "
          "it, and children share it before and after it is deregistered")
{
    _Atomic uint64_t       *words = shared_words(BYTES);
    struct utofu_mrq_notice notice;
    struct conf_vcq         vcq;
    utofu_stadd_t           all[2];

    own_may_not_open_mappings();
    check_shared(&words[3]);
    conf_vcq_open(&vcq, 0, 0);
    conf_reg_all(&vcq, (char *)(uintptr_t)words + PAGE, BYTES - 2 * PAGE, all);
    check_words(words, BYTES);
    CONF_CHECK(own_mappings(FILE_OF_IT) == 1, "%u mappings of the file", own_mappings(FILE_OF_IT));
    conf_barrier();
    if (conf_rank == 0) {
        conf_stop(1);
        CONF_POST(vcq.hdl, utofu_armw8(vcq.hdl, vcq.peer[1], UTOFU_ARMW_OP_ADD, 5, all[1] + 8, 5, CONF_LMRQ, NULL));
        CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_ARMW, vcq.peer[1], 5, &notice);
        CONF_CHECK(notice.rmt_value == PAGE / 8 + 1, "the value before is %llu", (unsigned long long)notice.rmt_value);
        CONF_CHECK(own_mappings(FILE_OF_IT) == 2, "the peer's is not mapped");
        conf_continue(1);
    }
    conf_barrier();
    if (conf_rank == 1) {
        CONF_CHECK(words[PAGE / 8 + 1] == PAGE / 8 + 6, "what was added");
        words[PAGE / 8 + 1] -= 5;
    }
    check_shared(&words[PAGE / 8]);
    conf_dereg(&vcq, all[conf_rank]);
    check_words(words, BYTES);
    check_shared(&words[PAGE / 8]);
    conf_vcq_close(&vcq);
    check_shared(&words[PAGE / 8]);
    munmap((void *)words, BYTES);
}

CONF_TEST("rehome", shared_of_its_own_again, 1,
          "such memory that is registered again and again takes no descriptors and no memory when it is gone")
{
    _Atomic uint64_t *words = shared_words(BYTES);
    struct conf_vcq   vcq;
    utofu_stadd_t     stadd;
    int               fds = 0;

    own_may_not_open_mappings();
    conf_vcq_create(&vcq, 0, 0);
    for (int i = 0; i < 12; i++) { /* not so often that it is left where it is */
        stadd = conf_reg(&vcq, (void *)words, BYTES, 0);
        CONF_CHECK(own_mappings(FILE_OF_IT) == 1, "%d: it is not of the file", i);
        check_words(words, BYTES);
        conf_dereg(&vcq, stadd);
        fds = (i == 2) ? own_fds() : fds;
        if (i % 3 == 0) {
            munmap((void *)words, BYTES);
            CONF_CHECK(own_mappings(FILE_OF_IT) == 0, "it is still mapped");
            words = shared_words(BYTES);
        }
    }
    CONF_CHECK(own_fds() == fds, "%d descriptors, after %d", own_fds(), fds);
    conf_vcq_close(&vcq);
}

/* A child that has what is there now and lives until the end of its input */
static pid_t relative(int go[2], bool hidden)
{
    pid_t pid;
    int   ready[2];
    char  c;

    CONF_CHECK(!pipe(go) && !pipe(ready), "pipe");
    pid = fork();
    if (pid == 0) {
        close(go[1]);
        prctl(PR_SET_DUMPABLE, !hidden);
        _exit((write(ready[1], &c, 1) != 1) || (read(go[0], &c, 1) != 0));
    }
    close(go[0]);
    close(ready[1]);
    CONF_CHECK(read(ready[0], &c, 1) == 1, "no child");
    close(ready[0]);
    return pid;
}

/* It stays where it is */
static void register_in_place(_Atomic uint64_t *words, size_t size)
{
    struct conf_vcq vcq;
    utofu_stadd_t   stadd;

    conf_vcq_create(&vcq, 0, 0);
    stadd = conf_reg(&vcq, (void *)words, size, 0);
    CONF_CHECK(own_mappings(FILE_OF_IT) == 0, "it was moved");
    conf_dereg(&vcq, stadd);
    conf_vcq_close(&vcq);
}

CONF_TEST("rehome", shared_with_a_child, 1, "what a child has stays where it is, until the child has ended")
{
    _Atomic uint64_t *words = shared_words(BYTES);
    struct conf_vcq   vcq;
    int               go[2];
    pid_t             pid;

    own_may_not_open_mappings();
    pid = relative(go, false);
    register_in_place(words, BYTES);
    close(go[1]);
    end_of(pid);
    conf_vcq_create(&vcq, 0, 0);
    conf_reg(&vcq, (void *)words, BYTES, 0);
    CONF_CHECK(own_mappings(FILE_OF_IT) == 1, "it was not moved");
    check_words(words, BYTES);
    conf_vcq_close(&vcq);
}

static void be_nobody(void)
{
    if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)) {
        conf_skip("it can't be another user: %s", strerror(errno));
    }
    prctl(PR_SET_DUMPABLE, 1); /* as what this user starts */
}

CONF_TEST("rehome", shared_of_an_ordinary_user, 1,
          "an ordinary user's is moved, but not what a process has whose memory he may not see")
{
    _Atomic uint64_t *words = shared_words(BYTES), *own = shared_words(BYTES);
    struct conf_vcq   vcq;
    utofu_stadd_t     stadd;
    int               go[2];
    pid_t             pid;

    be_nobody();
    munmap((void *)own, BYTES);
    pid = relative(go, true);
    own = shared_words(BYTES);
    register_in_place(words, BYTES);
    register_in_place(own, BYTES);
    close(go[1]);
    end_of(pid);
    conf_vcq_create(&vcq, 0, 0);
    stadd = conf_reg(&vcq, (void *)own, BYTES, 0);
    CONF_CHECK(own_mappings(FILE_OF_IT) == 1, "it was not moved");
    check_words(own, BYTES);
    conf_dereg(&vcq, stadd);
    conf_vcq_close(&vcq);
}

CONF_TEST("rehome", shared_with_more_of_it, 1,
          "memory that the process has a second mapping of, or a part of which it has unmapped, stays where it is")
{
    _Atomic uint64_t *twice = shared_words(BYTES), *cut = shared_words(BYTES), *more;
    void             *second;

    own_may_not_open_mappings();
    second = mremap((void *)twice, 0, BYTES, MREMAP_MAYMOVE);
    CONF_CHECK(second != MAP_FAILED, "mremap");
    register_in_place(twice, BYTES);
    munmap(second, BYTES);

    munmap((char *)(uintptr_t)cut + BYTES / 2, BYTES / 2);
    register_in_place(cut, BYTES / 2);
    more = mremap((void *)cut, BYTES / 2, BYTES, MREMAP_MAYMOVE);
    CONF_CHECK(more != MAP_FAILED, "mremap");
    check_words(more, BYTES);

    more = shared_words(BYTES);
    CONF_CHECK(!mprotect((void *)more, PAGE, PROT_READ), "mprotect");
    register_in_place((_Atomic uint64_t *)((uintptr_t)more + PAGE), BYTES - PAGE);
}

/* ----------------------------------------------------------------------- beside threads */

static _Atomic bool      stop;
static _Atomic uint64_t *counted;

static void *counts(void *arg)
{
    _Atomic uint64_t *word = &counted[(uintptr_t)arg];
    uintptr_t         n;

    for (n = 0; !atomic_load(&stop); n++) {
        *word = *word + 1; /* nobody else writes it */
    }
    return (void *)n;
}

CONF_TEST("rehome", shared_beside_threads, 1,
          "what threads write to such memory while it is registered again and again is there")
{
    static const uintptr_t at[] = {0, WORDS / 2, WORDS - 1};
    pthread_t              threads[CONF_LEN(at)];
    struct conf_vcq        vcq;
    double                 end;

    own_may_not_open_mappings();
    counted = shared_words(BYTES);
    for (size_t i = 0; i < CONF_LEN(at); i++) {
        counted[at[i]] = 0;
        CONF_CHECK(!pthread_create(&threads[i], NULL, counts, (void *)at[i]), "pthread_create");
    }
    conf_vcq_create(&vcq, 0, 0);
    for (end = conf_now() + 1; conf_now() < end;) {
        conf_dereg(&vcq, conf_reg(&vcq, (void *)counted, BYTES, 0));
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < CONF_LEN(at); i++) {
        void *n;

        pthread_join(threads[i], &n);
        CONF_CHECK(counted[at[i]] == (uintptr_t)n, "%llu of %zu", (unsigned long long)counted[at[i]], (size_t)n);
    }
    conf_vcq_close(&vcq);
}

static void *forks(void *arg)
{
    for (uint64_t n = 1; !atomic_load(&stop); n++) {
        pid_t pid = fork();

        if (pid == 0) {
            usleep(200);
            counted[1]         = n;
            counted[WORDS - 2] = n;
            _exit(0);
        }
        end_of(pid);
        CONF_CHECK((counted[1] == n) && (counted[WORDS - 2] == n), "child %llu wrote %llu, %llu", (unsigned long long)n,
                   (unsigned long long)counted[1], (unsigned long long)counted[WORDS - 2]);
    }
    return arg;
}

CONF_TEST("rehome", shared_beside_forks, 1,
          "children that are made while such memory is registered again and again share it")
{
    struct conf_vcq vcq;
    pthread_t       thread;
    double          end;

    own_may_not_open_mappings();
    counted = shared_words(BYTES);
    conf_vcq_create(&vcq, 0, 0);
    CONF_CHECK(!pthread_create(&thread, NULL, forks, NULL), "pthread_create");
    for (end = conf_now() + 1.5; conf_now() < end;) {
        conf_dereg(&vcq, conf_reg(&vcq, (void *)counted, BYTES, 0));
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    conf_vcq_close(&vcq);
}
