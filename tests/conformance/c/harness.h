/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * harness.h - what a conformance test of a uTofu library is written with.
 *
 * A test is a function run by one or more processes ("ranks").  They are
 * forked before any of them calls uTofu; the process that forks them (the
 * supervisor) never calls it.  Ranks talk to each other only through the
 * supervisor, over socket pairs, and through the library under test.
 *
 * A run of one test ends with exit code 0 (ok), 1 (failed) or 77 (skipped).
 * Nothing here or in the tests knows which library is under test.
 */
#ifndef CONF_HARNESS_H
#define CONF_HARNESS_H

#include <utofu.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CONF_MAX_PROCS   16
#define CONF_MAX_MESSAGE 65536 /* bytes one rank may give to an exchange */
#define CONF_TIMEOUT     (30 * conf_patience) /* seconds a test may take, unless it says so */
#define CONF_WAIT        (10.0 * conf_patience) /* seconds one wait for a notice may take */

struct conf_test {
    const char       *section;   /* of the uTofu user's guide */
    const char       *name;
    const char       *statement; /* what must hold */
    int               procs;     /* ranks that run the function */
    void              (*run)(void);
    struct conf_test *next;
};

void conf_register(struct conf_test *test);

/* Define a test.  The line that names it is also read by test_conformance.py,
 * so section, name and number of ranks are literals and statement is a string. */
