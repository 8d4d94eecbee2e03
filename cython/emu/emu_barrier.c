/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_barrier.c - barrier communication (2.3, 3.8): starting, polling, gates.
 *
 * A TNI carries out barrier circuits by itself.  Here it is done by whoever calls:
 * a start gate sends its owner's data, and whoever brings the last missing input
 * of a relay gate fires that gate, in any process of the job.  So a process may
 * sleep, or be stopped, once it has started its part.
 *
 * No locks: a gate is fired by the holder of its claim, a bit in its state.  Who
 * finds it claimed leaves; the holder looks again after it has given the claim
 * back.  A source whose target has no room leaves its inputs where they are; the
 * target fires it again when it has taken a message out.  For both, what is
 * published comes before what is looked at, in one total order: all atomics on
 * gates are sequentially consistent.
 *
 * A gate that is set anew gets another epoch and other ring positions, so that
 * what an old holder still does to it fails.  Messages towards a gate that is gone,
 * is not set, or expects another source, are dropped.
 */
#include "emu_modes.h"

#include <stdlib.h>
#include <string.h>

#include "emu_bfpsum.h"

enum { GATE_BARRIER = 1, GATE_UINT64, GATE_DOUBLE };

/* ----------------------------------------------------------------- messages */

/* The shared memory may hold anything: what is no message becomes a mismatch. */
static void msg_copy(struct emu_gate_msg *dst, const struct emu_gate_msg *src)
{
    uint8_t kind = src->kind, num = src->num;

    dst->kind     = kind;
    dst->op       = src->op;
    dst->num      = num;
    dst->mismatch = src->mismatch;
    dst->pad      = 0;
    dst->due      = src->due;
    if ((kind == GATE_UINT64) && (num <= EMU_MAX_REDUCE_U)) {
        memcpy(dst->u, src->u, num * sizeof(dst->u[0]));
    } else if ((kind == GATE_DOUBLE) && (num <= EMU_MAX_REDUCE_D)) {
        memcpy(dst->d, src->d, num * sizeof(dst->d[0]));
    } else if ((kind != GATE_BARRIER) || (num != 0)) {
        dst->mismatch = 1;
        dst->num      = 0;
    }
}

static void reduce_uint64(unsigned op, unsigned num, uint64_t *a, const uint64_t *b)
{
    for (unsigned i = 0; i < num; i++) {
        switch (op) {
        case UTOFU_REDUCE_OP_BAND:
            a[i] &= b[i];
            break;
        case UTOFU_REDUCE_OP_BOR:
            a[i] |= b[i];
            break;
        case UTOFU_REDUCE_OP_BXOR:
            a[i] ^= b[i];
            break;
        case UTOFU_REDUCE_OP_MAX:
            a[i] = (b[i] > a[i]) ? b[i] : a[i];
            break;
        case UTOFU_REDUCE_OP_MAXLOC: /* pairs: value, place; num is even */
            if ((i % 2 == 0) && (i + 1 < num) && ((b[i] > a[i]) || ((b[i] == a[i]) && (b[i + 1] < a[i + 1])))) {
                a[i]     = b[i];
                a[i + 1] = b[i + 1];
            }
            break;
        case UTOFU_REDUCE_OP_SUM:
            a[i] += b[i];
            break;
        }
    }
}

static bool msg_same_kind(const struct emu_gate_msg *a, const struct emu_gate_msg *b)
{
    return (a->kind == b->kind) && (a->op == b->op) && (a->num == b->num);
}

/* a = a and b; every operation gives the same whatever comes first */
static void msg_combine(struct emu_gate_msg *a, const struct emu_gate_msg *b)
{
    a->due = (b->due > a->due) ? b->due : a->due;
    if (a->mismatch || b->mismatch || !msg_same_kind(a, b)) {
        a->mismatch = 1;
    } else if (a->kind == GATE_UINT64) {
        reduce_uint64(a->op, a->num, a->u, b->u);
    } else if (a->kind == GATE_DOUBLE) {
        for (unsigned i = 0; i < a->num; i++) {
            emu_bfpsum_add(&a->d[i], &b->d[i]);
        }
    }
}

/* -------------------------------------------------------------------- gates */

/* A gate of any node: node * EMU_NODE_GATES + TNI * EMU_NUM_GATES + BG */
static struct emu_gate *gate_at(uint32_t ref)
{
    return &emu_g.control->gate[ref / EMU_NODE_GATES][ref % EMU_NODE_GATES];
}

