/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_vbg.c - virtual barrier gates: allocating, setting, asking (3.4).
 *
 * A VBG is a barrier gate of a TNI.  The gates of a node are shared by its
 * processes; who has which is in the control segment.  What one utofu_alloc_vbg
 * returned is a set: a start gate and relay gates.  Sets are known only to their
 * process, by the number of the start gate.
 */
#include "emu_internal.h"
#include "emu_job.h"

#include <string.h>

/* VBG ID: TNI(3) 0(1) C(1) B(2) A(1) Z(8) Y(8) X(8) tag(10) owners(16) BG(6).  Node, TNI and BG
 * are where they are on Fugaku: RIKEN's utf reads them there, and makes IDs of its peers'
 * gates, without tag and count of owners. */
#define ID_TAG        0x2d5ull
#define ID_TAG_SHIFT  22
#define ID_GEN_SHIFT  6
#define ID_GEN_MASK   0xffffull
#define ID_GEN(count) ((count) % ID_GEN_MASK + 1) /* never 0 */
#define ID_OURS       (0x3ffull << ID_TAG_SHIFT | ID_GEN_MASK << ID_GEN_SHIFT)

static struct emu_vbg_set sets[EMU_NUM_TNIS][EMU_START_GATES];

/* --------------------------------------------------------------------- names */

struct vbg_name {
    uint8_t  coords[6];
    uint16_t tni, bg, gen;
};

static uint64_t id_encode(const struct vbg_name *n)
{
    return ((uint64_t)n->tni << 61) | ((uint64_t)n->coords[5] << 59) | ((uint64_t)n->coords[4] << 57) |
           ((uint64_t)n->coords[3] << 56) | ((uint64_t)n->coords[2] << 48) | ((uint64_t)n->coords[1] << 40) |
           ((uint64_t)n->coords[0] << 32) | (ID_TAG << ID_TAG_SHIFT) | ((uint64_t)n->gen << ID_GEN_SHIFT) | n->bg;
}

/* What it says of the place; false: there is none such, or it has bits that say nothing. */
static bool place_decode(uint64_t id, struct vbg_name *n)
{
    n->tni       = (uint16_t)(id >> 61);
    n->coords[5] = (id >> 59) & 1;
    n->coords[4] = (id >> 57) & 3;
    n->coords[3] = (id >> 56) & 1;
    n->coords[2] = (uint8_t)(id >> 48);
    n->coords[1] = (uint8_t)(id >> 40);
    n->coords[0] = (uint8_t)(id >> 32);
    n->gen       = (id >> ID_GEN_SHIFT) & ID_GEN_MASK;
    n->bg        = id & 63;
    return !((id >> 60) & 1) && emu_coords_valid(n->coords) && (n->tni < EMU_NUM_TNIS) && (n->bg < EMU_NUM_GATES);
}

static bool id_decode(uint64_t id, struct vbg_name *n)
{
    return place_decode(id, n) && ((id >> ID_TAG_SHIFT & 0x3ff) == ID_TAG) && (n->gen != 0);
}

/* Made from coordinates, TNI and BG by a program? */
static bool id_is_made(uint64_t id, struct vbg_name *n)
{
    return place_decode(id, n) && ((id & ID_OURS) == 0);
}

uint32_t emu_vbg_id_index(uint64_t id)
{
    uint32_t tni = (uint32_t)(id >> 61), bg = id & 63;

    return (tni < EMU_NUM_TNIS) && (bg < EMU_NUM_GATES) ? tni * EMU_NUM_GATES + bg : EMU_NODE_GATES;
}

struct emu_vbg_set *emu_vbg_set_of(uint64_t id)
{
    uint32_t            index = emu_vbg_id_index(id);
    struct emu_vbg_set *set;

    if (emu_ready() != UTOFU_SUCCESS) {
        return NULL;
    }
    if ((index >= EMU_NODE_GATES) || (index % EMU_NUM_GATES >= EMU_START_GATES)) {
        return NULL;
    }
    set = &sets[index / EMU_NUM_GATES][index % EMU_NUM_GATES];
    /* after fork the sets are the parent's */
    if ((set->num_ids == 0) || (set->id[0] != id) || (set->slot != emu_g.slot) || (set->gen != emu_g.gen)) {
        return NULL;
    }
    return set;
}

