/* SPDX-License-Identifier: BSD-3-Clause */
/* emu_job.h - the processes of a job, and what they share by name. */
#ifndef EMU_JOB_H
#define EMU_JOB_H

#include "emu_internal.h"

#pragma GCC visibility push(hidden)

/* emu_fd.c: a descriptor that is kept, under a number out of the program's way: a copy, or that one
 * itself, which is closed then.  -1: there is none, errno says why. */
int emu_fd_dup(int fd);
int emu_fd_keep(int fd);
/* The same, but for the standard streams' numbers, of one that is given up when its number is needed. */
int emu_fd_reserve(int fd);
/* emu_memfd.c: from the one to the other a file that would be longer than RLIMIT_FSIZE allows (ulimit -f) is
 * an error, EFBIG, of this thread's call and not the end of the program; errno stays. */
struct emu_file_size {
    sigset_t mask;
    bool     pending; /* the program's own SIGXFSZ */
};
void emu_file_size_begin(struct emu_file_size *f);
void emu_file_size_end(const struct emu_file_size *f);
/* A sealed memfd: nobody can shrink it under a mapping.  -1: errno says why not */
int emu_memfd(const char *name, uint64_t size);
/* emu_shared_lock.c: locks in shared memory.  OF_DEAD: its holder has ended in the middle; NOT: not now, or not
 * within so long. */
enum emu_shared_got { EMU_SHARED_NOT, EMU_SHARED_GOT, EMU_SHARED_GOT_OF_DEAD };
enum emu_shared_got emu_shared_try(struct emu_shared_lock *l);
enum emu_shared_got emu_shared_lock(struct emu_shared_lock *l, unsigned ms);
void                emu_shared_unlock(struct emu_shared_lock *l);
void                emu_shared_lock_fork_child(void);
bool emu_memfd_stays(int fd); /* nobody can make it shorter */
size_t emu_memfd_huge(int fd); /* the size of its pages, if these are huge ones; else 0 */
/* Whatever mlockall said; or MAP_FAILED.  fd -1: private, else shared; at NULL: anywhere, else there, over what is there. */
void *emu_map_unlocked(void *at, size_t size, int prot, int fd, off_t off);
/* emu_control.c: find a member of the job and take its control segment, or make one (job lock
 * held).  0: emu_g.control is mapped; -1: errno may say why not. */
int emu_control_open(void);
#define EMU_LOCK_TIMEOUT_S 10 /* for the job's lock, and its control segment's */
/* Between processes; who finds its holder dead has it, too. */
/* Lock the job's control segment; repairs what a dead holder left.  false: a
 * holder that lives but does not run kept it for seconds. */
bool emu_control_lock(void);
void emu_control_unlock(void);
/* false: the program has closed all descriptors, as daemons do, ours too: what has their numbers
 * by now is its own.  One is asked for all. */
bool emu_fds_ours(void);
/* Map a part of a process segment, ours or a peer's; MAP_FAILED: no memory, or its descriptor may be the
 * program's by now. */
void *emu_segment_map(int seg_fd, uint64_t off, uint64_t size, int prot);
/* The VCQ goes away: operations towards it fail from here on. */
void emu_vcq_gone(const struct emu_vcq *vcq);
/* emu_cq.c: take a free CQ of the TNI for this process (control locked); -1: none */
int emu_cq_take(unsigned tni, enum emu_cq_kind kind);
int emu_cq_take_first(unsigned tni); /* the one that peers predict, for VCQs that share it; -1: it is not to be had */
/* Its CQ went back to the node, and may be another process' by now: this one left the job, and a
 * destructor of the program frees what is left, or it lost its slot (control locked). */
bool emu_vcq_reclaimed(const struct emu_vcq *vcq);
/* Free what a process slot holds, or what those of a node do that have ended (control locked). */
void emu_control_reclaim(uint32_t slot);
void emu_node_reclaim(uint32_t node);
bool emu_process_stopped(pid_t pid);
bool emu_slot_alive(const struct emu_proc_slot *slot);
void emu_namespaces(uint64_t ns[EMU_NAMESPACES]); /* ours, by number; 0: not known */
const char *emu_namespace_differs(const uint64_t theirs[EMU_NAMESPACES]); /* which, from ours; NULL: none, as far as is known */
uint64_t emu_ipc_namespace(void); /* ours, by number, in which those of System V segments hold; 0: not known */
bool emu_proc_is_ours(void); /* /proc is that of our PID namespace, or there is none */
/* It is, and has not executed another program: its segment is among its descriptors, which can be seen. */
bool emu_slot_seen(const struct emu_proc_slot *slot);
uint64_t emu_start_time(pid_t pid);
bool emu_thread_ended(pid_t tid, uint32_t began); /* began: of its start time; 0: that is not known */
/* It has ended by pthread_exit, and others go on: /proc/PID has no memory and no descriptors then. */
bool emu_first_thread_ended(pid_t pid);
/* Those who may have memory of this process, from before a fork: `first` has executed the program, then, clock ticks
 * after boot, or before (0: nobody can say); others have executed none since.  May this one be of them? */
struct emu_family {
    pid_t    first;
    uint64_t began;
};
struct emu_family emu_family(void);
bool emu_is_of_family(struct emu_family family, pid_t pid);
bool emu_own_first_thread_ended(void); /* that of this process; looks */
bool emu_own_threads_ended(long ours); /* and so have all but so many of its others */
const char *emu_own_folder(void);      /* of /proc: what is known of that; the name of one is good for all */
#define EMU_OWN_PATH 64u
const char *emu_own_path(const char *name, char path[EMU_OWN_PATH]); /* a file of it; returns path */
int emu_open_own(const char *name, int flags);
void emu_procfs_fork_child(void);
int emu_service_name(uint32_t slot, void *sockaddr_un, unsigned *len_p);
/* The other end of a stream socket is a process of this user: its pid.  0; -1: errno; -2: another user; -3: its pid is
 * none here, of another PID namespace */
int emu_peer_credentials(int fd, pid_t *pid_p);

/* emu_lock.c: any lock, as the process ends; false: not within 0.1 s.  Whoever has it may be this thread itself, which ends in
 * the middle of a call (abort, and a handler that exits). */
bool emu_lock_soon(pthread_mutex_t *lock);
/* emu_peer.c: the node with these coordinates, by number; EMU_MAX_NODES: no process was there */
uint32_t emu_node_of(const uint8_t coords[6]);
/* emu_peer_mem.c: what is mapped of it, whose addresses stay; for a child, whose parent goes on with it */
void emu_peer_let_go(struct emu_peer_process *proc);
/* A child does not free what its parent had and its own copies of: threads that it does not have were at work on it.
 * A program that is checked for leaks (LeakSanitizer) is told that this is on purpose, with all that it leads to. */
void emu_left(const void *block);

#pragma GCC visibility pop

#endif
