/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_main.c - a kernel's processes, threads, phases and output.
 *
 * Usage: perf_LAYER --test=NAME [--size=BYTES] ...; perf_options.c has the options.
 * --list prints the tests of the layer, --facts the library under it.  Rank 0 prints
 * one JSON object per line: of each repeat, and of each step of tests that have
 * several.
 */
#include "perf.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/time.h>
#include <unistd.h>

#define TRIAL        64   /* iterations of the first trial */
#define TRIAL_ENOUGH 3e-3 /* seconds: it is long enough to tell */
#define MOST         20000000
#define SHORT        200e-9 /* seconds: shorter operations are timed ... */
#define SHORT_BATCH  16     /* ... so many at a time, as ticks may be 10 ns long */

static const struct perf_test *test;

void perf_fail(int code, const char *format, ...)
{
    char    text[2048];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "perf_%s %s: %s\n", perf_layer.name, perf_options.test, text);
    fflush(stderr);
    _exit(code);
}

void perf_fill(uint8_t *data, size_t size, unsigned phase)
{
    for (size_t i = 0; i < size; ++i) {
        data[i] = perf_pattern(phase, i);
    }
}

void perf_verify(const uint8_t *data, size_t size, unsigned phase, const char *what)
{
    for (size_t i = 0; i < size; ++i) {
        PERF_CHECK(data[i] == perf_pattern(phase, i),
                   "%s: byte %zu of %zu is 0x%02x, not 0x%02x", what, i, size,
                   data[i], perf_pattern(phase, i));
    }
}

uint64_t perf_meet(struct perf_ctx *ctx, uint64_t value)
{
    struct perf_proc *proc = ctx->proc;
    unsigned         mine  = __atomic_load_n(&proc->generation, __ATOMIC_ACQUIRE);
    bool             wait  = !perf_layer.serves, is_new = true;

    __atomic_add_fetch(&proc->arrived, 1, __ATOMIC_ACQ_REL);
    for (unsigned i = 0;; ++i) {
        if (ctx->thread != 0) {
            if (__atomic_load_n(&proc->generation, __ATOMIC_ACQUIRE) != mine) {
                return proc->value;
            }
        } else if (!is_new || (__atomic_load_n(&proc->arrived, __ATOMIC_ACQUIRE) ==
                               (unsigned)proc->opt->threads)) {
            /* looking at sockets takes longer than progress */
            if (is_new || wait || (i % 64 == 0)) {
                if (perf_boot.step(proc, &value, is_new, wait)) {
                    break;
                }
                is_new = false;
            }
        }
        if (perf_layer.serves) {
            perf_layer.progress(ctx);
            perf_spin(ctx);
        } else {
            sched_yield();
        }
    }
    proc->value   = value;
    proc->arrived = 0;
    __atomic_store_n(&proc->generation, mine + 1, __ATOMIC_RELEASE);
    return value;
}

void perf_part(struct perf_ctx *ctx)
{
    uint64_t value  = 0;
    bool     is_new = true;

    while (!perf_boot.step(ctx->proc, &value, is_new, false)) {
        is_new = false;
        perf_layer.progress(ctx);
        perf_spin(ctx);
    }
}

/* ------------------------------------------------------------------ tests */

enum perf_verb perf_verb(const char *name)
{
    if (!strncmp(name, "put_", 4) || (strstr(name, "pingpong") != NULL)) {
        return PERF_VERB_PUT;
    }
    if (!strncmp(name, "get_", 4)) {
        return PERF_VERB_GET;
    }
    return (!strncmp(name, "am_", 3) || !strcmp(name, "many_to_one")) ?
                   PERF_VERB_AM : PERF_VERB_OTHER;
}

static bool has_test(const struct perf_test *t)
{
    return t->is_there();
}

static void list_tests(void)
{
    const struct perf_test *lists[] = {perf_tests, perf_tests_more};

    for (int i = 0; i < 2; ++i) {
        for (const struct perf_test *t = lists[i]; t->name != NULL; ++t) {
            if (has_test(t)) {
                printf("%s\n", t->name);
            }
        }
    }
}

