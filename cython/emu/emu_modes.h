/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_modes.h - the ways of an operation that is not carried out at once by the
 * fast path: session mode, the wire of the strict mode, the clock of the timed mode,
 * injected faults, and counters.
 */
#ifndef EMU_MODES_H
#define EMU_MODES_H

#include "emu_desc.h"

/* ------------------------------------------- carrying out (emu_carry.c) */

/* When the parts of an operation happen, in ticks of emu_ticks(); 0: at once. */
struct emu_times {
    uint64_t posted;  /* the call began */
    uint64_t read;    /* the source is read, an ARMW carried out */
    uint64_t visible; /* the last bytes are there */
    uint64_t remote;  /* the remote MRQ notice; that of a put is brought before that */
    uint64_t tcq;     /* the TCQ notice */
    uint64_t local;   /* the local MRQ notice */
};

struct emu_carried {
    struct emu_peer *peer; /* NULL: not found */
    uint64_t        value; /* ARMW: the old one */
    bool            mapped; /* by loads and stores, not by system calls */
};

/* Move the data.  Returns SUCCESS, a TCQ or an MRQ error. */
int emu_carry(struct emu_vcq *vcq, const struct emu_desc *d, const struct emu_times *t, struct emu_carried *c);
/* The last bytes of a source were read, or it failed: SUCCESS or a TCQ error */
void emu_complete_tcq(struct emu_vcq *vcq, const struct emu_desc *d, int code, void *cbdata, uint64_t due);
/* due: it is not to be seen before, in ticks; 0: at once.  stamp: the one that it has got; 0: none yet.  posted: when its
 * operation was (timed mode) */
int emu_remote_notice(struct emu_vcq *vcq, const struct emu_desc *d, struct emu_peer *peer, uint64_t due,
                      uint64_t stamp);
static inline bool emu_is_local(int type)
{
    return (type == UTOFU_MRQ_TYPE_LCL_PUT) || (type == UTOFU_MRQ_TYPE_LCL_GET) || (type == UTOFU_MRQ_TYPE_LCL_ARMW);
}
void emu_mrq_by_time(struct emu_vcq *vcq, uint64_t due, uint64_t posted); /* the one that was pushed last */
void emu_local_notice(struct emu_vcq *vcq, const struct emu_desc *d, const struct emu_carried *c, int code,
                      uint64_t due, uint64_t posted);
/* enum utofu_mrq_notice_type of the local notice; NOP: -1 */
int emu_desc_lcl_type(const struct emu_desc *d);

uint32_t emu_toq_unread(const struct emu_vcq *vcq); /* emu_post.c: entries of the TOQ in use; any thread */

/* ------------------------------------------- session mode (emu_session.c) */

struct emu_start {
    uint64_t                stamp; /* 0: it has no notice, or starts nothing */
    struct emu_shared_lock *held;
};

int emu_session_init(struct emu_vcq *vcq);
void emu_session_close(struct emu_vcq *vcq); /* no lock held; the VCQ's generation has changed */
void emu_session_fini(struct emu_vcq *vcq);
/* The data of a Put with this SPS has arrived at the peer's VCQ: before its notices are given.
 * True: when they were given, what it started is to be carried (VCQ locked).  tells: it has a
 * remote notice, which gets the stamp, and then emu_session_told is called: others may carry at
 * once what it starts, and local notices of that wait until then. */
EMU_NOINLINE bool emu_session_credit(struct emu_peer *peer, unsigned sps, bool tells, struct emu_start *start);
EMU_NOINLINE void emu_session_told(const struct emu_start *start);
EMU_NOINLINE void emu_session_carry(struct emu_vcq *via, struct emu_peer *peer);
/* Carry on for the VCQ with this ID, if there is anything to be done. */
void emu_session_go_on(struct emu_vcq *via, uint64_t id);
/* Free entries of the TOQ */
uint32_t emu_session_room(const struct emu_vcq *vcq);
/* Append a Put or NOP to the TOQ; start what has been waited for. */
int emu_session_post(struct emu_vcq *vcq, const struct emu_desc *d, void *cbdata);
void emu_session_start(struct emu_vcq *vcq);
int emu_session_poll_tcq(struct emu_vcq *vcq, void **cbdata);
bool emu_session_poll_local(struct emu_vcq *vcq, struct utofu_mrq_notice *notice, int *code_p);
/* Is there a local notice?  Its stamp, as in the word of an entry */
bool emu_session_has_local(struct emu_vcq *vcq, uint64_t *stamp_p);
/* Is the remote notice of a Put that may have started what the next local notice is of still to come?  That one waits
 * for it. */
bool emu_session_untold(struct emu_vcq *vcq);
/* Nobody carries at this moment: a remote notice may be returned. */
bool emu_session_idle(struct emu_vcq *vcq);
size_t emu_session_unread_local(const struct emu_vcq *vcq);

/* ------------------------------------------- who goes on (emu_relay.c) */

/* This process carries for the owner's VCQ: that of the owner is to know, that of a target.
 * Once each. */
void emu_relay_owner(struct emu_peer *owner);
void emu_relay_target(struct emu_peer *owner, struct emu_peer *target);
void emu_relay_untold(struct emu_peer *owner); /* it is freed */
/* For the service thread: who is at the other end carries for this VCQ; it has ended; a thread
 * that went on for it may have ended. */
void emu_relay_told(int conn, uint64_t id);
void emu_relay_lost(int conn);
void emu_relay_reap(void);
/* The process leaves the job, and has no service thread any more. */
void emu_relay_stop(void);
bool emu_relay_ends(void);
void emu_relay_forget(void); /* in the child of a fork */

/* ------------------------------------------- wire (emu_wire.c) */

