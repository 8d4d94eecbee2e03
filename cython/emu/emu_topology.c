/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_topology.c - coordinates, VCQ IDs and paths of the emulated network.
 *
 * The network is X x Y x Z units of 2 x 3 x 2 nodes (A, B, C).  A process is on
 * the node that UTOFU_EMU_COORDS names, else on the one of that number
 * (UTOFU_EMU_NODE), else on node number rank / PPN with the rank that a launcher
 * gave it, else with the number of its slot in the job: that is a node of its own
 * unless others were told theirs, or it is one of PPN.
 */
#include "emu_internal.h"

#include "tofu_place.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* VCQ ID: tag(16) X(8) Y(8) Z(8) A(1) B(2) C(1) TNI(3) CQ(4) CMP(3) 0(6) path A(1) B(2) C(1) */
#define ID_ZEROS 0x3f0ull

static uint8_t emu_shape[3] = {8, 8, 16};

void emu_shape_get(unsigned size[3])
{
    for (unsigned i = 0; i < 3; i++) {
        size[i] = emu_shape[i];
    }
}

uint64_t emu_coords_key(const uint8_t c[6])
{
    return EMU_NODE_USED | ((uint64_t)c[0] << 40) | ((uint64_t)c[1] << 32) | ((uint64_t)c[2] << 24) |
           ((uint64_t)c[3] << 16) | ((uint64_t)c[4] << 8) | c[5];
}

bool emu_path_valid(const uint8_t p[3])
{
    return (p[0] < TOFU_DIM_A) && (p[1] < TOFU_DIM_B) && (p[2] < TOFU_DIM_C);
}

bool emu_coords_valid(const uint8_t c[6])
{
    return (c[0] < emu_shape[0]) && (c[1] < emu_shape[1]) && (c[2] < emu_shape[2]) && emu_path_valid(c + 3);
}

static unsigned path_bits(const uint8_t p[3])
{
    return ((unsigned)p[0] << 3) | ((unsigned)p[1] << 1) | p[2];
}

static void path_from_bits(unsigned bits, uint8_t p[3])
{
    p[0] = (bits >> 3) & 1;
    p[1] = (bits >> 1) & 3;
    p[2] = bits & 1;
}

uint64_t emu_vcq_id_encode(const struct emu_vcq_name *n)
{
    return (EMU_VCQ_ID_TAG << 48) | ((uint64_t)n->coords[0] << 40) | ((uint64_t)n->coords[1] << 32) |
           ((uint64_t)n->coords[2] << 24) | ((uint64_t)path_bits(n->coords + 3) << 20) | ((uint64_t)n->tni << 17) |
           ((uint64_t)n->cq << 13) | ((uint64_t)n->cmp << 10) | path_bits(n->path);
}

bool emu_vcq_id_decode(uint64_t id, struct emu_vcq_name *n)
{
    if (((id >> 48) != EMU_VCQ_ID_TAG) || (id & ID_ZEROS)) {
        return false;
    }
    n->coords[0] = (uint8_t)(id >> 40);
    n->coords[1] = (uint8_t)(id >> 32);
    n->coords[2] = (uint8_t)(id >> 24);
    path_from_bits((unsigned)(id >> 20) & 0xf, n->coords + 3);
    n->tni = (id >> 17) & 7;
    n->cq  = (id >> 13) & 15;
    n->cmp = (id >> 10) & 7;
    path_from_bits((unsigned)id & 0xf, n->path);
    return emu_coords_valid(n->coords) && emu_path_valid(n->path) && (n->tni < EMU_NUM_TNIS) && (n->cq < EMU_NUM_CQS);
}

/* Says of a variable that it does not count. */
static void ignored(const char *name, unsigned long least, unsigned long most)
{
    const char   *s = getenv(name);
    unsigned long v;

    if ((s == NULL) || (*s == '\0')) {
        return;
    }
    if (!tofu_env_number(name, &v) || (v < least)) {
        emu_message("%s=\"%s\" is not a number from %lu on; ignored", name, s, least);
    } else if (v > most) {
        emu_message("%s=\"%s\" is more than %lu; ignored", name, s, most);
    }
}

