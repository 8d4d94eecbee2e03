/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_windows.c - many registrations of the same files, read-only and writable, that come and go: what peers have mapped
 * of a file stays as long as one of them is there, and no longer.
 */
#include "harness.h"

#include "own.h"

#include <sys/mman.h>
#include <unistd.h>

#define PAGE     4096u
#define PAGES    16u
#define FILES    16u
#define WINDOWS  24u
#define PART     (1u << 20)
#define POOL     "emu-windows-pool"
#define READONLY UTOFU_REG_MEM_FLAG_READ_ONLY

/* One of rank 1's registrations, which rank 0 knows of */
struct window {
    bool          there, readonly;
    unsigned      file, vcq;
    size_t        off, size; /* in the file */
    utofu_stadd_t stadd;
};

struct files {
    struct conf_vcq vcq[2];
    struct conf_mem mem[FILES]; /* of rank 1 */
    struct window   window[WINDOWS];
    unsigned        in_use[FILES];
    uint64_t        random; /* the same in both ranks */
    uint64_t       *word;   /* of rank 0 */
    utofu_stadd_t   here;
};

static unsigned choose(struct files *f, unsigned n)
{
    f->random = f->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(f->random >> 33) % n;
}

static void file_make(struct files *f, unsigned i)
{
    static const enum conf_kind kinds[] = {CONF_MEM_MEMFD, CONF_MEM_MEMFD, CONF_MEM_SHM, CONF_MEM_ANON,
                                           CONF_MEM_ANON_SHARED};

    if (conf_rank == 1) {
        conf_mem_alloc(&f->mem[i], kinds[i % CONF_LEN(kinds)], PAGES * PAGE);
        memset(f->mem[i].addr, 0, PAGES * PAGE);
    }
}

static void window_make(struct files *f, struct window *w)
{
    utofu_stadd_t all[2];

    w->file     = choose(f, FILES);
    w->vcq      = choose(f, 2);
    w->readonly = choose(f, 3) == 0;
    w->off      = choose(f, PAGES) * PAGE + choose(f, 2) * 8;
    w->size     = 8 * (1 + choose(f, (unsigned)(PAGES * PAGE - w->off) / 8));
    if (conf_rank == 1) {
        w->stadd = conf_reg(&f->vcq[w->vcq], f->mem[w->file].addr + w->off, w->size, w->readonly ? READONLY : 0);
    }
    conf_exchange(&w->stadd, sizeof(w->stadd), all);
    w->stadd = all[1];
    w->there = true;
    f->in_use[w->file]++;
}

static void window_end(struct files *f, struct window *w)
{
    if (conf_rank == 1) {
        conf_dereg(&f->vcq[w->vcq], w->stadd);
    }
    w->there = false;
    f->in_use[w->file]--;
}