static void find_test(void)
{
    const struct perf_test *lists[] = {perf_tests, perf_tests_more};

    for (int i = 0; i < 2; ++i) {
        for (const struct perf_test *t = lists[i]; t->name != NULL; ++t) {
            if (!strcmp(t->name, perf_options.test)) {
                test = t;
            }
        }
    }
    PERF_CHECK(test != NULL, "there is no such test");
    if (!has_test(test)) {
        PERF_ABSENT("the layer %s has no such test", perf_layer.name);
    }
    PERF_CHECK(perf_options.size >= test->min_size, "the size is at least %zu bytes",
               test->min_size);
    if (!test->any_window) {
        perf_options.window = 1;
    }
    PERF_CHECK((perf_options.tnis == 1) || (perf_options.threads == 1),
               "several TNIs go with one thread");
    PERF_CHECK((perf_options.tnis == 1) ||
               (!strcmp(test->name, "put_bw") && !strcmp(perf_layer.name, "utofu")),
               "several TNIs are for put_bw of the layer utofu");
    PERF_CHECK((test->procs == 0) || (perf_options.procs == test->procs) ||
               (perf_options.tnis > 1), "the test has %d processes", test->procs);
}

/* ----------------------------------------------------------------- output */

static int print_facts(struct perf_proc *proc)
{
    if (perf_layer.start != NULL) {
        perf_layer.start(proc);
    }
    printf("{\"layer\":\"%s\"", perf_layer.name);
    if (perf_layer.facts != NULL) {
        perf_layer.facts(proc, stdout);
    }
    printf("}\n");
    if (perf_layer.stop != NULL) {
        perf_layer.stop(proc);
    }
    return 0;
}

static void print_times(const struct perf_log *log, double scale)
{
    static const struct {
        const char *name;
        double     q;
    } q[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}};

    printf("\"latency\":");
    if (log->count == 0) {
        printf("null");
        return;
    }
    printf("{");
    for (size_t i = 0; i < sizeof(q) / sizeof(q[0]); ++i) {
        printf("\"%s\":%.6g,", q[i].name, perf_log_quantile(log, q[i].q) * scale);
    }
    printf("\"mean\":%.6g,\"min\":%.6g,\"max\":%.6g}",
           (double)log->sum / (double)log->count * scale, (double)log->min * scale,
           (double)log->max * scale);
}

/* One line per step: what the threads of rank 0 measured. */
static void print_result(struct perf_proc *proc, long iterations, long warmup)
{
    struct perf_log *log  = malloc(sizeof(*log));
    struct perf_ctx *main = &proc->threads[0];
    double          tick  = perf_tick_seconds(), rate = 0, scale;
    int             step, t;

    PERF_CHECK(log != NULL, "no memory");
    scale = tick * main->scale * (test->is_one_way ? 0.5 : 1);
    for (t = 0; t < proc->opt->threads; ++t) {
        if (proc->threads[t].elapsed > 0) {
            rate += (double)proc->threads[t].operations /
                    ((double)proc->threads[t].elapsed * tick);
        }
    }
    for (step = 0; (step == 0) || ((step < PERF_STEPS) && test->steps[step]);
         ++step) {
        perf_log_clear(log);
        for (t = 0; t < proc->opt->threads; ++t) {
            perf_log_merge(log, &proc->threads[t].logs[step]);
        }
        printf("{\"test\":\"%s\",\"size\":%zu,\"iterations\":%ld,\"warmup\":%ld,"
               "\"window\":%d,\"batch\":%ld,\"processes\":%d,\"threads\":%d,"
               "\"oversubscribed\":%s,", test->name, perf_options.size, iterations,
               warmup, perf_options.window, main->batch, proc->size,
               perf_options.threads,
               proc->yields ? "true" : "false");
        if (test->steps[0] != NULL) {
            printf("\"step\":\"%s\",", test->steps[step]);
        } else {
            printf("\"seconds\":%.6g,\"rate\":%.8g,",
                   (double)main->elapsed * tick, rate);
        }
        print_times(log, scale);
        printf(",\"counters\":{");
        if (perf_layer.counters != NULL) {
            perf_layer.counters(main, stdout);
        }
        printf("}");
        if (perf_layer.facts != NULL) {
            perf_layer.facts(proc, stdout);
        }
        printf("}\n");
    }
    fflush(stdout);
    free(log);
}

/* ----------------------------------------------------------------- phases */

/* CPUs to run on: one that is named twice is one. */
static int num_cpus(void)
{
    const struct perf_options *o = &perf_options;
    cpu_set_t                 set;
    int                       i;

    CPU_ZERO(&set);
    for (i = 0; i < o->num_cpus; ++i) {
        CPU_SET(o->cpus[i], &set);
    }
    if (o->num_cpus == 0) {
        sched_getaffinity(0, sizeof(set), &set);
    }
    return CPU_COUNT(&set);
}

