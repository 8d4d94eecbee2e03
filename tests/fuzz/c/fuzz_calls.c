/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_calls.c - one random call of each function of utofu.h.
 *
 * An entry of the table at the end makes the arguments, calls, and takes note of
 * the objects that came or went.  Arguments that can't be right set w.bad, and
 * check_code holds the library to an error code then.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#define MAX_PUTGET 16777215u

static uint16_t small_id(unsigned limit)
{
    uint16_t v = one_in(10) ? (uint16_t)hostile() : (uint16_t)below(limit);

    w.bad = w.bad || (v >= limit);
    return v;
}

static uint8_t *some_coords(unsigned n)
{
    uint8_t *c = room(n);

    for (unsigned i = 0; i < n; i++) {
        c[i] = one_in(12) ? (uint8_t)hostile() : (uint8_t)below(2);
    }
    return c;
}

/* --------------------------------------------------------------- TNIs, VCQs */

static int tnis(int (*f)(utofu_tni_id_t **, size_t *))
{
    utofu_tni_id_t **ids = out(sizeof(*ids));
    size_t          *n   = out(sizeof(*n));
    int              code;

    if (ids != NULL) {
        *ids = NULL;
    }
    code = f(ids, n);
    if (code == UTOFU_SUCCESS) {
        for (size_t i = 0; i < *n; i++) {
            if ((*ids)[i] >= 6) {
                die("TNI %u", (*ids)[i]);
            }
        }
        free(*ids);
    }
    return code;
}

static int c_get_onesided_tnis(void) { return tnis(utofu_get_onesided_tnis); }
static int c_get_barrier_tnis(void) { return tnis(utofu_get_barrier_tnis); }

static int c_query_onesided_caps(void)
{
    utofu_tni_id_t tni = small_id(6);

    return utofu_query_onesided_caps(tni, out(sizeof(void *)));
}

static int c_query_barrier_caps(void)
{
    utofu_tni_id_t tni = small_id(6);

    return utofu_query_barrier_caps(tni, out(sizeof(void *)));
}

static int created(int k, int code, const utofu_vcq_hdl_t *h)
{
    if (code == UTOFU_SUCCESS) {
        w.hdl[k] = *h;
        if ((*h == 0) || (utofu_query_vcq_id(*h, &w.id[k]) != UTOFU_SUCCESS)) {
            die("a VCQ that was just created has no ID");
        }
        atomic_store(&w.board->p[w.me].id[k], w.id[k]);
    }
    return code;
}

static int vacant(void)
{
    for (int k = 0; k < LIVE; k++) {
        if (w.hdl[k] == 0) {
            return k;
        }
    }
    return -1;
}

static int c_create_vcq(void)
{
    static const unsigned long kinds[] = {0, 0, 1, 1, 2, 3, 4, 5};
    int              k   = vacant();
    utofu_tni_id_t   tni = small_id(6);
    unsigned long    f   = one_in(10) ? hostile() : kinds[below(8)];
    utofu_vcq_hdl_t *h   = out(sizeof(*h));

    w.bad = w.bad || (f > 7) || ((f & 6) == 6);
    return (k < 0) ? UTOFU_ERR_FULL : created(k, utofu_create_vcq(tni, f, h), h);
}

static int c_create_vcq_with_cmp_id(void)
{
    int              k   = vacant();
    utofu_tni_id_t   tni = small_id(6);
    utofu_cmp_id_t   cmp = small_id(8);
    unsigned long    f   = one_in(10) ? hostile() : below(2);
    utofu_vcq_hdl_t *h   = out(sizeof(*h));

    w.bad = w.bad || (f > 1);
    return (k < 0) ? UTOFU_ERR_FULL : created(k, utofu_create_vcq_with_cmp_id(tni, cmp, f, h), h);
}

