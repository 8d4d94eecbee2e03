/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz.h - the world of a fuzzing process: seeded numbers, the objects that calls
 * are made with (live, stale and invented ones), and what must stay true.
 *
 * What is passed to the library is hostile but defined in C: a pointer is NULL or
 * points to memory of the size that the call needs, allocated exactly, so that
 * AddressSanitizer sees one byte too many.  reg_mem alone gets any address, since
 * it can tell.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <utofu.h>

#define MAX_FUZZERS 4
#define LIVE        16 /* of each kind of object */
#define STALE       32
#define NBUF        6
#define GUARD       256u
#define BUF_SIZE    8192u /* between the guards */
#define DESC_ROOM   (4096u * 64u)

/* What the fuzzers of a group tell each other, in anonymous shared memory */
struct board {
    _Atomic int phase; /* 0: fuzz, 1: check */
    struct {
        _Atomic uint64_t id[LIVE], stadd[LIVE];
        _Atomic uint64_t polls; /* counts its rounds of polling */
        _Atomic uint64_t check_id, check_stadd;
        _Atomic int      stage; /* of the check */
    } p[MAX_FUZZERS];
};

struct buffer {
    unsigned char *base; /* guard, BUF_SIZE bytes, guard; pages without access around them */
    bool           writable;
};

struct world {
    uint64_t        seed, state;
    int             me, fuzzers;
    struct board   *board;
    struct buffer   buf[NBUF];
    utofu_vcq_hdl_t hdl[LIVE];
    uint64_t        id[LIVE];
    utofu_vcq_hdl_t stale_hdl[STALE];
    uint64_t        stale_id[STALE], stale_stadd[STALE];
    struct {
        utofu_vcq_hdl_t hdl;
        uint64_t        stadd;
        size_t          size;
    } reg[LIVE];
    utofu_vbg_id_t  vbg[LIVE][64];
    size_t          nvbg[LIVE];
    unsigned char  *desc;      /* DESC_ROOM bytes, 8 aligned */
    size_t          desc_size; /* of what was last prepared in it */
    utofu_vcq_hdl_t desc_hdl;
    bool            bad; /* an argument of this call can't be right: it must fail */
    uint64_t        noisy; /* operations since everyone was last seen polling */
    uint64_t        seen[MAX_FUZZERS];
    uint64_t        calls, succeeded;
};
extern struct world w;

/* fuzz_world.c */
void     die(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
uint64_t rnd(void);
static inline uint64_t below(uint64_t n) { return rnd() % n; }
static inline bool one_in(unsigned n) { return below(n) == 0; }
uint64_t hostile(void); /* any 64 bits, boundaries preferred */
void     world_init(uint64_t seed, int me, int fuzzers, struct board *board);
void     world_check_guards(void);
void     check_code(const char *what, int code);

utofu_vcq_hdl_t pick_hdl(void);
uint64_t        pick_id(void);
uint64_t        pick_stadd(bool local, utofu_vcq_hdl_t hdl);
uint64_t        pick_remote_stadd(uint64_t id); /* of that VCQ, if it is ours, most often */
uint64_t        pick_vbg(void);
size_t          pick_length(size_t max);
unsigned long   pick_flags(void);
unsigned long   pick_poll_flags(void);
uint64_t        pick_edata(void);
/* exactly n bytes on the heap that end with the call; now and then NULL */
void           *out(size_t n);
void           *room(size_t n); /* never NULL */
void            outs_free(void);

/* fuzz_calls.c */
void fuzz_one(void);
/* polls everything: notices must not pile up */
void fuzz_drain(void);
unsigned fuzz_functions(void);
const uint64_t *fuzz_counts(const char *const **names);

/* fuzz_main.c calls this at the end of a run: a correct program still works. */
void check_alone(void);
void check_group(void);

#endif
