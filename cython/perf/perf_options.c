/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_options.c - the options of a kernel, --name=value. */
#include "perf.h"

struct perf_options perf_options = {
    .test = "put_lat", .layout = "zcopy", .transport = "utofu", .size = 8,
    .warmup = -1, .repeats = 1, .seconds = 0.3, .limit = 60, .window = 32,
    .threads = 1, .procs = 2, .tnis = 1
};

struct option {
    const char *name;
    enum { TEXT, SIZE, LONG, INT, REAL } type;
    void       *value;
    double     least, most;
};

static const struct option table[] = {
    {"test", TEXT, &perf_options.test, 0, 0},
    {"layout", TEXT, &perf_options.layout, 0, 0},       /* short bcopy zcopy contig */
    {"transport", TEXT, &perf_options.transport, 0, 0}, /* libuct */
    {"device", TEXT, &perf_options.device, 0, 0},       /* libuct */
    {"coords", TEXT, &perf_options.coords, 0, 0},       /* emulator: of each rank, ';' */
    {"rendezvous", TEXT, &perf_options.rendezvous, 0, 0},
    {"size", SIZE, &perf_options.size, 1, 1e12},
    {"iterations", LONG, &perf_options.iterations, 0, 1e12}, /* 0: by seconds */
    {"warmup", LONG, &perf_options.warmup, -1, 1e12},        /* -1: a tenth */
    {"repeats", LONG, &perf_options.repeats, 1, 1e6},
    {"seconds", REAL, &perf_options.seconds, 1e-6, 1e6},
    {"limit", REAL, &perf_options.limit, 0.1, 1e6},
    {"window", INT, &perf_options.window, 1, 1e6},
    {"threads", INT, &perf_options.threads, 1, 64},
    {"procs", INT, &perf_options.procs, 2, PERF_MAX_PROCS},
    {"tnis", INT, &perf_options.tnis, 1, 6},
    {"inject", INT, &perf_options.inject, 0, 1}
};
#define NUM_OPTIONS (sizeof(table) / sizeof(table[0]))

static void parse_cpus(const char *text)
{
    char *end;
    long cpu;

    do {
        cpu = strtol(text, &end, 10);
        PERF_CHECK((end != text) && (cpu >= 0) && (cpu < CPU_SETSIZE) &&
                   ((*end == ',') || (*end == '\0')) &&
                   (perf_options.num_cpus < PERF_MAX_CPUS), "--cpus: %s", text);
        perf_options.cpus[perf_options.num_cpus++] = (int)cpu;
        text                                       = end + 1;
    } while (*end == ',');
}

void perf_parse_option(const char *word)
{
    const char *equal = strchr(word, '=');
    size_t     length = equal ? (size_t)(equal - word) : 0;
    double     number;
    char       *end;

    PERF_CHECK((equal != NULL) && !strncmp(word, "--", 2),
               "%s: options are --name=value", word);
    if (!strncmp(word, "--cpus=", 7)) {
        parse_cpus(equal + 1);
        return;
    }
    for (size_t i = 0; i < NUM_OPTIONS; ++i) {
        const struct option *o = &table[i];

        if ((strlen(o->name) != length - 2) ||
            strncmp(word + 2, o->name, length - 2)) {
            continue;
        }
        if (o->type == TEXT) {
            *(const char**)o->value = equal + 1;
            return;
        }
        number = strtod(equal + 1, &end);
        PERF_CHECK((end != equal + 1) && (*end == '\0') && (number >= o->least) &&
                   (number <= o->most), "%s: a number from %g to %g is needed", word,
                   o->least, o->most);
        switch (o->type) {
        case SIZE: *(size_t*)o->value = (size_t)number; break;
        case LONG: *(long*)o->value = (long)number; break;
        case INT:  *(int*)o->value = (int)number; break;
        default:   *(double*)o->value = number; break;
        }
        return;
    }
    PERF_FAIL("unknown option: %s", word);
}
