/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_world.c - seeded numbers, objects and invariants of fuzz.h. */
#include "fuzz.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct world w;

void die(const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, "fuzz: seed %llu process %d call %llu: ", (unsigned long long)w.seed, w.me,
            (unsigned long long)w.calls);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\n");
    abort();
}

uint64_t rnd(void)
{
    uint64_t z = (w.state += 0x9e3779b97f4a7c15ull); /* splitmix64 */

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

uint64_t hostile(void)
{
    switch (below(6)) {
    case 0:
        return below(10);
    case 1:
        return (uint64_t)0 - below(10);
    case 2:
        return ((uint64_t)1 << below(64)) - below(3);
    case 3:
        return rnd() & 0xffffffffu;
    case 4:
        return rnd() >> below(64);
    default:
        return rnd();
    }
}

static unsigned char pattern(int buf, size_t i)
{
    return (unsigned char)(0xa5 ^ (unsigned)buf * 29 ^ i * 7);
}

/* Buffers 0, 1: memfd; 2, 3: anonymous shared / private; 4: private, 5: read only */
static void buffer_init(int b)
{
    long   page  = sysconf(_SC_PAGESIZE);
    size_t inner = (BUF_SIZE + 2 * GUARD + (size_t)page - 1) / (size_t)page * (size_t)page;
    char  *all   = mmap(NULL, inner + 2 * (size_t)page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int    fd    = -1, flags = MAP_FIXED | ((b == 2) ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS;

    if (all == MAP_FAILED) {
        die("no memory");
    }
    if (b < 2) {
        fd    = memfd_create("fuzz", MFD_CLOEXEC);
        flags = MAP_FIXED | MAP_SHARED;
        if ((fd < 0) || ftruncate(fd, (off_t)inner)) {
            die("no memfd");
        }
    }
    w.buf[b].base     = mmap(all + page, inner, PROT_READ | PROT_WRITE, flags, fd, 0);
    w.buf[b].writable = b != 5;
    if (w.buf[b].base == MAP_FAILED) {
        die("no memory");
    }
    for (size_t i = 0; i < inner; i++) {
        w.buf[b].base[i] = pattern(b, i);
    }
    if (b == 5) {
        mprotect(w.buf[b].base, inner, PROT_READ);
    }
}

void world_check_guards(void)
{
    for (int b = 0; b < NBUF; b++) {
        for (size_t i = 0; i < BUF_SIZE + 2 * GUARD; i++) {
            bool guard = (i < GUARD) || (i >= GUARD + BUF_SIZE) || !w.buf[b].writable;
            if (guard && (w.buf[b].base[i] != pattern(b, i))) {
                die("guard byte %zu of buffer %d was overwritten", i, b);
            }
        }
    }
}

void world_init(uint64_t seed, int me, int fuzzers, struct board *board)
{
    memset(&w, 0, sizeof(w));
    w.seed = w.state = seed;
    w.me      = me;
    w.fuzzers = fuzzers;
    w.board   = board;
    for (int b = 0; b < NBUF; b++) {
        buffer_init(b);
    }
    w.desc = aligned_alloc(64, DESC_ROOM);
    memset(w.desc, 0, DESC_ROOM);
}

void check_code(const char *what, int code)
{
    bool known = (code == 0) || ((code <= -1) && (code >= -8)) || ((code <= -128) && (code >= -132)) ||
                 ((code <= -192) && (code >= -199)) || (code == -256) || (code == -257) ||
                 ((code <= -512) && (code >= -533)) || (code == -640) || (code == -641) || (code == -768);

    if (!known) {
        die("%s returned %d, which is no code of utofu.h", what, code);
    }
    if (w.bad && (code == UTOFU_SUCCESS)) {
        die("%s succeeded with an argument that can't be right", what);
    }
    w.succeeded += code == UTOFU_SUCCESS;
}

/* ------------------------------------------------------------------ pickers */

utofu_vcq_hdl_t pick_hdl(void)
{
    unsigned        how = (unsigned)below(20);
    utofu_vcq_hdl_t h   = w.hdl[below(LIVE)];

    for (int i = 0; (h == 0) && (i < LIVE); i++) {
        h = w.hdl[i];
    }
    if (how == 0) {
        h = w.stale_hdl[below(STALE)]; /* 0 before there is one */
    } else if (how == 1) {
        h = (utofu_vcq_hdl_t)hostile();
    } else if (how == 2) {
        h ^= (utofu_vcq_hdl_t)1 << below(64);
    }
    for (int i = 0; i < LIVE; i++) {
        if ((w.hdl[i] == h) && (h != 0)) {
            return h;
        }
    }
    w.bad = true;
    return h;
}

/* The ID of a VCQ that nobody owns, most likely */
static uint64_t made_up_id(void)
{
    uint8_t        coords[6] = {(uint8_t)below(8), (uint8_t)below(8), (uint8_t)below(16), (uint8_t)below(2),
            (uint8_t)below(3), (uint8_t)below(2)};
    utofu_vcq_id_t id = 0;

    utofu_construct_vcq_id(coords, (utofu_tni_id_t)below(6), (utofu_cq_id_t)below(9), (utofu_cmp_id_t)below(8), &id);
    return id;
}

static int other(void)
{
    return (int)below((uint64_t)w.fuzzers);
}

uint64_t pick_id(void)
{
    uint64_t id = 0;

    switch (below(12)) {
    case 0:
        return hostile();
    case 1:
        return made_up_id();
    case 2:
        return w.stale_id[below(STALE)];
    case 3:
    case 4:
    case 5:
        id = w.id[below(LIVE)];
        break;
    default:
        id = atomic_load(&w.board->p[other()].id[below(LIVE)]);
    }
    if ((id != 0) && one_in(4)) {
        uint8_t path[3] = {(uint8_t)below(2), (uint8_t)below(3), (uint8_t)below(2)};
        utofu_set_vcq_id_path(&id, path);
    }
    return one_in(20) ? id ^ (uint64_t)1 << below(64) : id;
}

uint64_t pick_stadd(bool local, utofu_vcq_hdl_t hdl)
{
    unsigned r = (unsigned)below(LIVE);
    uint64_t s = 0;

    switch (below(16)) {
    case 0:
        return hostile();
    case 1:
        return w.stale_stadd[below(STALE)];
    case 2:
        utofu_query_stadd(w.id[below(LIVE)], (unsigned)below(4), &s);
        return s;
    default:
        break;
    }
    if (local || one_in(2)) {
        for (unsigned i = 0; i < LIVE; i++, r = (r + 1) % LIVE) {
            if ((w.reg[r].stadd != 0) && ((w.reg[r].hdl == hdl) || !local)) {
                s = w.reg[r].stadd;
                switch (below(6)) {
                case 0:
                    return s + w.reg[r].size - below(9); /* at the end */
                case 1:
                    return s + below(w.reg[r].size + 16) - 8;
                default:
                    return s + (below(w.reg[r].size) & ~(uint64_t)7);
                }
            }
        }
    }
    s = atomic_load(&w.board->p[other()].stadd[r]);
    s += one_in(2) ? (below(512) & ~(uint64_t)7) : one_in(3) ? below(2 * BUF_SIZE) : 0;
    return one_in(20) ? s ^ (uint64_t)1 << below(64) : s;
}

uint64_t pick_remote_stadd(uint64_t id)
{
    for (int k = 0; (k < LIVE) && (id != 0) && !one_in(4); k++) {
        if (w.id[k] == id) {
            return pick_stadd(true, w.hdl[k]);
        }
    }
    return pick_stadd(false, 0);
}

uint64_t pick_vbg(void)
{
    size_t k = below(LIVE);

    if (one_in(8)) {
        return hostile();
    }
    if (one_in(16)) {
        return pick_id();
    }
    return (w.nvbg[k] != 0) ? w.vbg[k][below(w.nvbg[k])] : UTOFU_VBG_ID_NULL;
}

size_t pick_length(size_t max)
{
    size_t n;

    switch (below(8)) {
    case 0:
        n = hostile();
        break;
    case 1:
        n = max + below(3) - 1;
        break;
    case 2:
        n = below(BUF_SIZE + 2);
        break;
    default:
        n = below(48);
    }
    if (n > max) {
        w.bad = true;
    }
    return n;
}

unsigned long pick_flags(void)
{
    static const unsigned long known[] = {
        UTOFU_ONESIDED_FLAG_STRONG_ORDER, UTOFU_ONESIDED_FLAG_PACKET_RESPONSE, UTOFU_ONESIDED_FLAG_PADDING,
        UTOFU_ONESIDED_FLAG_CACHE_INJECTION, UTOFU_ONESIDED_FLAG_TCQ_NOTICE, UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE,
        UTOFU_ONESIDED_FLAG_TCQ_NOTICE, UTOFU_ONESIDED_FLAG_TCQ_NOTICE,
    };
    unsigned long   f = 0;
    utofu_path_id_t path;
    uint8_t         abc[3] = {(uint8_t)below(2), (uint8_t)below(3), (uint8_t)below(2)};

    for (unsigned n = (unsigned)below(4); n > 0; n--) {
        f |= known[below(sizeof(known) / sizeof(known[0]))];
    }
    if (one_in(6)) {
        f |= UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE;
    }
    if (one_in(12)) {
        f |= UTOFU_ONESIDED_FLAG_DELAY_START;
    }
    if (one_in(8)) {
        f |= UTOFU_ONESIDED_FLAG_SPS(below(16));
    }
    if (one_in(6) && (utofu_get_path_id(w.id[0], abc, &path) == UTOFU_SUCCESS)) {
        f |= UTOFU_ONESIDED_FLAG_PATH(path);
    }
    if (one_in(16)) {
        f ^= 1ul << below(64);
    }
    if (one_in(32)) {
        f = hostile();
    }
    return f;
}

unsigned long pick_poll_flags(void)
{
    unsigned long f = one_in(16) ? hostile() : 0;

    w.bad = w.bad || (f != 0); /* none are defined */
    return f;
}

uint64_t pick_edata(void)
{
    uint64_t e = one_in(12) ? hostile() : below(256);

    w.bad = w.bad || (e > 255);
    return e;
}

/* ------------------------------------------------------------------- memory */

static void    *held[16];
static unsigned nheld;

void *room(size_t n)
{
    void *p = malloc(n);

    if ((p == NULL) || (nheld == 16)) {
        die("no memory for an argument");
    }
    memset(p, 0x5a, n);
    return held[nheld++] = p;
}

void *out(size_t n)
{
    if (one_in(16)) {
        w.bad = true;
        return NULL;
    }
    return room(n);
}

void outs_free(void)
{
    while (nheld > 0) {
        free(held[--nheld]);
    }
}