static void pin(const struct perf_ctx *ctx)
{
    const struct perf_options *o = ctx->opt;
    cpu_set_t                 set;
    int                       n;

    if (o->num_cpus == 0) {
        return;
    }
    n = (ctx->rank * o->threads + ctx->thread) % o->num_cpus;
    CPU_ZERO(&set);
    CPU_SET(o->cpus[n], &set);
    PERF_CHECK(sched_setaffinity(0, sizeof(set), &set) == 0, "CPU %d: %s",
               o->cpus[n], strerror(errno));
}

/* Everybody runs n iterations, and verifies what came. */
static void phase(struct perf_ctx *ctx, long n)
{
    ++ctx->phase;
    for (int i = 0; i < PERF_STEPS; ++i) {
        perf_log_clear(&ctx->logs[i]);
    }
    perf_fill(ctx->memory + ctx->out, ctx->opt->size, ctx->phase);
    ctx->elapsed = 0;
    ctx->planned = n;
    perf_meet(ctx, 0);
    test->run(ctx, n);
    perf_layer.flush(ctx);
    perf_meet(ctx, 0);
    if (test->check != NULL) {
        test->check(ctx);
    }
}

/* Of the last phase, as it would be without interruptions: by the median, but no
 * less than an eighth of what it took. */
static double calm_seconds(const struct perf_ctx *ctx)
{
    const struct perf_log *log = &ctx->logs[0];
    double                tick = perf_tick_seconds(), calm;
    double                took = (double)ctx->elapsed * tick;

    if ((log->count == 0) || (test->steps[0] != NULL)) {
        return took;
    }
    calm = perf_log_quantile(log, 0.5) * tick * (double)log->count;
    calm = (calm > took / 8) ? calm : took / 8;
    return (calm < took) ? calm : took;
}

static long choose_iterations(struct perf_ctx *ctx)
{
    double seconds, wanted = 0;
    long   n = TRIAL;

    if (ctx->opt->iterations > 0) {
        return ctx->opt->iterations;
    }
    phase(ctx, 2); /* connections are made by the first operations */
    for (;;) {
        phase(ctx, n);
        seconds = calm_seconds(ctx);
        if (seconds < TRIAL_ENOUGH) {
            wanted = n * 10.0;
        } else {
            wanted = ctx->opt->seconds / seconds * n;
        }
        wanted = (wanted < 10) ? 10 : (wanted > MOST) ? MOST : wanted;
        /* rank 0 decides; its sign tells that this is the number */
        n = (long)perf_meet(ctx, (uint64_t)(long)(
                (seconds < TRIAL_ENOUGH) && (wanted < MOST) ? wanted : -wanted));
        if (n < 0) {
            return -n;
        }
    }
}

/* After a phase, for those that follow. */
static void choose_batch(struct perf_ctx *ctx)
{
    double seconds = (double)ctx->elapsed * perf_tick_seconds();

    if ((seconds > 0) && (seconds < SHORT * (double)ctx->operations)) {
        ctx->least_batch = SHORT_BATCH;
    }
}

static void *run_thread(void *arg)
{
    struct perf_ctx *ctx = arg;
    long            n, warmup, i;

    pin(ctx);
    perf_meet(ctx, 0); /* endpoints are there */
    n      = choose_iterations(ctx);
    warmup = (ctx->opt->warmup >= 0) ? ctx->opt->warmup : n / 10 + 1;
    if (warmup > 0) {
        phase(ctx, warmup);
        choose_batch(ctx);
    }
    for (i = 0; i < ctx->opt->repeats; ++i) {
        phase(ctx, n);
        perf_meet(ctx, 0); /* all have written down their times */
        if ((ctx->rank == 0) && (ctx->thread == 0)) {
            print_result(ctx->proc, n, warmup);
        }
    }
    perf_meet(ctx, 0);
    return NULL;
}

