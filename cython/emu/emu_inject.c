/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_inject.c - faults on demand (UTOFU_EMU_FAULT, docs/faults.md): operations that
 * fail or come late, peers that die, queues that are short.
 *
 *   rule;rule;...   a rule is  what:key=value:key=value...
 *   what   put piggyback get armw nop any (operations), reg, vcq (calls), toq=N, mrq=N
 *   when   peer=X,Y,Z,A,B,C  after=N  every=N  prob=P  count=N
 *   then   error=CODE  delay=USEC  busy  dead
 *
 * A rule counts what it applies to, in this process, so that the same program with
 * the same seed meets the same faults.
 */
#include "emu_modes.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RULES     32u
#define COUNT_NOT_SET UINT64_MAX /* what is set has 32 bits */

#define WHAT_OPS(kind) (1u << (kind))
#define WHAT_ANY \
    (WHAT_OPS(EMU_OP_NOP) | WHAT_OPS(EMU_OP_PUT) | WHAT_OPS(EMU_OP_PIGGYBACK) | WHAT_OPS(EMU_OP_GET) | \
     WHAT_OPS(EMU_OP_ARMW))
#define WHAT_REG (1u << 30)
#define WHAT_VCQ (1u << 31)

struct rule {
    uint32_t what;
    bool     has_peer, busy, dead;
    uint64_t peer; /* emu_coords_key */
    uint64_t after, every, count;
    double   prob;
    int      error;
    uint64_t delay_ns;
    /* state */
    uint64_t seen, hit, rng;
};

static struct {
    pthread_mutex_t lock;
    struct rule     rule[MAX_RULES];
    unsigned        rules;
    uint64_t        dead[EMU_MAX_NODES]; /* emu_coords_key of nodes that are said to be dead */
    unsigned        num_dead;
    uint32_t        toq, mrq;
} faults = {.lock = PTHREAD_MUTEX_INITIALIZER, .toq = EMU_TOQ_ENTRIES};

static const struct {
    const char *name;
    uint32_t   what;
} whats[] = {{"put", WHAT_OPS(EMU_OP_PUT)},   {"piggyback", WHAT_OPS(EMU_OP_PIGGYBACK)},
             {"get", WHAT_OPS(EMU_OP_GET)},   {"armw", WHAT_OPS(EMU_OP_ARMW)},
             {"nop", WHAT_OPS(EMU_OP_NOP)},   {"any", WHAT_ANY},
             {"reg", WHAT_REG},               {"vcq", WHAT_VCQ}};

static const struct {
    const char *name;
    int        code;
} codes[] = {{"TCQ_OTHER", UTOFU_ERR_TCQ_OTHER},
             {"TCQ_DESC", UTOFU_ERR_TCQ_DESC},
             {"TCQ_MEMORY", UTOFU_ERR_TCQ_MEMORY},
             {"TCQ_STADD", UTOFU_ERR_TCQ_STADD},
             {"TCQ_LENGTH", UTOFU_ERR_TCQ_LENGTH},
             {"MRQ_OTHER", UTOFU_ERR_MRQ_OTHER},
             {"MRQ_PEER", UTOFU_ERR_MRQ_PEER},
             {"MRQ_LCL_MEMORY", UTOFU_ERR_MRQ_LCL_MEMORY},
             {"MRQ_RMT_MEMORY", UTOFU_ERR_MRQ_RMT_MEMORY},
             {"MRQ_LCL_STADD", UTOFU_ERR_MRQ_LCL_STADD},
             {"MRQ_RMT_STADD", UTOFU_ERR_MRQ_RMT_STADD},
             {"MRQ_LCL_LENGTH", UTOFU_ERR_MRQ_LCL_LENGTH},
             {"MRQ_RMT_LENGTH", UTOFU_ERR_MRQ_RMT_LENGTH},
             {"FULL", UTOFU_ERR_FULL},
             {"NOT_AVAILABLE", UTOFU_ERR_NOT_AVAILABLE},
             {"OUT_OF_RESOURCE", UTOFU_ERR_OUT_OF_RESOURCE},
             {"OUT_OF_MEMORY", UTOFU_ERR_OUT_OF_MEMORY},
             {"FATAL", UTOFU_ERR_FATAL}};

static char why[192]; /* the last text is no rule; whoever joins the job reads them all, and nobody else does */

static bool __attribute__((format(printf, 1, 2))) no_rule(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    return false;
}