static bool gate_is_start(uint32_t ref)
{
    return ref % EMU_NUM_GATES < EMU_START_GATES;
}

#define NO_GATE UINT32_MAX
static uint32_t gate_find(uint64_t id, uint32_t node)
{
    uint32_t index = emu_vbg_id_index(id);

    if ((id == UTOFU_VBG_ID_NULL) || (node >= EMU_MAX_NODES) || (index >= EMU_NODE_GATES) ||
        (atomic_load(&emu_g.control->node[node].gate[index].id) != id)) {
        return NO_GATE;
    }
    return node * EMU_NODE_GATES + index;
}

/* Messages in a ring; more than EMU_GATE_RING: it is being set */
static uint32_t ring_count(struct emu_gate_ring *r)
{
    uint32_t tail = atomic_load(&r->tail);

    return tail - atomic_load(&r->head);
}

static bool ring_has(struct emu_gate_ring *r)
{
    uint32_t n = ring_count(r);

    return (n != 0) && (n <= EMU_GATE_RING);
}

/* tail: what it was when the ring was found; if it was set anew since, nothing happens */
static void ring_put(struct emu_gate_ring *r, uint32_t tail, const struct emu_gate_msg *msg)
{
    msg_copy(&r->msg[tail % EMU_GATE_RING], msg);
    atomic_compare_exchange_strong(&r->tail, &tail, tail + 1);
}

/* Take the oldest message; true: the ring was full, its source may wait for room */
static bool ring_take(struct emu_gate_ring *r, struct emu_gate_msg *msg)
{
    uint32_t head = atomic_load(&r->head);

    msg_copy(msg, &r->msg[head % EMU_GATE_RING]);
    atomic_compare_exchange_strong(&r->head, &head, head + 1);
    return ring_count(r) >= EMU_GATE_RING - 1;
}

static void ring_reset(struct emu_gate_ring *r, uint64_t source)
{
    uint32_t start = atomic_load(&r->tail) + 8 * EMU_GATE_RING;

    atomic_store(&r->source, source);
    atomic_store(&r->head, start);
    atomic_store(&r->tail, start);
}

static void gate_stop(struct emu_gate *g)
{
    uint64_t state = atomic_load(&g->state);

    atomic_store(&g->state, (state | EMU_GATE_CLAIMED | EMU_GATE_CONFIGURED) + 1);
}

void emu_gate_clear(uint32_t node, uint32_t index)
{
    gate_stop(&emu_g.control->gate[node][index]);
}

void emu_gate_set(uint32_t node, uint32_t index, const struct emu_gate_ends *ends)
{
    struct emu_gate *g = &emu_g.control->gate[node][index];

    gate_stop(g);
    for (unsigned way = 0; way < EMU_GATE_WAYS; way++) {
        ring_reset(&g->in[way], ends->source[way]);
        atomic_store(&g->source_node[way], ends->source_node[way]);
        atomic_store(&g->target[way], ends->target[way]);
        atomic_store(&g->target_node[way], ends->target_node[way]);
    }
    ring_reset(&g->own, UTOFU_VBG_ID_NULL);
    atomic_fetch_or(&g->state, EMU_GATE_CONFIGURED);
}

/* ----------------------------------------------------------- gates at work */

/* Gates that may have become able to fire */
struct work {
    uint32_t num, cap;
    uint32_t *gate;
    uint32_t first[256];
};

static void work_add(struct work *w, uint32_t ref)
{
    if ((ref == NO_GATE) || ((w->num > 0) && (w->gate[w->num - 1] == ref))) {
        return;
    }
    if (w->num == w->cap) {
        uint32_t *more = malloc(2 * w->cap * sizeof(*more));

        if (more == NULL) {
            emu_message("asynchronous error: out of memory on TNI %u BG %u", ref % EMU_NODE_GATES / EMU_NUM_GATES,
                        ref % EMU_NUM_GATES);
            abort();
        }
        memcpy(more, w->gate, w->num * sizeof(*more));
        if (w->gate != w->first) {
            free(w->gate);
        }
        w->gate = more;
        w->cap *= 2;
    }
    w->gate[w->num++] = ref;
}

/* Where a gate's message goes; NULL: nowhere */
static struct emu_gate_ring *gate_target(struct emu_gate *g, uint64_t id, unsigned way, uint32_t *ref_p)
{
    struct emu_gate *t;

