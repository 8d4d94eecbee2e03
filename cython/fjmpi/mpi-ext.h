/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi-ext.h - where the processes of an MPI job are on the Tofu network, for
 * programs that ask Fujitsu's MPI for it, with any MPI and the emulator.
 *
 * It is a header only, because MPI libraries differ in their ABI: the program's
 * own mpicc compiles it.  On the machine the header of that name is part of the
 * MPI library, and this one is not used.
 *
 * The questions are local on the machine: any process may ask for any rank at any
 * time.  So all coordinates are gathered when MPI starts, where a file that includes
 * this calls MPI_Init or MPI_Init_thread (GCC; a program may define these functions
 * itself, as profilers do, and is then let be).  Else they follow from the ranks, as
 * the emulator places processes by them.  Only when it does not (UTOFU_EMU_COORDS,
 * UTOFU_EMU_NODE, a launcher that names no ranks), all processes must make their first
 * call of these functions together.
 *
 * The logical coordinates count nodes in the order of their lowest rank, X first.
 * UTOFU_EMU_NODE_SHAPE=X[,Y[,Z]] is the shape that a job script would ask for;
 * without it there is one dimension with all nodes.
 */
#ifndef UCT_TOFU_MPI_EXT_H
#define UCT_TOFU_MPI_EXT_H

#include <mpi-ext-next.h> /* Open MPI has a header of this name, too */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utofu.h>

#include "tofu_place.h"

#define FJMPI_SUCCESS MPI_SUCCESS

/* Which coordinates: of the job, of the system, of the system from the job's lowest ones */
#define FJMPI_LOGICAL  0
#define FJMPI_TOFU_SYS 1
#define FJMPI_TOFU_REL 2

/* Their values are ours: above every MPI's own error classes */
#define FJMPI_ERR_TOPOLOGY_INVALID_COMM    0x3f100001
#define FJMPI_ERR_TOPOLOGY_INVALID_RANK    0x3f100002
#define FJMPI_ERR_TOPOLOGY_INVALID_VIEW    0x3f100003
#define FJMPI_ERR_TOPOLOGY_INVALID_COORDS  0x3f100004
#define FJMPI_ERR_TOPOLOGY_NODE_SHARED_JOB 0x3f100005