static bool number(const char *key, const char *s, uint64_t least, uint64_t most, uint64_t *v_p)
{
    char *end;

    errno = 0;
    *v_p  = strtoull(s, &end, 10);
    if ((end == s) || (*end != '\0') || (strchr(s, '-') != NULL)) {
        return no_rule("%s= takes a whole number, not \"%s\"", key, s);
    }
    if (errno || (*v_p < least) || (*v_p > most)) {
        return no_rule("%s=%s is out of range (%llu to %llu)", key, s, (unsigned long long)least,
                       (unsigned long long)most);
    }
    return true;
}

static bool coords(const char *s, uint64_t *key_p)
{
    const char *all = s;
    uint8_t     c[6];

    for (unsigned i = 0; i < 6; i++) {
        char         *end;
        unsigned long v = strtoul(s, &end, 10);
        if ((end == s) || (*end != ((i < 5) ? ',' : '\0'))) {
            return no_rule("peer= takes 6 numbers, X,Y,Z,A,B,C, not \"%s\"", all);
        }
        if (v > ((const unsigned[]){255, 255, 255, 1, 2, 1})[i]) { /* the sizes of A, B, C never differ */
            return no_rule("peer=%s is out of range (A, B, C are up to 1, 2, 1)", all);
        }
        c[i] = (uint8_t)v;
        s    = end + 1;
    }
    *key_p = emu_coords_key(c);
    return true;
}

static bool is_op_code(int code)
{
    return (code <= UTOFU_ERR_TCQ_OTHER) && (code >= UTOFU_ERR_MRQ_RMT_LENGTH);
}

static bool is_mrq_code(int code)
{
    return (code <= UTOFU_ERR_MRQ_OTHER) && (code >= UTOFU_ERR_MRQ_RMT_LENGTH);
}

static bool error(struct rule *r, const char *name)
{
    bool of_calls = (r->what & (WHAT_REG | WHAT_VCQ)) != 0;

    for (unsigned i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        if (!strcmp(name, codes[i].name)) {
            r->error = codes[i].code;
            if (is_op_code(r->error) != of_calls) {
                return true;
            }
            return no_rule("error=%s is for %s only", name, of_calls ? "operations" : "reg and vcq");
        }
    }
    if (!strncmp(name, "UTOFU_ERR_", 10)) {
        return no_rule("error=%s: codes are written without UTOFU_ERR_", name);
    }
    return no_rule("\"%s\" is not an error code for rules", name);
}

static bool prob(struct rule *r, const char *s)
{
    char *end;

    r->prob = emu_decimal(s, &end);
    if ((end == s) || (*end != '\0')) {
        return no_rule("prob= takes a number such as 0.5, not \"%s\"", s);
    }
    return ((r->prob >= 0) && (r->prob <= 1)) || no_rule("prob=%s is out of range (0 to 1)", s);
}

/* "key" or "key=value"; seen: the keys that the rule has, a bit each */
static bool item(struct rule *r, char *text, unsigned *seen)
{
    static const struct {
        const char *key;
        bool        has_value, of_calls;
    } keys[] = {{"busy", false, false}, {"dead", false, false}, {"peer", true, false},
                {"error", true, true},  {"prob", true, true},   {"after", true, true},
                {"every", true, true},  {"count", true, true},  {"delay", true, false}};
    const unsigned n     = sizeof(keys) / sizeof(keys[0]);
    char          *value = strchr(text, '=');
    unsigned       i     = 0;
    uint64_t       v;

    if (value != NULL) {
        *value++ = '\0';
    }
    while ((i < n) && strcmp(text, keys[i].key)) {
        i++;
    }
    if (i == n) {
        return no_rule("\"%s\" is neither a condition nor an action", text);
    }
    if (keys[i].has_value != (value != NULL)) {
        return no_rule(keys[i].has_value ? "%s needs a value, as in %s=..." : "%s takes no value", text, text);
    }
    if (*seen & (1u << i)) {
        return no_rule("%s is there twice", text);
    }
    *seen |= 1u << i;
    if (!keys[i].of_calls && (r->what & (WHAT_REG | WHAT_VCQ))) {
        return no_rule("%s is for operations only", text);
    }
    if (!strcmp(text, "busy")) {
        return r->busy = true;
    }
    if (!strcmp(text, "dead")) {
        return r->dead = true;
    }
    if (!strcmp(text, "peer")) {
        return r->has_peer = coords(value, &r->peer);
    }
    if (!strcmp(text, "error")) {
        return error(r, value);
    }
    if (!strcmp(text, "prob")) {
        return prob(r, value);
    }
    /* none at most, or each 0th, would be a rule that never acts */
    if (!number(text, value, !strcmp(text, "every") || !strcmp(text, "count"), UINT32_MAX, &v)) {
        return false;
    }
    if (!strcmp(text, "after")) {
        r->after = v;
    } else if (!strcmp(text, "every")) {
        r->every = v;
    } else if (!strcmp(text, "count")) {
        r->count = v;
    } else {
        r->delay_ns = v * 1000;
    }
    return true;
}