/* The variable that a launcher gave the rank by; says of those before it that they are none.  NULL: it gave none */
static const char *rank_variable(unsigned long *rank_p)
{
    const char *name, *s;

    for (unsigned i = 0; (name = tofu_place_rank_variable(i)) != NULL; i++) {
        if (tofu_env_number(name, rank_p)) {
            return name;
        }
        s = getenv(name);
        if ((s != NULL) && (*s != '\0')) {
            emu_message("%s=\"%s\" is no rank; ignored", name, s);
        }
    }
    return NULL;
}

/* A node by its number.  from: what the number was made of */
static int place(unsigned long node, const char *from)
{
    static unsigned long said = ULONG_MAX; /* each call of the program tries again */
    unsigned nodes = (unsigned)emu_shape[0] * emu_shape[1] * emu_shape[2] * TOFU_DIM_A * TOFU_DIM_B * TOFU_DIM_C;

    if (tofu_place_coords(node, emu_shape, emu_g.coords)) {
        return UTOFU_SUCCESS;
    }
    if (said == node) {
        return UTOFU_ERR_INVALID_COORDS;
    }
    said = node;
    emu_message("node %lu (%s) is outside the network of %u x %u x %u units (UTOFU_EMU_SHAPE), which has the "
                "nodes 0 to %u",
                node, from, emu_shape[0], emu_shape[1], emu_shape[2], nodes - 1);
    return UTOFU_ERR_INVALID_COORDS;
}

int emu_topology_init(void)
{
    unsigned long node, rank, ppn = tofu_place_ppn();
    const char   *s = getenv("UTOFU_EMU_COORDS"), *name;
    char          from[96];

    emu_g.node_rank = emu_g.node_size = 0;
    if (!tofu_place_shape(emu_shape)) {
        emu_message("UTOFU_EMU_SHAPE=\"%s\" is not a list of 3 numbers in range (1 to 255); ignored",
                    getenv("UTOFU_EMU_SHAPE"));
    }
    ignored("UTOFU_EMU_NODE", 0, UINT64_MAX);
    ignored("UTOFU_EMU_PPN", 1, TOFU_PPN_MAX);
    if ((s != NULL) && (*s != '\0')) {
        const unsigned max[] = {emu_shape[0] - 1u, emu_shape[1] - 1u, emu_shape[2] - 1u,
                                TOFU_DIM_A - 1,    TOFU_DIM_B - 1,    TOFU_DIM_C - 1};
        if (tofu_parse_list(s, 6, max, emu_g.coords)) {
            return UTOFU_SUCCESS;
        }
        emu_message("UTOFU_EMU_COORDS=\"%s\" is not a list of 6 numbers in range (0,0,0,0,0,0 to %u,%u,%u,%u,%u,%u); "
                    "ignored", s, max[0], max[1], max[2], max[3], max[4], max[5]);
    }
    if (tofu_env_number("UTOFU_EMU_NODE", &node)) {
        return place(node, "UTOFU_EMU_NODE");
    }
    name = rank_variable(&rank);
    if (name != NULL) {
        emu_g.node_rank = (uint32_t)(rank % ppn);
        emu_g.node_size = (uint32_t)ppn;
        snprintf(from, sizeof(from), "%s is %lu, with %lu on each node", name, rank, ppn);
    } else {
        rank = emu_g.slot;
        snprintf(from, sizeof(from), "slot %lu of the job, with %lu on each node", rank, ppn);
    }
    return place(rank / ppn, from);
}

/* Path IDs are never 0, so that a flags argument without a path is told apart */
#define PATH_ID_TAG 0x80u

bool emu_path_id_valid(unsigned path_id)
{
    uint8_t p[3];

    path_from_bits(path_id & 0xf, p);
    return ((path_id & ~0xfu) == PATH_ID_TAG) && emu_path_valid(p);
}

void emu_path_of_id(unsigned path_id, uint8_t path[3])
{
    path_from_bits(path_id & 0xf, path);
}

EMU_EXPORT int utofu_get_path_id(utofu_vcq_id_t vcq_id, uint8_t path_coords[], utofu_path_id_t *path_id)
{
    struct emu_vcq_name name;
    int                 code = emu_ready();

    if (code != UTOFU_SUCCESS) {
        return code;
    }
    if (!emu_vcq_id_decode(vcq_id, &name)) {
        return UTOFU_ERR_INVALID_VCQ_ID;
    }
    if (path_id == NULL) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    /* a suitable path: straight to the target's A, B, C */
    if (path_coords == NULL) {
        path_coords = name.coords + 3;
    }
    if (!emu_path_valid(path_coords)) {
        return UTOFU_ERR_INVALID_PATH;
    }
    *path_id = (utofu_path_id_t)(PATH_ID_TAG | path_bits(path_coords));
    return UTOFU_SUCCESS;
}