static int c_free_vcq(void)
{
    utofu_vcq_hdl_t h    = (vacant() < 0) || one_in(8) ? pick_hdl() : (w.bad =
            true, (utofu_vcq_hdl_t)1 << 63 | rnd() >> 8);
    int             code = utofu_free_vcq(h);

    for (int k = 0; (code == UTOFU_SUCCESS) && (k < LIVE); k++) {
        if (w.hdl[k] == h) {
            unsigned s = (unsigned)below(STALE);

            w.stale_hdl[s] = h;
            w.stale_id[s]  = w.id[k];
            atomic_store(&w.board->p[w.me].id[k], 0);
            w.hdl[k] = 0;
            w.id[k]  = 0;
        }
        if (w.reg[k].hdl == h) {
            w.stale_stadd[below(STALE)] = w.reg[k].stadd;
            atomic_store(&w.board->p[w.me].stadd[k], 0);
            memset(&w.reg[k], 0, sizeof(w.reg[k]));
        }
    }
    return code;
}

static int c_query_vcq_id(void)
{
    utofu_vcq_hdl_t h = pick_hdl();

    return utofu_query_vcq_id(h, out(8));
}

static int c_construct_vcq_id(void)
{
    uint8_t *c   = one_in(16) ? NULL : some_coords(6);
    uint16_t tni = small_id(6), cq = small_id(9), cmp = small_id(8);

    w.bad = w.bad || (c == NULL);
    return utofu_construct_vcq_id(c, tni, cq, cmp, out(8));
}

static int c_set_vcq_id_path(void)
{
    uint64_t *id = out(8);

    if (id != NULL) {
        *id = pick_id();
    }
    return utofu_set_vcq_id_path(id, one_in(4) ? NULL : some_coords(3));
}

static int c_query_vcq_info(void) { return utofu_query_vcq_info(pick_id(), out(6), out(2), out(2), out(2)); }

/* --------------------------------------------------------------- VBGs, paths */

static int c_alloc_vbg(void)
{
    size_t          k = below(LIVE), n = one_in(8) ? hostile() : 1 + below(6), have = (n <= 64) ? n : 64;
    utofu_tni_id_t  tni = small_id(6);
    unsigned long   f = one_in(12) ? hostile() : below(2);
    utofu_vbg_id_t *ids = one_in(16) ? NULL : room(have ? have * 8 : 1);
    int             code;

    /* an array of 64 is passed with sizes that no TNI has: 48 gates, so they must fail */
    w.bad = w.bad || (f > 1) || (n == 0) || (n > 64) || (ids == NULL);
    if (w.nvbg[k] != 0) {
        return UTOFU_ERR_USED;
    }
    code = utofu_alloc_vbg(tni, n, f, ids);
    if (code == UTOFU_SUCCESS) {
        memcpy(w.vbg[k], ids, n * 8);
        w.nvbg[k] = n;
    }
    return code;
}

static int c_free_vbg(void)
{
    size_t          k = below(LIVE), n = w.nvbg[k];
    utofu_vbg_id_t *ids = room(64 * 8);
    int             code;
    bool            whole = !one_in(4);

    memset(ids, 0xff, 64 * 8);
    memcpy(ids, w.vbg[k], n * 8);
    if (!whole) {
        ids[below(8)] = pick_vbg();
        n             = below(64);
    }
    code = utofu_free_vbg(one_in(16) ? NULL : ids, n);
    if (code == UTOFU_SUCCESS) { /* whatever was freed is forgotten: it may be part of several */
        for (size_t j = 0; j < LIVE; j++) {
            for (size_t i = 0; i < w.nvbg[j]; i++) {
                for (size_t m = 0; m < n; m++) {
                    if (w.vbg[j][i] == ids[m]) {
                        w.vbg[j][i] = w.vbg[j][--w.nvbg[j]];
                        i--;
                        break;
                    }
                }
            }
        }
    }
    return code;
}

