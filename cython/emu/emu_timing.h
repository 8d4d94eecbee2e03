/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_timing.h - the parts of the timed mode: its parameters (emu_profile.c), what this
 * machine takes by itself (emu_floor.c), and the model (emu_timing.c), which uses both.
 */
#ifndef EMU_TIMING_H
#define EMU_TIMING_H

#include "emu_modes.h"

/* ns; ns per byte.  Names and sources are those of docs/timing.md. */
enum parameter {
    P_PUT,        /* 8-byte put, post to seen, one hop */
    P_PIGGYBACK,  /* what a piggyback saves */
    P_INJECTION,  /* what cache injection saves */
    P_LARGE,      /* what a put of P_LARGE_FROM bytes and more adds */
    P_LARGE_FROM, /* bytes */
    P_GET,        /* round trip without hops */
    P_ARMW,       /* round trip without hops */
    P_HOP,        /* a hop, one way */
    P_BYTE,       /* a byte on a link or TNI */
    P_MESSAGE,    /* between two messages of a CQ */
    P_POST,       /* CPU time of a post */
    P_TCQ,        /* post to TCQ notice, without data */
    P_BARRIER,    /* barrier without steps */
    P_STEP,       /* a packet of a barrier */
    P_FLOOR,      /* what the store-to-load way of this machine takes; 0: measured */
    PARAMETERS
};

/* The parameters that UTOFU_EMU_TIMING names; false: the mode is off. */
bool emu_profile_read(double ns[PARAMETERS]);

/* emu_processor.c: what it takes from a call that posts to its first look at the clock, and from the last
 * one to the store, as a share of what a call takes that posts nothing for anybody */
extern double emu_entry_share;
#define EMU_ENTRY_SHARE_LOCAL 0.9 /* the same of a local notice, which is not stored for another CPU */

/* emu_processor.c: emu_floor.c waits as puts do, and takes two thirds of what it sees; else as it did before */
extern bool emu_floor_waits;

/* One way of an 8-byte store to a load on another CPU that has been looking for a while, and
 * emu_way_probe of such a line, in ns; 0: not known.  Takes 0.2 s at most, or some seconds where the
 * CPUs are busy with other things. */
struct emu_floor {
    double way, probe;
};
struct emu_floor emu_floor_measure(void);

/* emu_way.c: is it known of this processor that the way depends on the line? */
bool emu_way_is_by_line(void);
void emu_way_init(struct emu_floor floor_);
/* Ticks that an atomic instruction takes there which changes nothing */
uint64_t emu_way_probe(void *at);

/* For qsort of uint64_t */
static inline int emu_by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

#endif /* EMU_TIMING_H */