/* Queues: "toq=N", "mrq=N" */
static bool queue_rule(const char *text, const char *rest)
{
    bool     toq = !strncmp(text, "toq=", 4);
    uint64_t v;

    if (!toq && strncmp(text, "mrq=", 4)) {
        return no_rule("\"%s\" is neither an operation nor a call, nor a queue", text);
    }
    if (!number(toq ? "toq" : "mrq", text + 4, 1, toq ? EMU_TOQ_ENTRIES : EMU_MRQ_MAX, &v)) {
        return false;
    }
    if (rest != NULL) {
        return no_rule("nothing may follow %s", text);
    }
    *(toq ? &faults.toq : &faults.mrq) = (uint32_t)v;
    return true;
}

static bool parse_rule(char *text)
{
    struct rule r    = {.count = COUNT_NOT_SET, .prob = 2};
    unsigned    seen = 0;
    char       *save, *t = strtok_r(text, ":", &save);

    if (t == NULL) {
        return no_rule("there is nothing in it");
    }
    for (unsigned i = 0; i < sizeof(whats) / sizeof(whats[0]); i++) {
        if (!strcmp(t, whats[i].name)) {
            r.what = whats[i].what;
        }
    }
    if (r.what == 0) {
        return queue_rule(t, strtok_r(NULL, ":", &save));
    }
    while ((t = strtok_r(NULL, ":", &save)) != NULL) {
        if (!item(&r, t, &seen)) {
            return false;
        }
    }
    if (r.count == COUNT_NOT_SET) {
        r.count = r.dead ? 1 : UINT64_MAX; /* one peer dies, not all that are spoken to from then on */
    }
    /* a rule does something, and only what it can do */
    if ((r.error == 0) && (r.delay_ns == 0) && !r.busy && !r.dead) {
        if (r.what & (WHAT_REG | WHAT_VCQ)) {
            return no_rule("it does nothing: error= is missing");
        }
        return no_rule("it does nothing: error=, busy, dead or a delay= of 1 or more is missing");
    }
    if (r.busy && ((r.error != 0) || (r.delay_ns != 0) || r.dead)) {
        return no_rule("busy goes with no other action"); /* what is not posted can't fail, nor be late */
    }
    if ((r.what == WHAT_OPS(EMU_OP_NOP)) && (r.has_peer || r.dead || (r.delay_ns != 0) || is_mrq_code(r.error))) {
        return no_rule("a NOP goes to nobody, so it has no peer, delay, dead or MRQ code");
    }
    faults.rule[faults.rules++] = r;
    return true;
}

void emu_inject_forget(void)
{
    pthread_mutex_init(&faults.lock, NULL); /* a thread that is not here may have had it */
}

uint32_t emu_inject_init(uint64_t seed)
{
    const char *s = getenv("UTOFU_EMU_FAULT");
    char       *copy, *save, *t;
    uint32_t    special = 0;

    faults.rules    = 0;
    faults.num_dead = 0;
    faults.toq      = EMU_TOQ_ENTRIES;
    faults.mrq      = 0;
    if ((s == NULL) || (*s == '\0')) {
        return 0;
    }
    copy = strdup(s);
    if (copy == NULL) {
        return 0;
    }
    for (t = strtok_r(copy, ";", &save); t != NULL; t = strtok_r(NULL, ";", &save)) {
        char *rule = strdup(t);
        if (faults.rules == MAX_RULES) {
            emu_message("UTOFU_EMU_FAULT: \"%s\" is rule %u, and there may be %u; ignored", t, MAX_RULES + 1, MAX_RULES);
        } else if (rule == NULL) {
            emu_message("UTOFU_EMU_FAULT: no memory to read \"%s\"; ignored", t);
        } else if (!parse_rule(rule)) {
            emu_message("UTOFU_EMU_FAULT: \"%s\" is not a rule; ignored: %s", t, why);
        } else {
            special |= EMU_SPECIAL_INJECT;
        }
        free(rule);
    }
    free(copy);
    for (unsigned i = 0; i < faults.rules; i++) {
        faults.rule[i].rng = (seed + i + 1) * 0x9e3779b97f4a7c15ull;
        if (faults.rule[i].rng == 0) {
            faults.rule[i].rng = 1; /* 0 would stay 0 */
        }
        if (faults.rule[i].delay_ns != 0) {
            special |= EMU_SPECIAL_WIRE | EMU_SPECIAL_LOCKED;
        }
    }
    return special;
}

