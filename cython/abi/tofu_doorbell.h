/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_doorbell.h - a page by which a program asks to be woken for an MRQ.
 *
 * uTofu has queues that are polled, and no descriptor to sleep on.  A program that
 * wants to sleep makes a nonblocking AF_UNIX datagram socket with an abstract name
 * and a memfd called TOFU_DOORBELL_MEMFD, sealed against shrinking; it maps the
 * memfd shared, fills the page as below and registers it with a VCQ by
 * utofu_reg_mem, read-only.  To a library that knows nothing of doorbells that is
 * registered memory like any other, and `acknowledged` stays 0: the program then
 * polls by a timer.  A library that knows them (the emulator) sets it to 1.  Then:
 *
 *   1. The program reads its socket empty, stores TOFU_DOORBELL_ARM into `state`,
 *      reads the TCQ until NOT_FOUND, and polls the MRQ.
 *   2. A utofu_poll_mrq that finds nothing sees ARM and looks again in a way that no
 *      notice can slip through.  TOFU_DOORBELL_ARMED: from here on whatever comes
 *      into the MRQ or the TCQ of the VCQ sends a datagram to the socket.  Otherwise
 *      it leaves ARM: there is work, or will be at once.
 *   3. The program may sleep in poll() if and only if `state` is ARMED.
 *
 * One datagram is sent for each arming; more may come, from anybody.  A sender that
 * is killed between its notice and its datagram wakes nobody, so the program sleeps
 * with a limit (a tenth of a second, say).  utofu_dereg_mem ends it.
 */
#ifndef TOFU_DOORBELL_H
#define TOFU_DOORBELL_H

#include <stdatomic.h>
#include <stdint.h>

#define TOFU_DOORBELL_MEMFD    "utofu_doorbell"
#define TOFU_DOORBELL_MAGIC    0x6c6c65625f666f74ull
#define TOFU_DOORBELL_VERSION  1u
#define TOFU_DOORBELL_NAME_MAX 32u

enum { TOFU_DOORBELL_IDLE, TOFU_DOORBELL_ARM, TOFU_DOORBELL_ARMED };

struct tofu_doorbell { /* at the start of what is registered */
    uint64_t         magic;
    uint32_t         version;
    uint32_t         name_length;  /* of name: 1 .. TOFU_DOORBELL_NAME_MAX */
    char             name[TOFU_DOORBELL_NAME_MAX]; /* without the 0 in front */
    _Atomic uint32_t acknowledged; /* written by the library */
    _Atomic uint32_t state;        /* TOFU_DOORBELL_*; read when it is registered
                                      and by polls of the VCQ only */
};

_Static_assert(sizeof(struct tofu_doorbell) == 56, "layout of a doorbell page");

#endif /* TOFU_DOORBELL_H */