#ifdef __cplusplus
extern "C" {
#endif

#define FJMPI_EMU_WEAK   __attribute__((weak))
#define FJMPI_EMU_STATIC static __attribute__((unused))

struct fjmpi_emu_process {
    int tofu[6]; /* X Y Z A B C */
    int node;    /* number of its node in this job */
};

struct fjmpi_emu_state {
    int                       size; /* of MPI_COMM_WORLD; 0: not gathered yet */
    int                       dimension, shape[3];
    int                       lowest[6];
    struct fjmpi_emu_process *process;
};

/* one for the whole program, however many of its files include this */
FJMPI_EMU_WEAK struct fjmpi_emu_state fjmpi_emu_state;

/* Shape from the environment; 0 when it is not there or has no room for the nodes */
FJMPI_EMU_STATIC int fjmpi_emu_shape(int nodes, int shape[3])
{
    const char *text = getenv("UTOFU_EMU_NODE_SHAPE"), *p = text;
    long long   room = 1;
    int         n    = 0;

    if ((text == NULL) || (*text == '\0')) {
        return 0;
    }
    while (n < 3) {
        char *end;
        long  v = strtol(p, &end, 10);
        if ((end == p) || (v < 1) || (v > 1000000)) {
            break;
        }
        shape[n++] = (int)v;
        room *= v;
        if (*end == '\0') {
            if (room < nodes) {
                break;
            }
            return n;
        }
        if (*end != ',') {
            break;
        }
        p = end + 1;
    }
    fprintf(stderr, "mpi-ext.h: UTOFU_EMU_NODE_SHAPE=\"%s\" is not a shape for %d nodes; ignored\n", text, nodes);
    return 0;
}

/* Are all processes where their ranks put them?  This one is, and nothing says that
 * others are not. */
FJMPI_EMU_STATIC int fjmpi_emu_by_rank(uint8_t shape[3], unsigned long *ppn_p)
{
    uint8_t       mine[6], rule[6];
    unsigned long rank;
    int           world;

    PMPI_Comm_rank(MPI_COMM_WORLD, &world);
    tofu_place_shape(shape);
    *ppn_p = tofu_place_ppn();
    return (getenv("UTOFU_EMU_COORDS") == NULL) && (getenv("UTOFU_EMU_NODE") == NULL) && tofu_place_rank(&rank) &&
           (rank == (unsigned long)world) && tofu_place_coords(rank / *ppn_p, shape, rule) &&
           (utofu_query_my_coords(mine) == UTOFU_SUCCESS) && (memcmp(mine, rule, sizeof(mine)) == 0);
}

/* Keep the coordinates of all processes: 6 numbers each, and the code of the query. */
FJMPI_EMU_STATIC int fjmpi_emu_keep(const int *got, int size)
{
    struct fjmpi_emu_state   *s = &fjmpi_emu_state;
    struct fjmpi_emu_process *all;
    int                       nodes = 0, i, j, k;

    all = (struct fjmpi_emu_process *)malloc((size_t)size * sizeof(*all));
    if (all == NULL) {
        fprintf(stderr, "mpi-ext.h: out of memory\n");
        PMPI_Abort(MPI_COMM_WORLD, 1);
        abort();
    }
    for (i = 0; i < size; i++) {
        if (got[7 * i + 6] != UTOFU_SUCCESS) {
            free(all);
            return FJMPI_ERR_TOPOLOGY_INVALID_COMM;
        }
        all[i].node = -1;
        for (k = 0; k < 6; k++) {
            all[i].tofu[k] = got[7 * i + k];
            if ((i == 0) || (all[i].tofu[k] < s->lowest[k])) {
                s->lowest[k] = all[i].tofu[k];
            }
        }
        for (j = i - 1; (j >= 0) && (all[i].node < 0); j--) { /* most often the one before it */
            for (k = 0; (k < 6) && (all[j].tofu[k] == all[i].tofu[k]); k++) {
            }
            if (k == 6) {
                all[i].node = all[j].node;
            }
        }
        if (all[i].node < 0) {
            all[i].node = nodes++;
        }
    }
    s->shape[0] = s->shape[1] = s->shape[2] = 0;
    s->dimension = fjmpi_emu_shape(nodes, s->shape);
    if (s->dimension == 0) {
        s->dimension = 1;
        s->shape[0]  = nodes;
        s->shape[1] = s->shape[2] = 0;
    }
    s->process = all;
    s->size    = size;
    return FJMPI_SUCCESS;
}

/* Learn all coordinates; `together`: all processes call it.  Not static, because C lets
 * no inline function that is not static call one that is. */
FJMPI_EMU_WEAK int fjmpi_emu_learn(int together)
{
    uint8_t       mine[6] = {0, 0, 0, 0, 0, 0}, shape[3], c[6] = {0, 0, 0, 0, 0, 0};
    int           send[7], *got, size, code, i, k;
    unsigned long ppn;

    if (fjmpi_emu_state.size != 0) {
        return FJMPI_SUCCESS;
    }
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    got = (int *)malloc((size_t)size * sizeof(send));
    if (got == NULL) {
        fprintf(stderr, "mpi-ext.h: out of memory\n");
        PMPI_Abort(MPI_COMM_WORLD, 1);
        abort();
    }
    if (!together && fjmpi_emu_by_rank(shape, &ppn)) {
        for (i = 0; i < size; i++) {
            got[7 * i + 6] = tofu_place_coords((unsigned long)i / ppn, shape, c) ? UTOFU_SUCCESS :
                                                                                   UTOFU_ERR_INVALID_COORDS;
            for (k = 0; k < 6; k++) {
                got[7 * i + k] = c[k];
            }
        }
    } else {
        send[6] = utofu_query_my_coords(mine);
        for (k = 0; k < 6; k++) {
            send[k] = mine[k];
        }
        PMPI_Allgather(send, 7, MPI_INT, got, 7, MPI_INT, MPI_COMM_WORLD);
    }
    code = fjmpi_emu_keep(got, size);
    free(got);
    return code;
}

FJMPI_EMU_STATIC int fjmpi_emu_setup(void)
{
    return fjmpi_emu_learn(0);
}

/* A definition that is only inlined, and gives way to one of the program's own in the
 * same file, which is GCC's way only. */
#if defined(__GNUC__) && !defined(__clang__)
extern __inline__ __attribute__((gnu_inline, always_inline)) int MPI_Init(int *argc, char ***argv)
{
    int code = PMPI_Init(argc, argv);

    if (code == MPI_SUCCESS) {
        fjmpi_emu_learn(1);
    }
    return code;
}

extern __inline__ __attribute__((gnu_inline, always_inline)) int MPI_Init_thread(int *argc, char ***argv, int required,
                                                                             int *provided)
{
    int code = PMPI_Init_thread(argc, argv, required, provided);

    if (code == MPI_SUCCESS) {
        fjmpi_emu_learn(1);
    }
    return code;
}
#endif

/* The coordinates of a process of MPI_COMM_WORLD in one of the views; returns how many */
FJMPI_EMU_STATIC int fjmpi_emu_coords(int world, int view, int out[6])
{
    const struct fjmpi_emu_state *s    = &fjmpi_emu_state;
    int                           node = s->process[world].node, i;

    if (view == FJMPI_LOGICAL) {
        for (i = 0; i < s->dimension; i++) {
            out[i] = node % s->shape[i];
            node /= s->shape[i];
        }
        return s->dimension;
    }
    for (i = 0; i < 6; i++) {
        out[i] = s->process[world].tofu[i] - ((view == FJMPI_TOFU_REL) ? s->lowest[i] : 0);
    }
    return 6;
}

/* The rank in MPI_COMM_WORLD of a rank of comm; MPI_UNDEFINED: has none */
FJMPI_EMU_STATIC int fjmpi_emu_world_rank(MPI_Comm comm, int rank)
{
    MPI_Group group, world;
    int       result = MPI_UNDEFINED;

    PMPI_Comm_group(comm, &group);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    PMPI_Group_translate_ranks(group, 1, &rank, world, &result);
    PMPI_Group_free(&group);
    PMPI_Group_free(&world);
    return result;
}

/* Number of dimensions of the shape of the job: 1, 2 or 3 */
FJMPI_EMU_STATIC int FJMPI_Topology_get_dimension(int *size)
{
    int code = fjmpi_emu_setup();

    if (code == FJMPI_SUCCESS) {
        *size = fjmpi_emu_state.dimension;
    }
    return code;
}

/* The shape; 0 for dimensions that it has not */
FJMPI_EMU_STATIC int FJMPI_Topology_get_shape(int *x, int *y, int *z)
{
    int code = fjmpi_emu_setup();

    if (code == FJMPI_SUCCESS) {
        *x = fjmpi_emu_state.shape[0];
        *y = fjmpi_emu_state.shape[1];
        *z = fjmpi_emu_state.shape[2];
    }
    return code;
}

/* Coordinates of a rank of comm; as many as there are and maxdims allows */
FJMPI_EMU_STATIC int FJMPI_Topology_get_coords(MPI_Comm comm, int rank, int view, int maxdims, int coords[])
{
    int code = fjmpi_emu_setup(), c[6], count, size, world, i;

    if (code != FJMPI_SUCCESS) {
        return code;
    }
    if (comm == MPI_COMM_NULL) {
        return FJMPI_ERR_TOPOLOGY_INVALID_COMM;
    }
    if ((view != FJMPI_LOGICAL) && (view != FJMPI_TOFU_SYS) && (view != FJMPI_TOFU_REL)) {
        return FJMPI_ERR_TOPOLOGY_INVALID_VIEW;
    }
    PMPI_Comm_size(comm, &size);
    if ((rank < 0) || (rank >= size)) {
        return FJMPI_ERR_TOPOLOGY_INVALID_RANK;
    }
    world = fjmpi_emu_world_rank(comm, rank);
    if (world == MPI_UNDEFINED) {
        return FJMPI_ERR_TOPOLOGY_INVALID_COMM;
    }
    count = fjmpi_emu_coords(world, view, c);
    for (i = 0; (i < count) && (i < maxdims); i++) {
        coords[i] = c[i];
    }
    return FJMPI_SUCCESS;
}

/* The ranks of comm on the node with these coordinates: the first maxppn of them;
 * outppn says how many there are */
FJMPI_EMU_STATIC int FJMPI_Topology_get_ranks(MPI_Comm comm, int view, const int coords[], int maxppn, int *outppn,
                                              int ranks[])
{
    int code = fjmpi_emu_setup(), c[6], count, size, world, found = 0, rank, i;

    if (code != FJMPI_SUCCESS) {
        return code;
    }
    if (comm == MPI_COMM_NULL) {
        return FJMPI_ERR_TOPOLOGY_INVALID_COMM;
    }
    if ((view != FJMPI_LOGICAL) && (view != FJMPI_TOFU_SYS) && (view != FJMPI_TOFU_REL)) {
        return FJMPI_ERR_TOPOLOGY_INVALID_VIEW;
    }
    PMPI_Comm_size(comm, &size);
    for (rank = 0; rank < size; rank++) {
        world = fjmpi_emu_world_rank(comm, rank);
        if (world == MPI_UNDEFINED) {
            return FJMPI_ERR_TOPOLOGY_INVALID_COMM;
        }
        count = fjmpi_emu_coords(world, view, c);
        for (i = 0; (i < count) && (c[i] == coords[i]); i++) {
        }
        if (i == count) {
            if (found < maxppn) {
                ranks[found] = rank;
            }
            found++;
        }
    }
    *outppn = found;
    return found ? FJMPI_SUCCESS : FJMPI_ERR_TOPOLOGY_INVALID_COORDS;
}

#ifdef __cplusplus
}
#endif

#endif /* UCT_TOFU_MPI_EXT_H */