static bool chance(struct rule *r)
{
    r->rng ^= r->rng << 13;
    r->rng ^= r->rng >> 7;
    r->rng ^= r->rng << 17;
    return (double)(r->rng >> 11) * 0x1p-53 < r->prob;
}

/* Does the rule apply to this event?  Counts it. */
static bool applies(struct rule *r)
{
    uint64_t n = r->seen++;

    if ((n < r->after) || (r->hit >= r->count) || ((r->every > 1) && ((n - r->after) % r->every != 0)) || !chance(r)) {
        return false;
    }
    r->hit++;
    return true;
}

/* The node that the operation goes to; false: to none */
static bool goes_to(const struct emu_desc *d, uint64_t *key_p)
{
    struct emu_vcq_name to;

    if ((d->kind == EMU_OP_NOP) || !emu_vcq_id_decode(d->rmt_id, &to)) {
        return false;
    }
    *key_p = emu_coords_key(to.coords);
    return true;
}

static bool is_dead(uint64_t key)
{
    for (unsigned i = 0; i < faults.num_dead; i++) {
        if (faults.dead[i] == key) {
            return true;
        }
    }
    return false;
}

/* Is the rule about the operation, by where it goes?  One that lets nodes die: not to one that is dead */
static bool towards(const struct rule *r, const struct emu_desc *d)
{
    uint64_t key;

    if (!r->has_peer && !r->dead) {
        return true;
    }
    return goes_to(d, &key) && (!r->has_peer || (key == r->peer)) && !(r->dead && is_dead(key));
}

/* Says what can't be of a NOP, which goes nowhere: so a rule for any operation is not about it */
static bool beyond_nop(const struct rule *r, const struct emu_desc *d)
{
    return (d->kind == EMU_OP_NOP) && (is_mrq_code(r->error) || (r->delay_ns != 0));
}

void emu_inject(const struct emu_desc *d, struct emu_fault *f)
{
    uint64_t to;

    pthread_mutex_lock(&faults.lock);
    for (unsigned i = 0; i < faults.rules; i++) {
        struct rule *r = &faults.rule[i];

        if (!(r->what & WHAT_OPS(d->kind)) || r->busy || !towards(r, d) || beyond_nop(r, d)) {
            continue;
        }
        if (applies(r)) {
            if (r->dead && goes_to(d, &to) && !is_dead(to) && (faults.num_dead < EMU_MAX_NODES)) {
                faults.dead[faults.num_dead++] = to;
            }
            f->code = (r->error != 0) ? r->error : f->code;
            f->delay_ns += r->delay_ns;
        }
    }
    /* whatever the kind of the operation, and whatever the rules say of it */
    if (goes_to(d, &to) && is_dead(to)) {
        f->code = UTOFU_ERR_MRQ_PEER;
    }
    pthread_mutex_unlock(&faults.lock);
}

bool emu_inject_busy(const struct emu_desc *d)
{
    bool busy = false;

    pthread_mutex_lock(&faults.lock);
    for (unsigned i = 0; !busy && (i < faults.rules); i++) { /* no other rule counts what is refused */
        struct rule *r = &faults.rule[i];

        if (r->busy && (r->what & WHAT_OPS(d->kind)) && towards(r, d) && applies(r)) {
            busy = true;
        }
    }
    pthread_mutex_unlock(&faults.lock);
    return busy;
}

static int call_fault(uint32_t what)
{
    int code = UTOFU_SUCCESS;

    if (faults.rules == 0) {
        return code;
    }
    pthread_mutex_lock(&faults.lock);
    for (unsigned i = 0; (i < faults.rules) && (code == UTOFU_SUCCESS); i++) {
        if ((faults.rule[i].what & what) && applies(&faults.rule[i])) {
            code = faults.rule[i].error;
        }
    }
    pthread_mutex_unlock(&faults.lock);
    return code;
}

int emu_inject_reg(void)
{
    return call_fault(WHAT_REG);
}

int emu_inject_vcq(void)
{
    return call_fault(WHAT_VCQ);
}

uint32_t emu_inject_toq(void)
{
    return faults.toq;
}

uint32_t emu_inject_mrq(void)
{
    return faults.mrq;
}