static void window_use(struct files *f, const struct window *w, uint64_t value)
{
    struct conf_vcq *vcq = &f->vcq[0];
    utofu_vcq_id_t   id  = f->vcq[w->vcq].peer[1];
    size_t           at  = 8 * (size_t)choose(f, (unsigned)(w->size / 8));
    bool             get = w->readonly || choose(f, 2);
    uint64_t        *word = (conf_rank == 1) ? (uint64_t *)(void *)(f->mem[w->file].addr + w->off + at) : f->word;

    if (get) {
        if (conf_rank == 1) {
            *word = value;
        }
        conf_barrier();
    }
    if (conf_rank == 0) {
        if (get) {
            *word = 0;
            CONF_POST(vcq->hdl, utofu_get(vcq->hdl, id, f->here, w->stadd + at, 8, 1, CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(vcq, UTOFU_MRQ_TYPE_LCL_GET, id, 1, NULL);
        } else {
            *word = value;
            CONF_POST(vcq->hdl, utofu_put(vcq->hdl, id, f->here, w->stadd + at, 8, 1, CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(vcq, UTOFU_MRQ_TYPE_LCL_PUT, id, 1, NULL);
        }
    }
    conf_barrier();
    CONF_CHECK((*word == value) || (get == (conf_rank == 1)), "%s of file %u, %s: 0x%llx instead of 0x%llx",
               get ? "get" : "put", w->file, w->readonly ? "read-only" : "writable", (unsigned long long)*word,
               (unsigned long long)value);
}

CONF_TEST("windows", windows_come_and_go, 2, "of files that are registered read-only and writable, here and there, each "
                                             "registration is reached while it is there")
{
    struct files f = {.random = 1};

    conf_timeout(120);
    conf_vcq_open(&f.vcq[0], 0, 0);
    conf_vcq_open(&f.vcq[1], 1, 0);
    f.word = calloc(1, sizeof(*f.word));
    f.here = conf_reg(&f.vcq[0], f.word, sizeof(*f.word), 0);
    for (unsigned i = 0; i < FILES; i++) {
        file_make(&f, i);
    }
    for (uint64_t step = 1; step <= 12000; step++) {
        struct window *w    = &f.window[choose(&f, WINDOWS)];
        unsigned       what = choose(&f, 4), i = choose(&f, FILES);

        if (!w->there) {
            window_make(&f, w);
        } else if (what == 0) {
            window_end(&f, w);
        } else {
            window_use(&f, w, step);
        }
        if (f.in_use[i] == 0) {
            if (conf_rank == 1) {
                conf_mem_free(&f.mem[i]);
            }
            file_make(&f, i);
        }
    }
    conf_barrier();
    conf_dereg(&f.vcq[0], f.here);
    conf_vcq_close(&f.vcq[0]);
    conf_vcq_close(&f.vcq[1]);
}

static utofu_stadd_t given(utofu_stadd_t mine)
{
    utofu_stadd_t all[2];

    conf_exchange(&mine, sizeof(mine), all);
    return all[1];
}

static char *map_pool(int fd, size_t begin, size_t end)
{
    char *base = mmap(NULL, end - begin, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)begin);

    CONF_CHECK(base != MAP_FAILED, "mmap");
    return base;
}

/* Rank 1 has a pool that it makes longer, or (grows: no) registers writable and read-only, and then another.  Rank 0
 * gets from its beginning, and puts to its end. */
static void pools(bool grows)
{
    struct conf_vcq vcq;
    uint64_t        word = 7;
    utofu_stadd_t   begin = 0, end = 0, here;

    conf_vcq_open(&vcq, 0, 0);
    here = conf_reg(&vcq, &word, sizeof(word), 0);
    for (unsigned i = 0; i < 50; i++) {
        char *pool = NULL, *more = NULL;
        int   fd = -1;

        if (conf_rank == 1) {
            fd = memfd_create(POOL, MFD_CLOEXEC);
            CONF_CHECK((fd >= 0) && !ftruncate(fd, grows ? PART : 2 * PART), "memfd");
            if (!grows) {
                more = map_pool(fd, PART, 2 * PART);
                end  = conf_reg(&vcq, more, PART, 0);
            }
            pool  = map_pool(fd, 0, PART);
            begin = conf_reg(&vcq, pool, PART, grows ? 0 : READONLY);
        }
        begin = given(begin);
        if (conf_rank == 0) {
            CONF_POST(vcq.hdl, utofu_get(vcq.hdl, vcq.peer[1], here, begin, 8, 2, CONF_LMRQ, NULL));
            CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_LCL_GET, vcq.peer[1], 2, NULL);
        }
        conf_barrier();
        if ((conf_rank == 1) && grows) {
            CONF_CHECK(!ftruncate(fd, 2 * PART), "ftruncate");
            more = map_pool(fd, PART, 2 * PART);
            end  = conf_reg(&vcq, more, PART, 0);
        }
        end = given(end);
        if (conf_rank == 0) {
            conf_put_word(&vcq, vcq.peer[1], here, end);
        }
        conf_barrier();
        if (conf_rank == 1) {
            conf_dereg(&vcq, begin);
            conf_dereg(&vcq, end);
            munmap(pool, PART);
            munmap(more, PART);
            close(fd);
        }
    }
    if (conf_rank == 0) {
        unsigned n = own_mappings(POOL);

        CONF_CHECK(n <= 4, "%u mappings of files that nobody has any more", n);
        conf_dereg(&vcq, here);
    }
    conf_barrier();
    conf_vcq_close(&vcq);
}

CONF_TEST("windows", pools_that_grow, 2, "a file that was made longer, and is gone, is mapped no more")
{
    pools(true);
}

CONF_TEST("windows", pools_of_both_kinds, 2, "and so is one that was registered read-only and writable")
{
    pools(false);
}
