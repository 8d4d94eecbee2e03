/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_env.c - environment variables: the five of the guide (4.3.2) and those that
 * choose the emulator's modes.  Read once, when the process joins its job.
 */
#include "emu_internal.h"
#include "emu_modes.h"

#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MRQ_DEFAULT 131072u

/* A decimal number of any size; one beyond the range counts as the largest. */
static bool number(const char *s, unsigned long *v_p)
{
    char *end;

    errno = 0;
    *v_p  = strtoul(s, &end, 10);
    return (end != s) && (*end == '\0') && (strchr(s, '-') == NULL);
}

int emu_on_or_off(const char *s)
{
    static const char *const words[2][4] = {{"0", "off", "no", "false"}, {"1", "on", "yes", "true"}};

    for (unsigned i = 0; i < 8; i++) {
        if (!strcasecmp(s, words[i / 4][i % 4])) {
            return (int)(i / 4);
        }
    }
    return -1;
}

double emu_decimal(const char *s, char **end)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    double   v = (c != (locale_t)0) ? strtod_l(s, end, c) : strtod(s, end);

    if (c != (locale_t)0) {
        freelocale(c);
    }
    return v;
}

/* Does it end with these letters, in upper or lower case, whatever the program's language? */
static bool ends_with(const char *s, size_t n, const char *letters)
{
    return (n > 2) && ((s[n - 2] | 0x20) == letters[0]) && ((s[n - 1] | 0x20) == letters[1]);
}

/* A decimal number, or one that ends with Ki or Mi; one below 0 counts as 0. */
static bool number_of_entries(const char *s, unsigned long *v_p)
{
    char          digits[32];
    size_t        n      = strlen(s);
    unsigned long factor = 1;

    if ((n - 2 < sizeof(digits)) && ends_with(s, n, "ki")) {
        factor = 1ul << 10;
    } else if ((n - 2 < sizeof(digits)) && ends_with(s, n, "mi")) {
        factor = 1ul << 20;
    }
    if (factor > 1) {
        memcpy(digits, s, n - 2);
        digits[n - 2] = '\0';
        s             = digits;
    }
    if ((*s == '-') && number(s + 1, v_p)) {
        *v_p = 0;
        return true;
    }
    if (!number(s, v_p)) {
        return false;
    }
    *v_p = (*v_p > ULONG_MAX / factor) ? ULONG_MAX : *v_p * factor;
    return true;
}

/* 4.3.2.3: one of six sizes; else the nearest, the larger of two that are equally near. */
static uint32_t mrq_entries(const char *variable)
{
    static const unsigned long sizes[] = {2ul << 10, 8ul << 10, 32ul << 10, 128ul << 10, 512ul << 10, 2ul << 20};
    const char                *s = getenv(variable);
    unsigned long              v, best = 0;

    if ((s == NULL) || (*s == '\0')) {
        return MRQ_DEFAULT;
    }
    if (!number_of_entries(s, &v)) {
        emu_message("%s=\"%s\" is not a number of entries; %u is used", variable, s, MRQ_DEFAULT);
        return MRQ_DEFAULT;
    }
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        unsigned long d = (v > sizes[i]) ? v - sizes[i] : sizes[i] - v;
        unsigned long b = (v > best) ? v - best : best - v;
        if ((i == 0) || (d <= b)) {
            best = sizes[i];
        }
    }
    return (uint32_t)best;
}

/* 4.3.2.1, 4.3.2.2: a number of CQs; -1: not asked for */
static int num_cqs(const char *variable)
{
    const char   *s = getenv(variable);
    unsigned long v;

    if ((s == NULL) || (*s == '\0')) {
        return -1;
    }
    if (!number(s, &v)) {
        emu_message("%s=\"%s\" is not a number of CQs; ignored", variable, s);
        return -1;
    }
    return (v > EMU_NUM_CQS) ? (int)EMU_NUM_CQS : (int)v; /* as many as there can be */
}