static int c_set_vbg(void)
{
    size_t                    n = below(5), k = below(LIVE);
    struct utofu_vbg_setting *s = room(n ? n * sizeof(*s) : 1);

    for (size_t i = 0; i < n; i++) {
        s[i].vbg_id         = (i < w.nvbg[k]) ? w.vbg[k][i] : pick_vbg();
        s[i].src_lcl_vbg_id = one_in(3) ? UTOFU_VBG_ID_NULL : pick_vbg();
        s[i].src_rmt_vbg_id = one_in(2) ? UTOFU_VBG_ID_NULL : pick_vbg();
        s[i].dst_lcl_vbg_id = one_in(3) ? UTOFU_VBG_ID_NULL : pick_vbg();
        s[i].dst_rmt_vbg_id = one_in(2) ? UTOFU_VBG_ID_NULL : pick_vbg();
        memset(s[i].dst_path_coords, one_in(3) ? 0 : UTOFU_PATH_COORD_NULL, 3);
        if (one_in(8)) {
            s[i].dst_path_coords[below(3)] = (uint8_t)hostile();
        }
    }
    return utofu_set_vbg(one_in(16) ? NULL : s, n);
}

static int c_query_vbg_info(void) { return utofu_query_vbg_info(pick_vbg(), out(6), out(2), out(2), out(2)); }

static int c_get_path_id(void) { return utofu_get_path_id(pick_id(), one_in(4) ? NULL : some_coords(3), out(1)); }

static int c_get_path_coords(void)
{
    uint64_t        id   = pick_id();
    utofu_path_id_t path = (uint8_t)hostile();

    if (one_in(2)) {
        utofu_get_path_id(id, NULL, &path);
    }
    return utofu_get_path_coords(id, path, out(3));
}

/* -------------------------------------------------------------- registration */

static int registered(int code, int k, utofu_vcq_hdl_t h, size_t size, const uint64_t *s)
{
    if (code == UTOFU_SUCCESS) {
        w.reg[k].hdl   = h;
        w.reg[k].stadd = *s;
        w.reg[k].size  = size;
        atomic_store(&w.board->p[w.me].stadd[k], *s);
    }
    return code;
}

static int no_registration(void)
{
    int k = (int)below(LIVE);

    return (w.reg[k].stadd == 0) ? k : -1;
}

/* A range of a buffer, or one that is not memory of this process */
static void *some_memory(size_t *size, bool *read_only, unsigned align)
{
    int    b   = (int)below(NBUF);
    size_t off = below(BUF_SIZE) / align * align;

    *size      = (one_in(2) ? BUF_SIZE - off : 1 + below(BUF_SIZE - off)) / align * align; /* often up to the guard */
    *read_only = !w.buf[b].writable || one_in(6);
    if (one_in(12)) { /* into the page after the buffer, which can't be touched */
        *size = 2 * 65536 + BUF_SIZE;
        w.bad = true;
    } else if (one_in(12)) {
        static const uint64_t nowhere[] = {0, 1, 256, 4096, 0xffff800000000000ull, ~0ull, ~0ull - 255,
                0x7ffffffffffff000ull};
        w.bad = true;
        return (void *)(uintptr_t)nowhere[below(8)];
    } else if (one_in(12)) {
        *size = (0 - (uint64_t)below(4 * BUF_SIZE)) >> below(8); /* huge, or wraps around; 0 */
        w.bad = true;
    }
    if (*size == 0) {
        w.bad = true;
    }
    return w.buf[b].base + GUARD + off;
}

static int c_reg_mem(void)
{
    int             k = no_registration();
    utofu_vcq_hdl_t h = pick_hdl();
    size_t          size;
    bool            ro;
    void           *addr = some_memory(&size, &ro, 1);
    unsigned long   f = one_in(12) ? hostile() : ro;
    uint64_t       *s = out(8);

    w.bad = w.bad || (f > 1);
    if ((f == 0) && ro) {
        f = 1;
    }
    return (k < 0) ? UTOFU_ERR_FULL : registered(utofu_reg_mem(h, addr, size, f, s), k, h, size, s);
}