EMU_EXPORT int utofu_get_path_coords(utofu_vcq_id_t vcq_id, utofu_path_id_t path_id, uint8_t path_coords[])
{
    struct emu_vcq_name name;
    int                 code = emu_ready();

    if (code != UTOFU_SUCCESS) {
        return code;
    }
    if (!emu_vcq_id_decode(vcq_id, &name)) {
        return UTOFU_ERR_INVALID_VCQ_ID;
    }
    if (!emu_path_id_valid(path_id)) {
        return UTOFU_ERR_INVALID_PATH_ID;
    }
    if (path_coords == NULL) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    path_from_bits(path_id & 0xf, path_coords);
    return UTOFU_SUCCESS;
}

EMU_EXPORT int utofu_construct_vcq_id(uint8_t coords[], utofu_tni_id_t tni_id, utofu_cq_id_t cq_id,
                                      utofu_cmp_id_t cmp_id, utofu_vcq_id_t *vcq_id)
{
    struct emu_vcq_name name;
    int                 code = emu_ready();

    if (code != UTOFU_SUCCESS) {
        return code;
    }
    if ((coords == NULL) || (vcq_id == NULL)) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    if (!emu_coords_valid(coords)) {
        return UTOFU_ERR_INVALID_COORDS;
    }
    if (tni_id >= EMU_NUM_TNIS) {
        return UTOFU_ERR_INVALID_TNI_ID;
    }
    if (cq_id >= EMU_NUM_CQS) {
        return UTOFU_ERR_INVALID_CQ_ID;
    }
    if (cmp_id >= EMU_NUM_CMPS) {
        return UTOFU_ERR_INVALID_CMP_ID;
    }
    memcpy(name.coords, coords, 6);
    memcpy(name.path, coords + 3, 3);
    name.tni = tni_id;
    name.cq  = cq_id;
    name.cmp = cmp_id;
    *vcq_id  = emu_vcq_id_encode(&name);
    return UTOFU_SUCCESS;
}

EMU_EXPORT int utofu_set_vcq_id_path(utofu_vcq_id_t *vcq_id, uint8_t path_coords[])
{
    struct emu_vcq_name name;
    int                 code = emu_ready();

    if (code != UTOFU_SUCCESS) {
        return code;
    }
    if (vcq_id == NULL) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    if (!emu_vcq_id_decode(*vcq_id, &name)) {
        return UTOFU_ERR_INVALID_VCQ_ID;
    }
    if (path_coords == NULL) {
        path_coords = name.coords + 3;
    }
    if (!emu_path_valid(path_coords)) {
        return UTOFU_ERR_INVALID_PATH;
    }
    memcpy(name.path, path_coords, 3);
    *vcq_id = emu_vcq_id_encode(&name);
    return UTOFU_SUCCESS;
}

EMU_EXPORT int utofu_query_vcq_info(utofu_vcq_id_t vcq_id, uint8_t coords[], utofu_tni_id_t *tni_id,
                                    utofu_cq_id_t *cq_id, uint16_t *extra_val)
{
    struct emu_vcq_name name;
    int                 code = emu_ready();

    if (code != UTOFU_SUCCESS) {
        return code;
    }
    if (!emu_vcq_id_decode(vcq_id, &name)) {
        return UTOFU_ERR_INVALID_VCQ_ID;
    }
    if ((coords == NULL) || (tni_id == NULL) || (cq_id == NULL) || (extra_val == NULL)) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    memcpy(coords, name.coords, 6);
    *tni_id    = name.tni;
    *cq_id     = name.cq;
    *extra_val = name.cmp;
    return UTOFU_SUCCESS;
}

EMU_EXPORT int utofu_query_my_coords(uint8_t coords[])
{
    int code = emu_ready();

    if (code != UTOFU_SUCCESS) {
        return code;
    }
    if (coords == NULL) {
        return UTOFU_ERR_INVALID_POINTER;
    }
    memcpy(coords, emu_g.coords, 6);
    return UTOFU_SUCCESS;
}