    *ref_p = gate_find(atomic_load(&g->target[way]), atomic_load(&g->target_node[way]));
    if (*ref_p == NO_GATE) {
        return NULL;
    }
    t = gate_at(*ref_p);
    if (!(atomic_load(&t->state) & EMU_GATE_CONFIGURED) || (atomic_load(&t->in[way].source) != id)) {
        return NULL;
    }
    return &t->in[way];
}

static bool gate_can_fire(uint32_t ref, struct emu_gate *g, uint64_t id)
{
    bool     any = false;
    uint32_t target;

    if (gate_is_start(ref)) {
        if (!ring_has(&g->own)) {
            return false;
        }
    } else {
        for (unsigned way = 0; way < EMU_GATE_WAYS; way++) {
            if (atomic_load(&g->in[way].source) != UTOFU_VBG_ID_NULL) {
                if (!ring_has(&g->in[way])) {
                    return false;
                }
                any = true;
            }
        }
        if (!any) {
            return false;
        }
    }
    for (unsigned way = 0; way < EMU_GATE_WAYS; way++) {
        struct emu_gate_ring *r = gate_target(g, id, way, &target);

        if ((r != NULL) && (ring_count(r) >= EMU_GATE_RING)) {
            return false;
        }
    }
    return true;
}

/* Combine and take what the configured sources sent */
static void gate_take_inputs(struct emu_gate *g, struct emu_gate_msg *msg, struct work *w)
{
    struct emu_gate_msg other;
    bool                first = true;

    for (unsigned way = 0; way < EMU_GATE_WAYS; way++) {
        uint64_t source = atomic_load(&g->in[way].source);

        if (source == UTOFU_VBG_ID_NULL) {
            continue;
        }
        if (ring_take(&g->in[way], first ? msg : &other)) {
            work_add(w, gate_find(source, atomic_load(&g->source_node[way])));
        }
        if (!first) {
            msg_combine(msg, &other);
        }
        first = false;
    }
}

/* Signal and packet leave at the same time (2.3.1).  With the signal this gate's owner may be done, and
 * set it anew at once: so both targets are found before anything leaves, and the packet goes first. */
static void gate_fire(uint32_t ref, struct emu_gate *g, uint64_t id, struct work *w)
{
    struct emu_gate_ring *to[EMU_GATE_WAYS];
    uint32_t              target[EMU_GATE_WAYS], tail[EMU_GATE_WAYS];
    struct emu_gate_msg   msg;
    uint64_t              fired_at;

    for (unsigned way = 0; way < EMU_GATE_WAYS; way++) {
        to[way]   = gate_target(g, id, way, &target[way]);
        tail[way] = (to[way] != NULL) ? atomic_load(&to[way]->tail) : 0;
    }
    if (gate_is_start(ref)) {
        ring_take(&g->own, &msg);
    } else {
        gate_take_inputs(g, &msg, w);
    }
    fired_at = msg.due;
    for (unsigned way = EMU_GATE_WAYS; way-- > 0;) {
        if (to[way] != NULL) {
            msg.due = (way == EMU_GATE_PACKET) ? emu_timing_packet(fired_at) : fired_at;
            ring_put(to[way], tail[way], &msg);
            if (!gate_is_start(target[way])) {
                work_add(w, target[way]);
            }
        }
    }
}

/* All gates of a network of this size, each as often as there is room: more do not fire in one call, but where
 * somebody writes to them what is not right. */
#define FIRE_MOST (EMU_MAX_NODES * EMU_NODE_GATES * EMU_GATE_RING)

static void work_run(struct work *w)
{
    uint32_t fired = 0;

    while ((w->num > 0) && (fired < FIRE_MOST)) {
        uint32_t         ref = w->gate[--w->num];
        struct emu_gate *g   = gate_at(ref);

        while (fired < FIRE_MOST) {
            uint64_t state = atomic_load(&g->state), held = state | EMU_GATE_CLAIMED;
            /* after the state: the claim fails if the gate was given to another since */
            uint64_t id    = atomic_load(&emu_g.control->node[ref / EMU_NODE_GATES].gate[ref % EMU_NODE_GATES].id);

            if ((state & EMU_GATE_CLAIMED) || !(state & EMU_GATE_CONFIGURED) || !gate_can_fire(ref, g, id)) {
                break;
            }
            if (!atomic_compare_exchange_strong(&g->state, &state, held)) {
                continue;
            }
            if (gate_can_fire(ref, g, id)) {
                gate_fire(ref, g, id, w);
            }
            fired++;
            atomic_compare_exchange_strong(&g->state, &held, state);
        }
    }
    if (w->gate != w->first) {
        free(w->gate);
    }
}