/* Open all threads' things, and tell all their addresses. */
static void open_all(struct perf_proc *proc)
{
    int    t, r, threads = proc->opt->threads;
    size_t span = (proc->opt->size + PERF_PAGE - 1) & ~(size_t)(PERF_PAGE - 1);
    size_t each = (size_t)threads * PERF_BLOB, length;
    char   *mine = calloc(1, each), *all = calloc((size_t)proc->size, each);

    proc->threads = aligned_alloc(256, ((sizeof(*proc->threads) + 255) & ~255ul) *
                                               (size_t)threads + 256);
    PERF_CHECK(mine && all && proc->threads, "no memory");
    memset(proc->threads, 0, sizeof(*proc->threads) * (size_t)threads);
    for (t = 0; t < threads; ++t) {
        struct perf_ctx *ctx = &proc->threads[t];

        ctx->proc       = proc;
        ctx->opt        = proc->opt;
        ctx->rank       = proc->rank;
        ctx->thread     = t;
        ctx->comp.count = 1;
        ctx->out        = span;
        ctx->words      = 2 * span;
        ctx->table      = ctx->words + PERF_PAGE;
        ctx->length     = ctx->table + PERF_TABLE * sizeof(uint64_t);
        pin(ctx); /* memory comes from near this CPU */
        perf_layer.open(ctx);
        memset(ctx->memory, 0, ctx->length);
        length = perf_layer.address(ctx, mine + (size_t)t * PERF_BLOB);
        PERF_CHECK(length <= PERF_BLOB, "an address of %zu bytes", length);
    }
    perf_boot.allgather(proc, mine, all, each);
    for (t = 0; t < threads; ++t) {
        for (r = 0; r < proc->size; ++r) {
            perf_layer.connect(&proc->threads[t], r,
                               all + (size_t)r * each + (size_t)t * PERF_BLOB);
        }
    }
    free(mine);
    free(all);
}

static void set_coords(const struct perf_proc *proc)
{
    const char *at = proc->opt->coords;
    char       text[64];
    size_t     length;

    if (at == NULL) {
        return;
    }
    for (int i = 0; i < proc->rank; ++i) {
        at = strchr(at, ';');
        PERF_CHECK(at++ != NULL, "--coords: not for each of %d processes",
                   proc->size);
    }
    length = strcspn(at, ";");
    PERF_CHECK(length < sizeof(text), "--coords: %s", at);
    memcpy(text, at, length);
    text[length] = '\0';
    setenv("UTOFU_EMU_COORDS", text, 1);
}

static void on_alarm(int number)
{
    static const char text[] = "the run did not end within its limit of time\n";

    (void)number;
    if (write(2, text, sizeof(text) - 1) < 0) { /* nothing can be done */
    }
    _exit(1);
}

int main(int argc, char **argv)
{
    static struct perf_proc proc;
    struct itimerval        timer = {0};
    pthread_t               threads[64];
    int                     i, active, code;

    if ((argc == 2) && !strcmp(argv[1], "--list")) {
        list_tests();
        return 0;
    }
    proc.opt = &perf_options;
    if ((argc == 2) && !strcmp(argv[1], "--facts")) {
        perf_options.test = "--facts";
        return print_facts(&proc);
    }
    for (i = 1; i < argc; ++i) {
        perf_parse_option(argv[i]);
    }
    find_test();
    signal(SIGALRM, on_alarm);
    timer.it_value.tv_sec  = (time_t)perf_options.limit;
    timer.it_value.tv_usec = (suseconds_t)((perf_options.limit -
                                            (double)timer.it_value.tv_sec) * 1e6);
    setitimer(ITIMER_REAL, &timer, NULL);
    perf_boot.start(&proc);               /* forks, and a child has no timer */
    setitimer(ITIMER_REAL, &timer, NULL);
    set_coords(&proc); /* the library reads it when it is first called */

    active = ((perf_options.tnis > 1) ? 1 : proc.size) * perf_options.threads;
    proc.yields = active > num_cpus();
    perf_tick_start();
    if (perf_layer.start != NULL) {
        perf_layer.start(&proc);
    }
    open_all(&proc);
    for (i = 1; i < perf_options.threads; ++i) {
        PERF_CHECK(pthread_create(&threads[i], NULL, run_thread,
                                  &proc.threads[i]) == 0, "pthread_create");
    }
    run_thread(&proc.threads[0]);
    for (i = 1; i < perf_options.threads; ++i) {
        pthread_join(threads[i], NULL);
    }
    for (i = 0; i < perf_options.threads; ++i) {
        perf_layer.close(&proc.threads[i]);
    }
    if (perf_layer.stop != NULL) {
        perf_layer.stop(&proc);
    }
    code = perf_boot.stop(&proc);
    free(proc.threads);
    return code;
}