/* ------------------------------------------------------- allocate and free */

/* Free gates of a kind on a TNI, from `from` up; fewer than want: not enough (control locked). */
static unsigned take(struct emu_gate_slot *gates, unsigned from, unsigned num, unsigned want, unsigned *found)
{
    unsigned n = 0;

    for (unsigned bg = from; (bg < from + num) && (n < want); bg++) {
        if (atomic_load(&gates[bg].id) == 0) {
            found[n++] = bg;
        }
    }
    return n;
}

/* Choose a start gate and relay gates (control locked). */
static bool choose(struct emu_gate_slot *gates, unsigned num, unsigned *found)
{
    for (unsigned attempt = 0; attempt < 2; attempt++) {
        if ((take(gates, 0, EMU_START_GATES, 1, found) == 1) &&
            (take(gates, EMU_START_GATES, EMU_RELAY_GATES, num - 1, found + 1) == num - 1)) {
            return true;
        }
        /* perhaps a process died with some */
        for (unsigned bg = 0; bg < EMU_NUM_GATES; bg++) {
            uint32_t owner = gates[bg].owner;

            if ((atomic_load(&gates[bg].id) != 0) && (owner < EMU_MAX_PROCS) && (owner != emu_g.slot) &&
                !emu_slot_alive(&emu_g.control->slot[owner])) {
                emu_control_reclaim(owner);
            }
        }
    }
    return false;
}

/* Give a gate back (control locked) */
static void release(uint32_t node, uint32_t index)
{
    atomic_store(&emu_g.control->node[node].gate[index].id, 0);
    emu_gate_clear(node, index);
}

void emu_gates_reclaim(uint32_t node, uint32_t slot)
{
    struct emu_gate_slot *gates = emu_g.control->node[node].gate;

    for (uint32_t i = 0; i < EMU_NODE_GATES; i++) {
        if ((atomic_load(&gates[i].id) != 0) && (gates[i].owner == slot)) {
            release(node, i);
        }
    }
}

bool emu_gates_used(const struct emu_node *node)
{
    for (uint32_t i = 0; i < EMU_NODE_GATES; i++) {
        if (atomic_load(&node->gate[i].id) != 0) {
            return true;
        }
    }
    return false;
}

EMU_EXPORT int utofu_alloc_vbg(utofu_tni_id_t tni_id, size_t num_vbgs, unsigned long int flags,
                               utofu_vbg_id_t vbg_ids[])
{
    unsigned              found[1 + EMU_RELAY_GATES];
    struct emu_gate_slot *gates;
    struct emu_vbg_set   *set;
    int                   code = emu_ready();

    if (code != UTOFU_SUCCESS) {
        return code;
    }
    if (tni_id >= EMU_NUM_TNIS) {
        return UTOFU_ERR_INVALID_TNI_ID;
    }
    if (num_vbgs == 0) {
        return UTOFU_ERR_INVALID_NUMBER;
    }
    if (flags & ~UTOFU_VBG_FLAG_THREAD_SAFE) {
        return UTOFU_ERR_INVALID_FLAGS;
    }
    if (vbg_ids == NULL) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    if (num_vbgs > 1 + EMU_RELAY_GATES) {
        return UTOFU_ERR_FULL;
    }
    emu_lock(&emu_g.lock);
    if (!emu_control_lock()) {
        emu_unlock(&emu_g.lock);
        return UTOFU_ERR_OUT_OF_RESOURCE;
    }
    gates = &emu_g.control->node[emu_g.node].gate[tni_id * EMU_NUM_GATES];
    if (!choose(gates, (unsigned)num_vbgs, found)) {
        code = UTOFU_ERR_FULL;
    } else {
        set          = &sets[tni_id][found[0]];
        set->num_ids = (uint32_t)num_vbgs;
        set->flags   = (uint32_t)flags;
        set->slot    = emu_g.slot;
        set->gen     = emu_g.gen;
        set->kind    = 0;
        pthread_mutex_init(&set->lock, NULL);
        for (unsigned i = 0; i < num_vbgs; i++) {
            struct vbg_name       name = {.tni = tni_id, .bg = (uint16_t)found[i]};
            struct emu_gate_slot *g    = &gates[found[i]];

            memcpy(name.coords, emu_g.coords, sizeof(name.coords));
            name.gen   = ID_GEN(atomic_load(&g->gen) + 1);
            g->owner   = emu_g.slot; /* before the ID: whoever sees that can reclaim it */
            set->id[i] = id_encode(&name);
            emu_gate_clear(emu_g.node, tni_id * EMU_NUM_GATES + found[i]);
            atomic_store(&g->id, set->id[i]);
            atomic_fetch_add(&g->gen, 1);
            vbg_ids[i] = set->id[i];
        }
    }
    emu_control_unlock();
    emu_unlock(&emu_g.lock);
    return code;
}