static void work_init(struct work *w)
{
    w->num  = 0;
    w->cap  = sizeof(w->first) / sizeof(w->first[0]);
    w->gate = w->first;
}

/* ---------------------------------------------------------------- the calls */

static uint32_t set_ref(const struct emu_vbg_set *set)
{
    return emu_g.node * EMU_NODE_GATES + emu_vbg_id_index(set->id[0]);
}

static void set_lock(struct emu_vbg_set *set)
{
    if (set->flags & UTOFU_VBG_FLAG_THREAD_SAFE) {
        pthread_mutex_lock(&set->lock);
    }
}

static void set_unlock(struct emu_vbg_set *set)
{
    if (set->flags & UTOFU_VBG_FLAG_THREAD_SAFE) {
        pthread_mutex_unlock(&set->lock);
    }
}

static int start(struct emu_vbg_set *set, const struct emu_gate_msg *msg)
{
    uint32_t         ref = set_ref(set);
    struct emu_gate *g   = gate_at(ref);
    int              code = UTOFU_SUCCESS;
    struct work      w;

    set_lock(set);
    if (set->kind != 0) {
        code = UTOFU_ERR_BUSY;
    } else if (!(atomic_load(&g->state) & EMU_GATE_CONFIGURED)) {
        code = UTOFU_ERR_NOT_AVAILABLE; /* never set: there is no circuit */
    } else if (ring_count(&g->own) != 0) {
        code = UTOFU_ERR_BUSY; /* complete for this gate, but the one before still waits for room */
    } else {
        set->kind = msg->kind;
        set->op   = msg->op;
        set->num  = msg->num;
        ring_put(&g->own, atomic_load(&g->own.tail), msg);
        work_init(&w);
        work_add(&w, ref);
        work_run(&w);
    }
    set_unlock(set);
    return code;
}

/* A barrier of this kind is complete: its result */
static int poll(struct emu_vbg_set *set, unsigned kind, struct emu_gate_msg *msg)
{
    struct emu_gate *g   = gate_at(set_ref(set));
    uint64_t         due = 0;
    bool             any = false;
    struct work      w;

    if (set->kind != kind) {
        return UTOFU_ERR_BUSY;
    }
    for (unsigned way = 0; way < EMU_GATE_WAYS; way++) {
        struct emu_gate_ring *r = &g->in[way];

        if (atomic_load(&r->source) != UTOFU_VBG_ID_NULL) {
            if (!ring_has(r)) {
                return UTOFU_ERR_NOT_COMPLETED;
            }
            uint64_t d = r->msg[atomic_load(&r->head) % EMU_GATE_RING].due;
            due        = (d > due) ? d : due;
            any        = true;
        }
    }
    if (!emu_timing_completed(due)) {
        return UTOFU_ERR_NOT_COMPLETED;
    }
    if (any) {
        work_init(&w);
        gate_take_inputs(g, msg, &w);
        work_run(&w);
    } else { /* waits for nobody: its own data are the result */
        msg_copy(msg, &g->own.msg[(atomic_load(&g->own.tail) - 1) % EMU_GATE_RING]);
    }
    set->kind = 0;
    if (msg->mismatch || (msg->kind != kind) || (msg->op != set->op) || (msg->num != set->num)) {
        return UTOFU_ERR_BARRIER_MISMATCH;
    }
    return UTOFU_SUCCESS;
}

EMU_EXPORT int utofu_barrier(utofu_vbg_id_t vbg_id, unsigned long int flags)
{
    struct emu_vbg_set *set = emu_vbg_set_of(vbg_id);
    struct emu_gate_msg msg;

    if (set == NULL) {
        return UTOFU_ERR_INVALID_VBG_ID;
    }
    if (flags != 0) {
        return UTOFU_ERR_INVALID_FLAGS;
    }
    msg.kind     = GATE_BARRIER;
    msg.op       = UTOFU_REDUCE_OP_BARRIER;
    msg.num      = 0;
    msg.mismatch = 0;
    msg.due      = emu_timing_barrier_now();
    return start(set, &msg);
}