static int c_reg_mem_with_stag(void)
{
    int             k = no_registration();
    utofu_vcq_hdl_t h = pick_hdl();
    size_t          size;
    bool            ro;
    void           *addr = some_memory(&size, &ro, one_in(8) ? 1 : 256);
    unsigned        stag = one_in(8) ? (unsigned)hostile() : (unsigned)below(4);
    uint64_t       *s    = out(8);

    w.bad = w.bad || (stag >= 256) || (size % 256) || ((uintptr_t)addr % 256);
    return (k < 0) ? UTOFU_ERR_FULL : registered(utofu_reg_mem_with_stag(h, addr, size, stag, ro, s), k, h, size, s);
}

static int c_query_stadd(void)
{
    uint64_t id   = pick_id();
    unsigned stag = one_in(3) ? (unsigned)hostile() : (unsigned)below(256);

    w.bad = w.bad || (stag >= 256);
    return utofu_query_stadd(id, stag, out(8));
}

static int c_dereg_mem(void)
{
    int             k = (int)below(LIVE), code;
    utofu_vcq_hdl_t h = w.reg[k].hdl;
    uint64_t        s = w.reg[k].stadd;

    if (one_in(4)) {
        h = pick_hdl();
        s = pick_stadd(true, h);
    }
    code = utofu_dereg_mem(h, s, one_in(16) ? hostile() : 0);
    for (int i = 0; (code == UTOFU_SUCCESS) && (i < LIVE); i++) {
        if ((w.reg[i].hdl == h) && (w.reg[i].stadd == s)) { /* one of those that counted */
            w.stale_stadd[below(STALE)] = s;
            atomic_store(&w.board->p[w.me].stadd[i], 0);
            memset(&w.reg[i], 0, sizeof(w.reg[i]));
            break;
        }
    }
    return code;
}

/* ------------------------------------------------------------- communication */

static size_t blocks(void)
{
    static const uint64_t hard[] = {0, 2047, 2048, 2049, ~0ull, 1ull << 58, 1ull << 32, (1ull << 58) + 1};

    return one_in(6) ? hard[below(8)] : 1 + below(20);
}
static size_t stride(void) { return one_in(6) ? hostile() : below(512); }
static size_t mtu(void) { return one_in(6) ? hostile() : 256 * below(9); }
static size_t gap(void) { return one_in(6) ? hostile() : below(256); }
#define CB ((void *)(uintptr_t)rnd())

/* Arguments from left to right: C leaves the order open, a seed must not */
#define HEAD  utofu_vcq_hdl_t h = pick_hdl(); uint64_t id = pick_id();
#define TAIL  uint64_t e = pick_edata(); unsigned long f = pick_flags();
#define PG    HEAD uint64_t l = pick_stadd(true, h), r = pick_remote_stadd(id); size_t n = pick_length(MAX_PUTGET); TAIL
#define STR   size_t s = stride(), b = blocks();
#define GAP   size_t m = mtu(), g = gap();
#define DESC  bool odd = one_in(16); unsigned char *d = one_in(16) ? NULL : w.desc + (odd ? 1 + below(7) : 0); \
              size_t *z = out(sizeof(*z)); w.bad = w.bad || odd || (d == NULL); if (odd && (d == NULL)) { odd = false; }

static int prepared(int code, utofu_vcq_hdl_t h, const size_t *z)
{
    if (code == UTOFU_SUCCESS) {
        if ((*z == 0) || (*z > DESC_ROOM)) {
            die("a descriptor of %zu bytes", *z);
        }
        w.desc_size = *z;
        w.desc_hdl  = h;
    }
    return code;
}