/* Position of an ID in a set; num_ids: it is not there */
static uint32_t position(const struct emu_vbg_set *set, uint64_t id)
{
    uint32_t i = 0;

    while ((i < set->num_ids) && (set->id[i] != id)) {
        i++;
    }
    return i;
}

/* All of num IDs, at `stride` bytes, are of the set of the first, each once.
 * NULL: not, or the first is no start gate of this process. */
static struct emu_vbg_set *common_set(const void *ids, size_t stride, size_t num)
{
    struct emu_vbg_set *set  = emu_vbg_set_of(*(const utofu_vbg_id_t *)ids);
    uint64_t            seen = 0;

    if ((set == NULL) || (num > set->num_ids)) {
        return NULL;
    }
    for (size_t i = 0; i < num; i++) {
        uint32_t at = position(set, *(const utofu_vbg_id_t *)((const char *)ids + i * stride));

        if ((at == set->num_ids) || (seen & ((uint64_t)1 << at))) {
            return NULL;
        }
        seen |= (uint64_t)1 << at;
    }
    return set;
}

EMU_EXPORT int utofu_free_vbg(utofu_vbg_id_t vbg_ids[], size_t num_vbgs)
{
    struct emu_vbg_set *set;
    int                 code = emu_ready();

    if (code != UTOFU_SUCCESS) {
        return code;
    }
    if (vbg_ids == NULL) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    if (num_vbgs == 0) {
        return UTOFU_ERR_INVALID_NUMBER;
    }
    emu_lock(&emu_g.lock);
    set = common_set(vbg_ids, sizeof(vbg_ids[0]), num_vbgs);
    if ((set == NULL) || (num_vbgs != set->num_ids)) {
        code = UTOFU_ERR_INVALID_VBG_ID;
    } else if (!emu_control_lock()) {
        code = UTOFU_ERR_OUT_OF_RESOURCE;
    } else {
        for (uint32_t i = 0; i < set->num_ids; i++) {
            release(emu_g.node, emu_vbg_id_index(set->id[i]));
        }
        set->num_ids = 0;
        pthread_mutex_destroy(&set->lock);
        emu_control_unlock();
    }
    emu_unlock(&emu_g.lock);
    return code;
}

/* --------------------------------------------------------------------- set */

/* A signal's other end: none, or another gate of the TNI of `own` */
static bool local_ok(uint64_t id, const struct vbg_name *own)
{
    struct vbg_name name;

    return (id == UTOFU_VBG_ID_NULL) || (id_decode(id, &name) && !memcmp(name.coords, own->coords, 6) &&
                                         (name.tni == own->tni) && (name.bg != own->bg));
}

/* A packet's other end: none, or any gate */
static bool remote_ok(uint64_t id)
{
    struct vbg_name name;

    return (id == UTOFU_VBG_ID_NULL) || id_decode(id, &name) ||
           (id_is_made(id, &name) && (emu_node_of(name.coords) < EMU_MAX_NODES));
}

static int setting_check(const struct utofu_vbg_setting *s)
{
    struct vbg_name own;

    if (!id_decode(s->vbg_id, &own) || !local_ok(s->src_lcl_vbg_id, &own) || !local_ok(s->dst_lcl_vbg_id, &own) ||
        !remote_ok(s->src_rmt_vbg_id) || !remote_ok(s->dst_rmt_vbg_id)) {
        return UTOFU_ERR_INVALID_VBG_ID;
    }
    /* the path of a packet that is not sent does not matter */
    if ((s->dst_rmt_vbg_id != UTOFU_VBG_ID_NULL) && (s->dst_path_coords[0] != UTOFU_PATH_COORD_NULL) &&
        !emu_path_valid(s->dst_path_coords)) {
        return UTOFU_ERR_INVALID_PATH;
    }
    return UTOFU_SUCCESS;
}