int emu_wire_init(struct emu_vcq *vcq);
void emu_wire_fini(struct emu_vcq *vcq); /* carries out what is left, in the strict mode what was sent */
uint32_t emu_wire_room(const struct emu_vcq *vcq);
uint32_t emu_wire_unread(const struct emu_vcq *vcq);
uint32_t emu_wire_unread_of_cq(const struct emu_vcq *vcq); /* strict: what others on the CQ have less room for */
/* fail: the injected result, or SUCCESS; delay_ns: injected */
int emu_wire_post(struct emu_vcq *vcq, const struct emu_desc *d, void *cbdata, int fail, uint64_t delay_ns);
void emu_wire_start(struct emu_vcq *vcq); /* what DELAY_START held back */
bool emu_wire_tcq_ready(const struct emu_vcq *vcq); /* it may find an entry */
int emu_wire_poll_tcq(struct emu_vcq *vcq, void **cbdata);
void emu_wire_idle(struct emu_vcq *vcq); /* a poll found nothing: let the thread work */
/* Strict mode: there is a local notice that waits for an earlier one; remote ones wait then, too. */
bool emu_wire_owes(struct emu_vcq *vcq);
/* The same, and that is to end: what is posted has its place among those. */
bool emu_wire_settles(struct emu_vcq *vcq);
void emu_wire_stop(void);   /* at exit: all VCQs */
void emu_wire_forget(void); /* in the child of a fork */

/* ------------------------------------------- timed mode (emu_timing.c) */

int    emu_on_or_off(const char *s); /* a word: 1, 0; -1: another one */
double emu_decimal(const char *s, char **end); /* as strtod, with a point in every locale */

bool emu_timing_init(void); /* UTOFU_EMU_TIMING asks for it */
void emu_timing_begin(void);             /* a call that posts begins */
void emu_timing_plan(struct emu_vcq *vcq, const struct emu_desc *d, struct emu_times *t);
void emu_timing_posted(void);            /* the call that posts is about to return */
bool emu_timing_polled(uint64_t due);    /* an entry with this time may be returned now */
bool emu_timing_remote(uint64_t due);    /* a remote notice is there; may it be returned now? */
void emu_timing_poll_empty(void);        /* a poll found nothing */
void emu_timing_join(void);              /* the control segment is there */
/* barriers; 0 and true outside the timed mode */
uint64_t emu_timing_barrier_now(void);
uint64_t emu_timing_packet(uint64_t fired_at); /* when it arrives */
bool emu_timing_completed(uint64_t due);
void emu_timing_wait(uint64_t until);
/* A put will store its last word at `at` when it is due, and nothing of that line yet: ticks that
 * this takes to whoever looks for it, more than on the average (emu_way.c).  Any thread. */
int64_t emu_timing_way(void *at, uint64_t due);
uint64_t emu_ticks(void);
uint64_t emu_ticks_of_ns(uint64_t ns);

/* ------------------------------------------- faults (emu_inject.c) */

struct emu_fault {
    int      code; /* SUCCESS: none */
    uint64_t delay_ns;
};
void emu_inject_forget(void); /* in a child of fork */
uint32_t emu_inject_init(uint64_t seed); /* EMU_SPECIAL_* that the rules need */
void emu_inject(const struct emu_desc *d, struct emu_fault *f);
bool emu_inject_busy(const struct emu_desc *d); /* the post finds the TOQ full */
int emu_inject_reg(void);                /* code with which a registration fails, or SUCCESS */
int emu_inject_vcq(void);                /* the same of creating a VCQ */
uint32_t emu_inject_toq(void);           /* entries of a TOQ */
uint32_t emu_inject_mrq(void);           /* entries of an MRQ; 0: as the environment says */

/* ------------------------------------------- fork (emu_dontfork.c) */

void emu_dontfork_add(uint64_t addr, uint64_t size);
void emu_dontfork_remove(uint64_t addr, uint64_t size);
void emu_dontfork_forget(void); /* in the child */

/* ------------------------------------------- UTOFU_SWAP_PROTECT (emu_swap.c) */

void emu_swap_add(uint64_t addr, uint64_t size);
void emu_swap_remove(uint64_t addr, uint64_t size);
size_t emu_swap_locked(void); /* bytes that we locked, and nobody before */
void emu_swap_forget(void);   /* in the child of a fork */

/* ------------------------------------------- counters (emu_stats.c) */

bool emu_stats_init(void); /* UTOFU_EMU_STATS asks for it */
int emu_stats_open(struct emu_vcq *vcq);
void emu_stats_close(struct emu_vcq *vcq);
void emu_stats_forget(struct emu_vcq *vcq); /* without a word: it was never there */
void emu_stats_post(struct emu_vcq *vcq, const struct emu_desc *d);
void emu_stats_doorbell(struct emu_vcq *vcq);
void emu_stats_done(struct emu_vcq *vcq, const struct emu_desc *d, const struct emu_carried *c, int code);
/* Memory was registered; why: it is private, and was not moved */
void emu_stats_registered(struct emu_vcq *vcq, enum emu_mem_kind kind, const char *why);
void emu_stats_taken(struct emu_vcq *vcq, int code); /* session mode: how an operation ended that others carried out */
/* emu_vcq.c: VCQs of one CQ, which have its TOQ, TCQ and MRQ together (NULL: on none) */
bool emu_shares_cq(const struct emu_vcq *vcq);
bool emu_on_same_cq(const struct emu_vcq *a, const struct emu_vcq *b);
void emu_stats_poll(struct emu_vcq *vcq, bool mrq, int code);
void emu_stats_print(void); /* at exit */

#endif /* EMU_MODES_H */