EMU_EXPORT int utofu_reduce_uint64(utofu_vbg_id_t vbg_id, enum utofu_reduce_op op, uint64_t data[], size_t num_data,
                                   unsigned long int flags)
{
    struct emu_vbg_set *set = emu_vbg_set_of(vbg_id);
    struct emu_gate_msg msg;

    if (set == NULL) {
        return UTOFU_ERR_INVALID_VBG_ID;
    }
    /* OP_BARRIER is no operation on uint64_t: it is what utofu_barrier does */
    if (((int)op < UTOFU_REDUCE_OP_BAND) || ((int)op > UTOFU_REDUCE_OP_SUM)) {
        return UTOFU_ERR_INVALID_OP;
    }
    if (data == NULL) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    if ((num_data == 0) || (num_data > EMU_MAX_REDUCE_U) || ((op == UTOFU_REDUCE_OP_MAXLOC) && (num_data % 2 != 0))) {
        return UTOFU_ERR_INVALID_NUMBER;
    }
    if (flags != 0) {
        return UTOFU_ERR_INVALID_FLAGS;
    }
    msg.kind     = GATE_UINT64;
    msg.op       = (uint8_t)op;
    msg.num      = (uint8_t)num_data;
    msg.mismatch = 0;
    msg.due      = emu_timing_barrier_now();
    memcpy(msg.u, data, num_data * sizeof(data[0]));
    return start(set, &msg);
}

EMU_EXPORT int utofu_reduce_double(utofu_vbg_id_t vbg_id, enum utofu_reduce_op op, double data[], size_t num_data,
                                   unsigned long int flags)
{
    struct emu_vbg_set *set = emu_vbg_set_of(vbg_id);
    struct emu_gate_msg msg;

    if (set == NULL) {
        return UTOFU_ERR_INVALID_VBG_ID;
    }
    if (op != UTOFU_REDUCE_OP_BFPSUM) {
        return UTOFU_ERR_INVALID_OP;
    }
    if (data == NULL) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    if ((num_data == 0) || (num_data > EMU_MAX_REDUCE_D)) {
        return UTOFU_ERR_INVALID_NUMBER;
    }
    if (flags != 0) {
        return UTOFU_ERR_INVALID_FLAGS;
    }
    msg.kind     = GATE_DOUBLE;
    msg.op       = (uint8_t)op;
    msg.num      = (uint8_t)num_data;
    msg.mismatch = 0;
    msg.due      = emu_timing_barrier_now();
    for (size_t i = 0; i < num_data; i++) {
        emu_bfpsum_set(&msg.d[i], data[i]);
    }
    return start(set, &msg);
}

/* Poll one kind.  A poll of another kind than what was started answers as when
 * nothing was: the barrier of that kind has not been started (3.8.2). */
static int poll_kind(utofu_vbg_id_t vbg_id, unsigned long flags, unsigned kind, void *data)
{
    struct emu_vbg_set *set = emu_vbg_set_of(vbg_id);
    struct emu_gate_msg msg;
    int                 code;

    if (set == NULL) {
        return UTOFU_ERR_INVALID_VBG_ID;
    }
    if (flags != 0) {
        return UTOFU_ERR_INVALID_FLAGS;
    }
    if ((kind != GATE_BARRIER) && (data == NULL)) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    set_lock(set);
    code = poll(set, kind, &msg);
    set_unlock(set);
    if (code == UTOFU_ERR_NOT_COMPLETED) {
        emu_idle(&set->idle, EMU_IDLE_SLOW);
    }
    if ((code == UTOFU_SUCCESS) && (kind == GATE_UINT64)) {
        memcpy(data, msg.u, msg.num * sizeof(msg.u[0]));
    } else if ((code == UTOFU_SUCCESS) && (kind == GATE_DOUBLE)) {
        for (unsigned i = 0; i < msg.num; i++) {
            ((double *)data)[i] = emu_bfpsum_get(&msg.d[i]);
        }
    }
    return code;
}

EMU_EXPORT int utofu_poll_barrier(utofu_vbg_id_t vbg_id, unsigned long int flags)
{
    return poll_kind(vbg_id, flags, GATE_BARRIER, NULL);
}

EMU_EXPORT int utofu_poll_reduce_uint64(utofu_vbg_id_t vbg_id, unsigned long int flags, uint64_t data[])
{
    return poll_kind(vbg_id, flags, GATE_UINT64, data);
}

EMU_EXPORT int utofu_poll_reduce_double(utofu_vbg_id_t vbg_id, unsigned long int flags, double data[])
{
    return poll_kind(vbg_id, flags, GATE_DOUBLE, data);
}