#define PUTGET(name) \
    static int c_##name(void) { PG return utofu_##name(h, id, l, r, n, e, f, CB); } \
    static int c_##name##_gap(void) { PG GAP return utofu_##name##_gap(h, id, l, r, n, e, f, m, g, CB); } \
    static int c_##name##_stride(void) { PG STR return utofu_##name##_stride(h, id, l, r, n, s, b, e, f, CB); } \
    static int c_##name##_stride_gap(void) \
    { PG STR GAP return utofu_##name##_stride_gap(h, id, l, r, n, s, b, e, f, m, g, CB); } \
    static int c_prepare_##name(void) { PG DESC \
            return prepared(utofu_prepare_##name(h, id, l, r, n, e, f, d, z), h, z); } \
    static int c_prepare_##name##_gap(void) \
    { PG GAP DESC return prepared(utofu_prepare_##name##_gap(h, id, l, r, n, e, f, m, g, d, z), h, z); } \
    static int c_prepare_##name##_stride(void) \
    { PG STR DESC return prepared(utofu_prepare_##name##_stride(h, id, l, r, n, s, b, e, f, d, z), h, z); } \
    static int c_prepare_##name##_stride_gap(void) \
    { PG STR GAP DESC return prepared(utofu_prepare_##name##_stride_gap(h, id, l, r, n, s, b, e, f, m, g, d, \
            z), h, z); }
PUTGET(put)
PUTGET(get)

/* exactly the data that the length names: a byte read beyond it is found */
#define PIGGY HEAD uint64_t r = pick_remote_stadd(id); size_t n = pick_length(32); bool none = (n > 0) && one_in(16); \
              void *p = none ? NULL : room(n ? (n > 64 ? 64 : n) : 1); w.bad = w.bad || none; TAIL
static int c_put_piggyback(void) { PIGGY return utofu_put_piggyback(h, id, p, r, n, e, f, CB); }
static int c_prepare_put_piggyback(void)
{ PIGGY DESC return prepared(utofu_prepare_put_piggyback(h, id, p, r, n, e, f, d, z), h, z); }

#define PIGGY8 HEAD uint64_t v = rnd(), r = pick_remote_stadd(id); size_t n = one_in(2) ? 8 : pick_length(8); TAIL
static int c_put_piggyback8(void) { PIGGY8 return utofu_put_piggyback8(h, id, v, r, n, e, f, CB); }
static int c_prepare_put_piggyback8(void)
{ PIGGY8 DESC return prepared(utofu_prepare_put_piggyback8(h, id, v, r, n, e, f, d, z), h, z); }

static enum utofu_armw_op armw_op(void)
{
    int op = one_in(10) ? (int)hostile() : (int)(1 + below(5));

    w.bad = w.bad || (op < 1) || (op > 5);
    return (enum utofu_armw_op)op;
}
#define WORD HEAD uint64_t u = hostile(), v = hostile(), r = pick_remote_stadd(id); TAIL (void)u; (void)v;
#define ARMW(n, t) \
    static int c_armw##n(void) \
    { enum utofu_armw_op o = armw_op(); WORD return utofu_armw##n(h, id, o, (t)u, r, e, f, CB); } \
    static int c_cswap##n(void) { WORD return utofu_cswap##n(h, id, (t)u, (t)v, r, e, f, CB); } \
    static int c_prepare_armw##n(void) \
    { enum utofu_armw_op o = armw_op(); WORD DESC \
            return prepared(utofu_prepare_armw##n(h, id, o, (t)u, r, e, f, d, z), h, z); } \
    static int c_prepare_cswap##n(void) \
    { WORD DESC return prepared(utofu_prepare_cswap##n(h, id, (t)u, (t)v, r, e, f, d, z), h, z); }
ARMW(4, uint32_t)
ARMW(8, uint64_t)

static int c_nop(void) { utofu_vcq_hdl_t h = pick_hdl(); unsigned long f = pick_flags(); return utofu_nop(h, f, CB); }
static int c_prepare_nop(void)
{ utofu_vcq_hdl_t h = pick_hdl(); unsigned long f = pick_flags(); DESC
        return prepared(utofu_prepare_nop(h, f, d, z), h, z); }

/* What was prepared last: whole, damaged, cut, for another VCQ, from an odd address */
static int c_post_toq(void)
{
    utofu_vcq_hdl_t h = one_in(3) ? pick_hdl() : w.desc_hdl;
    size_t          n = w.desc_size, keep = (n < 4096) ? n : 4096, odd = 0;
    unsigned char  *d = room(keep + 8), *copy = d;

    n = keep;
    memcpy(d, w.desc, n);
    switch (below(6)) {
    case 0:
        for (unsigned i = 1 + (unsigned)below(3); (n > 0) && (i > 0); i--) {
            d[below(n)] ^= (unsigned char)(1u << below(8));
        }
        break;
    case 1:
        n = below(n + 1);
        break;
    case 2:
        for (size_t i = 0; i < n; i++) {
            d[i] = (unsigned char)rnd();
        }
        break;
    case 3:
        odd = 1 + below(7);
        memmove(d + odd, d, n);
        copy = d + odd;
        break;
    case 4:
        n = one_in(2) ? 0 : n;
        break;
    default:
        break;
    }
    w.bad = w.bad || ((n > 0) && odd);
    return utofu_post_toq(h, ((n > 0) && one_in(16)) ? (w.bad = true, NULL) : copy, n, CB);
}

/* ---------------------------------------------------------------- completion */

#define POLL utofu_vcq_hdl_t h = pick_hdl(); unsigned long f = pick_poll_flags();
static int c_poll_tcq(void) { POLL return utofu_poll_tcq(h, f, out(sizeof(void *))); }
static int c_poll_mrq(void) { POLL return utofu_poll_mrq(h, f, out(sizeof(struct utofu_mrq_notice))); }
static int c_query_num_unread_tcq(void) { utofu_vcq_hdl_t h = pick_hdl();
        return utofu_query_num_unread_tcq(h, out(sizeof(size_t))); }
static int c_query_num_unread_mrq(void) { utofu_vcq_hdl_t h = pick_hdl();
        return utofu_query_num_unread_mrq(h, out(sizeof(size_t))); }

/* ------------------------------------------------------------------- barrier */

static enum utofu_reduce_op reduce_op(void)
{
    int op = one_in(10) ? (int)hostile() : (int)(1 + below(8));

    w.bad = w.bad || (op < 1) || (op > 8);
    return (enum utofu_reduce_op)op;
}
#define REDUCE \
    uint64_t             id = pick_vbg(); \
    enum utofu_reduce_op o  = reduce_op(); \
    size_t               n  = one_in(8) ? hostile() : below(8); \
    unsigned long        f  = pick_poll_flags(); \
    void                *v  = room(n ? (n > 16 ? 16 : n) * 8 : 1); \
    w.bad = w.bad || (n > 16);
static int c_barrier(void) { uint64_t id = pick_vbg(); return utofu_barrier(id, pick_poll_flags()); }
static int c_reduce_uint64(void) { REDUCE return utofu_reduce_uint64(id, o, one_in(16) ? NULL : v, n, f); }
static int c_reduce_double(void) { REDUCE return utofu_reduce_double(id, o, one_in(16) ? NULL : v, n, f); }
static int c_poll_barrier(void) { uint64_t id = pick_vbg(); return utofu_poll_barrier(id, pick_poll_flags()); }
static int c_poll_reduce_uint64(void) { uint64_t id = pick_vbg(); unsigned long f = pick_poll_flags();
        return utofu_poll_reduce_uint64(id, f, room(128)); }
static int c_poll_reduce_double(void) { uint64_t id = pick_vbg(); unsigned long f = pick_poll_flags();
        return utofu_poll_reduce_double(id, f, room(128)); }

/* ----------------------------------------------------------------- auxiliary */

static int versions(void (*f)(int *, int *))
{
    int *a = room(4), *b = room(4);

    f(a, b);
    return UTOFU_SUCCESS;
}
static int c_query_tofu_version(void) { return versions(utofu_query_tofu_version); }
static int c_query_utofu_version(void) { return versions(utofu_query_utofu_version); }
static int c_query_my_coords(void) { return utofu_query_my_coords(out(6)); }

/* --------------------------------------------------------------------- table */

#define F(n, weight) {"utofu_" #n, c_##n, weight}
static const struct {
    const char *name;
    int       (*call)(void);
    unsigned    weight;
} table[] = {
    F(get_onesided_tnis, 1), F(get_barrier_tnis, 1), F(query_onesided_caps, 1), F(query_barrier_caps, 1),
    F(create_vcq, 8), F(create_vcq_with_cmp_id, 4), F(free_vcq, 4), F(query_vcq_id, 2), F(construct_vcq_id, 2),
    F(set_vcq_id_path, 2), F(query_vcq_info, 2), F(alloc_vbg, 4), F(free_vbg, 3), F(set_vbg, 4), F(query_vbg_info, 2),
    F(get_path_id, 2), F(get_path_coords, 2), F(reg_mem, 12), F(reg_mem_with_stag, 6), F(query_stadd, 2),
            F(dereg_mem, 5),
    F(put, 20), F(put_gap, 8), F(put_stride, 8), F(put_stride_gap, 6), F(put_piggyback, 16), F(put_piggyback8, 20),
    F(get, 20), F(get_gap, 8), F(get_stride, 8), F(get_stride_gap, 6), F(armw4, 8), F(armw8, 8), F(cswap4, 6),
            F(cswap8, 6),
    F(nop, 4), F(prepare_put, 6), F(prepare_put_gap, 3), F(prepare_put_stride, 4), F(prepare_put_stride_gap, 3),
    F(prepare_put_piggyback, 4), F(prepare_put_piggyback8, 4), F(prepare_get, 6), F(prepare_get_gap, 3),
    F(prepare_get_stride, 4), F(prepare_get_stride_gap, 3), F(prepare_armw4, 3), F(prepare_armw8, 3),
            F(prepare_cswap4, 3),
    F(prepare_cswap8, 3), F(prepare_nop, 3), F(post_toq, 30), F(poll_tcq, 10), F(poll_mrq, 10),
            F(query_num_unread_tcq, 3),
    F(query_num_unread_mrq, 3), F(barrier, 4), F(reduce_uint64, 4), F(reduce_double, 4), F(poll_barrier, 4),
    F(poll_reduce_uint64, 4), F(poll_reduce_double, 4), F(query_tofu_version, 1), F(query_utofu_version, 1),
    F(query_my_coords, 1),
};
#define FUNCTIONS (sizeof(table) / sizeof(table[0]))
_Static_assert(FUNCTIONS == 65, "every function of utofu.h");

static uint64_t    counts[FUNCTIONS];
static const char *names[FUNCTIONS];

unsigned fuzz_functions(void)
{
    return FUNCTIONS;
}

const uint64_t *fuzz_counts(const char *const **names_p)
{
    for (unsigned i = 0; i < FUNCTIONS; i++) {
        names[i] = table[i].name;
    }
    *names_p = names;
    return counts;
}

void fuzz_drain(void)
{
    struct utofu_mrq_notice notice;
    void                   *cbdata;
    int                     code;

    w.bad = false;
    for (int k = 0; k < LIVE; k++) {
        if (w.hdl[k] == 0) {
            continue;
        }
        for (int i = 0; (i < 10000) && ((code = utofu_poll_tcq(w.hdl[k], 0, &cbdata)) != UTOFU_ERR_NOT_FOUND); i++) {
            check_code("utofu_poll_tcq", code);
        }
        for (int i = 0; (i < 100000) && ((code = utofu_poll_mrq(w.hdl[k], 0, &notice)) != UTOFU_ERR_NOT_FOUND); i++) {
            check_code("utofu_poll_mrq", code);
        }
    }
    atomic_fetch_add(&w.board->p[w.me].polls, 1);
}

void fuzz_one(void)
{
    static unsigned total;
    unsigned        pick, i;
    int             code;

    for (i = 0; (total == 0) && (i < FUNCTIONS); i++) {
        counts[i] = 0;
    }
    if (total == 0) {
        for (i = 0; i < FUNCTIONS; i++) {
            total += table[i].weight;
        }
    }
    pick = (unsigned)below(total);
    for (i = 0; pick >= table[i].weight; i++) {
        pick -= table[i].weight;
    }
    w.bad = false;
    w.calls++;
    code = table[i].call();
    check_code(table[i].name, code);
    counts[i] += code == UTOFU_SUCCESS;
    outs_free();
}