/* A switch of ours: a word or a number.  4.3.2.5 has other rules: is_set. */
static bool is_on(const char *variable)
{
    const char   *s = getenv(variable);
    unsigned long v;
    int           on;

    if ((s == NULL) || (*s == '\0')) {
        return false;
    }
    on = number(s, &v) ? ((v <= 1) ? (int)v : -1) : emu_on_or_off(s);
    if (on < 0) {
        emu_message("%s=\"%s\" is neither 0 nor 1; 1 is used", variable, s);
    }
    return on != 0;
}

/* Anything but 0, however that is written */
static bool is_set(const char *variable)
{
    const char   *s = getenv(variable);
    unsigned long v;

    return (s != NULL) && (*s != '\0') && !(number(s, &v) && (v == 0));
}

/* Is it the second of two words?  The first when it is not set. */
static bool is_second(const char *variable, const char *first, const char *second)
{
    const char *s = getenv(variable);

    if ((s != NULL) && (*s != '\0') && strcmp(s, first) && strcmp(s, second)) {
        emu_message("%s=\"%s\" is neither %s nor %s; %s is used", variable, s, first, second, first);
    }
    return (s != NULL) && !strcmp(s, second);
}

static enum emu_rehome rehome(void)
{
    const char *s = getenv("UTOFU_EMU_REHOME");

    if ((s == NULL) || (*s == '\0') || !strcmp(s, "auto")) {
        return EMU_REHOME_AUTO;
    }
    if (!strcmp(s, "0")) {
        return EMU_REHOME_OFF;
    }
    if (strcmp(s, "alone")) {
        emu_message("UTOFU_EMU_REHOME=\"%s\" is neither auto nor 0, nor alone; auto is used", s);
        return EMU_REHOME_AUTO;
    }
    return EMU_REHOME_ALONE;
}

void emu_env_read(struct emu_env *env)
{
    const char   *seed = getenv("UTOFU_EMU_SEED");
    unsigned long v;

    memset(env, 0, sizeof(*env));
    env->mrq_entries         = mrq_entries("UTOFU_NUM_MRQ_ENTRIES");
    env->mrq_entries_session = mrq_entries("UTOFU_NUM_MRQ_ENTRIES_SESSION");
    env->lane_entries =
            (env->mrq_entries > env->mrq_entries_session) ? env->mrq_entries : env->mrq_entries_session;
    env->exclusive_cqs = num_cqs("UTOFU_NUM_EXCLUSIVE_CQS");
    env->session_cqs   = num_cqs("UTOFU_NUM_SESSION_MODE_CQS");
    env->mlock_memory  = is_set("UTOFU_SWAP_PROTECT"); /* 4.3.2.5: anything but 0 means 1 */
    env->strict        = is_on("UTOFU_EMU_STRICT");
    env->lines_unordered = is_second("UTOFU_EMU_LINES", "ordered", "unordered");
    env->bounds_page     = is_second("UTOFU_EMU_BOUNDS", "exact", "page");
    env->first_cq_lowest = is_second("UTOFU_EMU_FIRST_CQ", "placed", "lowest");
    env->rehome          = env->strict ? EMU_REHOME_OFF : rehome();
    env->seed            = 1;
    if ((seed != NULL) && (*seed != '\0')) {
        if (number(seed, &v) && (errno == 0)) {
            env->seed = v;
        } else {
            emu_message("UTOFU_EMU_SEED=\"%s\" is not a number of up to 64 bits; 1 is used", seed);
        }
    }

    /* A VCQ whose operations are carried out by a thread of ours is locked. */
    if (env->strict) {
        env->special |= EMU_SPECIAL_WIRE | EMU_SPECIAL_LOCKED;
    }
    env->special |= emu_inject_init(env->seed);
    if (emu_timing_init()) {
        if (env->special & EMU_SPECIAL_WIRE) {
            emu_message("UTOFU_EMU_TIMING does not act on operations: strict mode or delays decide when they happen");
        } else {
            env->special |= EMU_SPECIAL_TIMED;
        }
    }
    if (emu_stats_init()) {
        env->special |= EMU_SPECIAL_STATS;
    }
}
