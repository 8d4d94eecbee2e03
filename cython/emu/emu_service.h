/* SPDX-License-Identifier: BSD-3-Clause */
/* emu_service.h - the helper thread of a process, and what others ask it for over a Unix socket. */
#ifndef EMU_SERVICE_H
#define EMU_SERVICE_H

#include "emu_internal.h"

#pragma GCC visibility push(hidden)

/* emu_service.c */
int emu_service_start(void);
void emu_service_stop(void);
void emu_service_wake(void);
void emu_service_forget(void); /* in a child, which does not have the thread */
enum { EMU_FD_MEMORY = -1, EMU_FD_CONTROL = -2 };
/* emu_ask.c: a descriptor of a peer process: `fd` there, or EMU_FD_MEMORY. */
int emu_peer_fd(struct emu_peer_process *proc, int fd, int open_flags);
/* The same by a connection to its service thread, which waits for FD_TIMEOUT_MS at most.  -1: that has none;
 * -2: it did not answer. */
int emu_service_fd(int conn, int fd);
/* Its service thread is to know that this process carries for the VCQ (emu_relay.c). */
void emu_service_carries(struct emu_peer_process *proc, uint64_t vcq_id);
/* The process is the one that we met: it has neither ended nor executed another
 * program, as far as the service thread was told; asks the kernel now and then. */
bool emu_peer_is_there(struct emu_peer_process *proc);
/* emu_armw_private.c: ARMW on private memory of a peer; returns SUCCESS or an MRQ error. */
int emu_service_armw(struct emu_peer *peer, int op, unsigned size, uint64_t operand, uint64_t compare,
                     uint64_t stadd, uint64_t addr, uint64_t *old_p);

/* ------------------------------------------------------ what they send */

enum emu_request_op {
    EMU_REQUEST_KICK = 1, /* look at the mailboxes, and at the MRQs */
    EMU_REQUEST_FD,
    EMU_REQUEST_CARRIES
};

struct emu_request {
    uint32_t op;
    int32_t  fd;     /* EMU_REQUEST_FD: a descriptor of the receiver, or one of EMU_FD_ */
    uint64_t vcq_id; /* EMU_REQUEST_CARRIES: for whom the sender does; _FD: a number that the answer has, too */
};

/* emu_ask.c: a connection to the peer's helper thread, which must be of the expected pid; kept
 * (lock held).  -1: there is none */
int emu_service_connection(struct emu_peer_process *proc);

/* emu_last_thread.c, helper thread: end the process if no thread is left but the library's */
#define EMU_LAST_THREAD_MS 50
bool emu_last_thread_watched(void);
void emu_last_thread_look(void);
void emu_last_thread_forked(void);

/* emu_overflow.c, helper thread: somebody says that an MRQ of ours has overflown; end the process if so (lock held). */
void emu_overflow_told(void);
void emu_overflow_look(void);

/* emu_armw_private.c: carry out what is in our mailboxes. */
void emu_mailboxes_serve(void);

#pragma GCC visibility pop

#endif
