/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_place.h - the node that a process of an emulated job is on, by its rank.
 *
 * The emulator places processes with it; mpi-ext.h answers questions about other
 * processes with it.  The decision is here only.
 */
#ifndef TOFU_PLACE_H
#define TOFU_PLACE_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

/* A unit of the network has 2 x 3 x 2 nodes. */
#define TOFU_DIM_A 2
#define TOFU_DIM_B 3
#define TOFU_DIM_C 2

#define TOFU_PPN_MAX 65535 /* ranks on a node */

/* "v,v,..." of n numbers up to max[i]? */
static __inline__ int tofu_parse_list(const char *text, unsigned n, const unsigned *max, uint8_t *out)
{
    const char   *p = text;
    char         *end;
    unsigned long v;
    unsigned      i;

    for (i = 0; i < n; i++) {
        errno = 0;
        v     = strtoul(p, &end, 10);
        if ((end == p) || errno || (v > max[i]) || (*end != ((i + 1 < n) ? ',' : '\0'))) {
            return 0;
        }
        out[i] = (uint8_t)v;
        p      = end + 1;
    }
    return 1;
}

/* Units of the network, X Y Z: UTOFU_EMU_SHAPE, else 8 x 8 x 16.  0: the variable is
 * not a shape, and is ignored. */
static __inline__ int tofu_place_shape(uint8_t shape[3])
{
    static const unsigned max[] = {255, 255, 255};
    const char           *text  = getenv("UTOFU_EMU_SHAPE");

    if ((text != NULL) && tofu_parse_list(text, 3, max, shape) && shape[0] && shape[1] && shape[2]) {
        return 1;
    }
    shape[0] = 8;
    shape[1] = 8;
    shape[2] = 16;
    return (text == NULL) || (*text == '\0');
}

/* Is there a plain number in the environment? */
static __inline__ int tofu_env_number(const char *name, unsigned long *v_p)
{
    const char   *s = getenv(name);
    char         *end;
    unsigned long v;

    if ((s == NULL) || (*s == '\0')) {
        return 0;
    }
    errno = 0;
    v     = strtoul(s, &end, 10);
    if (errno || (*end != '\0') || (*s == '-')) {
        return 0;
    }
    *v_p = v;
    return 1;
}

/* The i-th variable that launchers give a rank by; NULL when there is none */
static __inline__ const char *tofu_place_rank_variable(unsigned i)
{
    static const char *const vars[] = {"PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK"};

    return (i < sizeof(vars) / sizeof(vars[0])) ? vars[i] : NULL;
}

/* The rank that a launcher gave this process; 0 when none did. */
static __inline__ int tofu_place_rank(unsigned long *rank_p)
{
    const char *name;
    unsigned    i;

    for (i = 0; (name = tofu_place_rank_variable(i)) != NULL; i++) {
        if (tofu_env_number(name, rank_p)) {
            return 1;
        }
    }
    return 0;
}

/* How many ranks are on each node. */
static __inline__ unsigned long tofu_place_ppn(void)
{
    unsigned long ppn = 1;

    return (tofu_env_number("UTOFU_EMU_PPN", &ppn) && (ppn > 0) && (ppn <= TOFU_PPN_MAX)) ? ppn : 1;
}

/* Coordinates (X Y Z A B C) of a node by its number in a network of shape[0] x shape[1] x
 * shape[2] units; 0 when it is outside. */
static __inline__ int tofu_place_coords(unsigned long node, const uint8_t shape[3], uint8_t coords[6])
{
    unsigned long xyz = node / (TOFU_DIM_A * TOFU_DIM_B * TOFU_DIM_C);
    unsigned long abc = node % (TOFU_DIM_A * TOFU_DIM_B * TOFU_DIM_C);

    if (xyz >= (unsigned long)shape[0] * shape[1] * shape[2]) {
        return 0;
    }
    coords[0] = (uint8_t)(xyz % shape[0]);
    coords[1] = (uint8_t)(xyz / shape[0] % shape[1]);
    coords[2] = (uint8_t)(xyz / shape[0] / shape[1]);
    coords[3] = (uint8_t)(abc / (TOFU_DIM_B * TOFU_DIM_C));
    coords[4] = (uint8_t)(abc / TOFU_DIM_C % TOFU_DIM_B);
    coords[5] = (uint8_t)(abc % TOFU_DIM_C);
    return 1;
}

#endif /* TOFU_PLACE_H */