/* The other end of a signal or packet, and the node where it is, if there is one.  An ID that a
 * program made is that of the gate's owner, or of its next one. */
static uint64_t other_end(uint64_t id, uint32_t *node)
{
    struct vbg_name name;

    *node = EMU_MAX_NODES;
    if (id == UTOFU_VBG_ID_NULL) {
        return id;
    }
    if (id_is_made(id, &name)) {
        *node = emu_node_of(name.coords);
        struct emu_gate_slot *g    = &emu_g.control->node[*node].gate[emu_vbg_id_index(id)];
        uint32_t              next = atomic_load(&g->gen) + 1; /* before the ID: it is counted after that was stored */
        uint64_t              have = atomic_load(&g->id);

        name.gen = ID_GEN(next);
        return (have != 0) ? have : id_encode(&name);
    }
    if (id_decode(id, &name)) {
        *node = emu_node_of(name.coords);
    }
    return id;
}

static void setting_apply(const struct utofu_vbg_setting *s)
{
    const uint64_t source[EMU_GATE_WAYS] = {s->src_lcl_vbg_id, s->src_rmt_vbg_id};
    const uint64_t target[EMU_GATE_WAYS] = {s->dst_lcl_vbg_id, s->dst_rmt_vbg_id};
    struct emu_gate_ends ends;

    for (unsigned way = 0; way < EMU_GATE_WAYS; way++) {
        ends.source[way] = other_end(source[way], &ends.source_node[way]);
        ends.target[way] = other_end(target[way], &ends.target_node[way]);
    }
    emu_gate_set(emu_g.node, emu_vbg_id_index(s->vbg_id), &ends);
}

EMU_EXPORT int utofu_set_vbg(struct utofu_vbg_setting vbg_settings[], size_t num_vbg_settings)
{
    struct emu_vbg_set *set;
    int                 code = emu_ready();

    if (code != UTOFU_SUCCESS) {
        return code;
    }
    if (vbg_settings == NULL) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    if (num_vbg_settings == 0) {
        return UTOFU_ERR_INVALID_NUMBER;
    }
    set = emu_vbg_set_of(vbg_settings[0].vbg_id);
    if (set == NULL) {
        return UTOFU_ERR_INVALID_VBG_ID;
    }
    if (num_vbg_settings > set->num_ids) {
        return UTOFU_ERR_INVALID_NUMBER;
    }
    if (common_set(&vbg_settings[0].vbg_id, sizeof(vbg_settings[0]), num_vbg_settings) == NULL) {
        return UTOFU_ERR_INVALID_VBG_ID;
    }
    for (size_t i = 0; i < num_vbg_settings; i++) {
        code = setting_check(&vbg_settings[i]);
        if (code != UTOFU_SUCCESS) {
            return code;
        }
    }
    for (size_t i = 0; i < num_vbg_settings; i++) {
        setting_apply(&vbg_settings[i]);
    }
    set->kind = 0; /* a barrier that was under way is given up: its circuit is gone */
    return UTOFU_SUCCESS;
}

EMU_EXPORT int utofu_query_vbg_info(utofu_vbg_id_t vbg_id, uint8_t coords[], utofu_tni_id_t *tni_id,
                                    utofu_bg_id_t *bg_id, uint16_t *extra_val)
{
    struct vbg_name name;
    int             code = emu_ready();

    if (code != UTOFU_SUCCESS) {
        return code;
    }
    if (!id_decode(vbg_id, &name)) {
        return UTOFU_ERR_INVALID_VBG_ID;
    }
    if ((coords == NULL) || (tni_id == NULL) || (bg_id == NULL) || (extra_val == NULL)) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    memcpy(coords, name.coords, 6);
    *tni_id    = name.tni;
    *bg_id     = name.bg;
    *extra_val = name.gen;
    return UTOFU_SUCCESS;
}