#define CONF_TEST(_section, _name, _procs, ...) \
    static void _name(void); \
    static struct conf_test _name##_test = { \
        _section, #_name, __VA_ARGS__, _procs, _name, NULL}; \
    __attribute__((constructor)) static void _name##_register(void) \
    { \
        conf_register(&_name##_test); \
    } \
    static void _name(void)

/* --------------------------------------------------------------- ranks */

extern int conf_rank;  /* 0 .. conf_procs - 1 */
extern int conf_procs; /* ranks of this test */
/* From the environment, CONF_PATIENCE: by how much longer everything may take than on an
 * idle machine and in the fast mode; 1 when it is not set. */
extern unsigned conf_patience;

/* All ranks that are still there give size bytes (the same size everywhere);
 * each gets all of them, in order of rank.  Bytes of a rank that is gone are
 * zero.  A rank that waits here is asleep in the kernel. */
void conf_exchange(const void *mine, size_t size, void *all);
void conf_barrier(void);

/* Stop (SIGSTOP), continue or kill (SIGKILL) another rank; when the call
 * returns it has happened.  A killed rank does not make the test fail. */
void conf_stop(int rank);
void conf_continue(int rank);
void conf_kill(int rank);

/* Give this test so many seconds from now on. */
void conf_timeout(unsigned seconds);

/* True unless the suite was told that a machine's library is under test. */
bool conf_is_emulator(void);

/* File of the library that defines a symbol, with links resolved; NULL when
 * the symbol does not exist. */
const char *conf_symbol_file(const char *symbol);

double conf_now(void); /* seconds, monotonic */

/* Run this rank on a CPU of its own, as far as there are enough: what is looked
 * for happens only between processes that run at the same time. */
void conf_pin(void);

/* Call in a loop that waits: spins, then gives the CPU away. */
void conf_relax(unsigned *spins_p);

/* -------------------------------------------------------------- verdicts */

_Noreturn void conf_fail_at(const char *file, int line, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
_Noreturn void conf_skip(const char *fmt, ...)
        __attribute__((format(printf, 1, 2)));

/* Where a rank is, for the message of a time-out. */
void conf_at(const char *file, int line, const char *what);

const char *conf_code_name(int code);

/* Fail unless rc is one of the codes; returns rc. */
int conf_check_code(const char *file, int line, const char *call, int rc,
                    const int *codes, size_t num_codes);

#define CONF_FAIL(...) conf_fail_at(__FILE__, __LINE__, __VA_ARGS__)

#define CONF_CHECK(_cond, ...) \
    do { \
        if (!(_cond)) { \
            conf_fail_at(__FILE__, __LINE__, __VA_ARGS__); \
        } \
    } while (0)

/* Only codes of the kind INVALID_* are expected of what follows.  The guide says what they mean, not
 * that a library looks at its arguments.  Where a machine's does not, and the call returns
 * something else, or crashes, the test is skipped. */
void conf_expects(const int *codes, size_t num_codes);

/* The call must return one of the listed codes; the value is what it did. */
#define CONF_CODE(_call, ...) \
    (conf_at(__FILE__, __LINE__, #_call), \
     conf_expects((const int[]){__VA_ARGS__}, \
                  sizeof((const int[]){__VA_ARGS__}) / sizeof(int)), \
     conf_check_code(__FILE__, __LINE__, #_call, (_call), \
                     (const int[]){__VA_ARGS__}, \
                     sizeof((const int[]){__VA_ARGS__}) / sizeof(int)))

#define CONF_OK(_call) (void)CONF_CODE(_call, UTOFU_SUCCESS)

/* Post; while the TOQ is full read the TCQ, whose entries are lost. */
#define CONF_POST(_hdl, _call) \
    do { \
        int    _rc; \
        void  *_cbdata; \
        double _end = conf_now() + CONF_WAIT; \
        while ((_rc = (_call)) == UTOFU_ERR_BUSY && conf_now() < _end) { \
            CONF_CODE(utofu_poll_tcq(_hdl, 0, &_cbdata), UTOFU_SUCCESS, \
                      UTOFU_ERR_NOT_FOUND); \
        } \
        conf_check_code(__FILE__, __LINE__, #_call, _rc, \
                        (const int[]){UTOFU_SUCCESS}, 1); \
    } while (0)

#define CONF_PTR(_n)   ((void *)(uintptr_t)(_n))
#define CONF_LEN(_array) (sizeof(_array) / sizeof((_array)[0]))

#define CONF_TCQ    UTOFU_ONESIDED_FLAG_TCQ_NOTICE
#define CONF_LMRQ   UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE
#define CONF_RMRQ   UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE
#define CONF_STRONG UTOFU_ONESIDED_FLAG_STRONG_ORDER

/* ------------------------------------------------------------------ VCQs */

struct conf_vcq {
    utofu_tni_id_t  tni;
    utofu_vcq_hdl_t hdl;
    utofu_vcq_id_t  id;
    utofu_vcq_id_t  peer[CONF_MAX_PROCS]; /* IDs of the same VCQ of each rank */
};

size_t                            conf_num_tnis(void);
utofu_tni_id_t                    conf_tni(size_t index); /* modulo their number */
const struct utofu_onesided_caps *conf_caps(void);        /* of the first TNI */

/* A VCQ of this rank only / of every rank, their IDs exchanged. */
void conf_vcq_create(struct conf_vcq *vcq, size_t tni_index,
                     unsigned long flags);
void conf_vcq_open(struct conf_vcq *vcq, size_t tni_index, unsigned long flags);
void conf_vcq_close(struct conf_vcq *vcq); /* this rank's */

utofu_stadd_t conf_reg(const struct conf_vcq *vcq, void *addr, size_t size,
                       unsigned long flags);
void          conf_dereg(const struct conf_vcq *vcq, utofu_stadd_t stadd);

/* Skip unless a region ends with its last byte, as the guide says.  A library may know its pages
 * only: what is behind it on the last one is reached, and two regions on one page are one.  A test
 * that looks for an error there would overwrite what is not its own. */
void conf_need_exact_bounds(void);

/* Every rank registers; stadds has an element per rank. */
utofu_stadd_t conf_reg_all(const struct conf_vcq *vcq, void *addr, size_t size,
                           utofu_stadd_t *stadds);

/* Put 8 bytes from one registered word to another and wait for the local
 * notice, the only one. */
void conf_put_word(const struct conf_vcq *vcq, utofu_vcq_id_t id,
                   utofu_stadd_t lcl, utofu_stadd_t rmt);

/* Wait for the next entry; returns the code of the poll, never NOT_FOUND. */
int conf_wait_tcq(const char *file, int line, const struct conf_vcq *vcq,
                  void **cbdata);
int conf_wait_mrq(const char *file, int line, const struct conf_vcq *vcq,
                  struct utofu_mrq_notice *notice);

#define CONF_WAIT_TCQ(_vcq, _cbdata) \
    conf_wait_tcq(__FILE__, __LINE__, _vcq, _cbdata)
#define CONF_WAIT_MRQ(_vcq, _notice) \
    conf_wait_mrq(__FILE__, __LINE__, _vcq, _notice)

/* The next TCQ entry is a success with this cbdata. */
void conf_expect_tcq(const char *file, int line, const struct conf_vcq *vcq,
                     void *cbdata);
/* The next MRQ notice is a success of this type, peer (without path) and
 * EDATA; it is stored for more checks unless notice is NULL. */
void conf_expect_mrq(const char *file, int line, const struct conf_vcq *vcq,
                     int type, utofu_vcq_id_t peer, uint64_t edata,
                     struct utofu_mrq_notice *notice);
/* The next two MRQ notices are that of our Put to the peer and that of its Put to
 * us, in either order, both with this EDATA. */
void conf_expect_both(const char *file, int line, const struct conf_vcq *vcq,
                      utofu_vcq_id_t peer, uint64_t edata);
#define CONF_EXPECT_BOTH(_vcq, _peer, _edata) \
    conf_expect_both(__FILE__, __LINE__, _vcq, _peer, _edata)
/* Neither queue has anything, now and for some milliseconds. */
void conf_expect_quiet(const char *file, int line, const struct conf_vcq *vcq,
                       unsigned msec);

#define CONF_EXPECT_TCQ(_vcq, _cbdata) \
    conf_expect_tcq(__FILE__, __LINE__, _vcq, _cbdata)
#define CONF_EXPECT_MRQ(_vcq, _type, _peer, _edata, _notice) \
    conf_expect_mrq(__FILE__, __LINE__, _vcq, _type, _peer, _edata, _notice)
#define CONF_EXPECT_QUIET(_vcq) \
    conf_expect_quiet(__FILE__, __LINE__, _vcq, 20)

/* The next TCQ entry / MRQ notice is one of the listed failures. */
#define CONF_EXPECT_TCQ_ERROR(_vcq, _cbdata, ...) \
    do { \
        void *_got = NULL; \
        CONF_CODE(CONF_WAIT_TCQ(_vcq, &_got), __VA_ARGS__); \
        CONF_CHECK(_got == (_cbdata), \
                   "utofu_poll_tcq: cbdata of the failed operation is %p, " \
                   "expected %p", _got, (void *)(_cbdata)); \
    } while (0)
#define CONF_EXPECT_MRQ_ERROR(_vcq, _type, _peer, _edata, ...) \
    do { \
        struct utofu_mrq_notice _n; \
        memset(&_n, 0, sizeof(_n)); \
        CONF_CODE(CONF_WAIT_MRQ(_vcq, &_n), __VA_ARGS__); \
        conf_check_notice(__FILE__, __LINE__, &_n, _type, _peer, _edata); \
    } while (0)

void conf_check_notice(const char *file, int line,
                       const struct utofu_mrq_notice *notice, int type,
                       utofu_vcq_id_t peer, uint64_t edata);

/* ---------------------------------------------------------------- memory */

/* Where memory that is registered may come from. */
enum conf_kind {
    CONF_MEM_MALLOC,      /* small or large block of the C heap */
    CONF_MEM_CALLOC,      /* large zeroed block, as array libraries make them */
    CONF_MEM_STACK,       /* of the running thread */
    CONF_MEM_STATIC,      /* zero-initialised data of the program */
    CONF_MEM_ANON,        /* private anonymous mapping */
    CONF_MEM_ANON_SHARED, /* shared anonymous mapping */
    CONF_MEM_MEMFD,       /* shared mapping of a memfd */
    CONF_MEM_MEMFD_PART,  /* shared mapping of the middle of a memfd */
    CONF_MEM_SHM,         /* of a POSIX shared memory object, closed since */
    CONF_MEM_FILE,        /* shared mapping of a file of a file system */
    CONF_MEM_COW,         /* private mapping of a file: writes stay in memory */
    CONF_MEM_MIXED,       /* starts in a memfd mapping, ends in anonymous memory */
    CONF_MEM_NUM
};

#define CONF_STACK_SIZE  (256 * 1024) /* most bytes of the kinds STACK, STATIC */

struct conf_mem {
    enum conf_kind kind;
    unsigned char *addr;
    size_t         size;
    void          *block; /* to release */
    size_t         block_size;
    int            fd;
};

const char *conf_kind_name(enum conf_kind kind);

/* For the kind STACK the caller lends part of its frame first. */
void conf_mem_lend_stack(void *frame, size_t size);
void conf_mem_alloc(struct conf_mem *mem, enum conf_kind kind, size_t size);
void conf_mem_free(struct conf_mem *mem);

/* Bytes that depend on the position and on the seed; and their check. */
void conf_fill(void *buffer, size_t length, unsigned seed);
void conf_check_fill(const char *file, int line, const void *buffer,
                     size_t length, unsigned seed, const char *what);
void conf_check_bytes(const char *file, int line, const void *buffer,
                      size_t length, unsigned char value, const char *what);

#define CONF_CHECK_FILL(_buffer, _length, _seed, _what) \
    conf_check_fill(__FILE__, __LINE__, _buffer, _length, _seed, _what)
#define CONF_CHECK_BYTES(_buffer, _length, _value, _what) \
    conf_check_bytes(__FILE__, __LINE__, _buffer, _length, _value, _what)

#endif /* CONF_HARNESS_H */
