/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_shared_lock.c - locks in shared memory, between threads of any processes.
 *
 * Not the C library's robust mutexes: those are linked to each other by pointers in themselves, through which
 * it writes, and whoever has the memory mapped could choose where to.  Here there is one word, and whatever is
 * in it is checked: it names the thread that has the lock, and of one that has ended anybody takes it over.
 */
#include "emu_internal.h"
#include "emu_job.h"
#include "emu_now.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WAITED    ((uint64_t)1 << 31) /* somebody may be asleep */
#define TID       ((uint64_t)0x3fffffff)
#define BEGAN     32         /* from here on: when it began, as numbers of threads come again */
#define SLEEP_NS  10000000 /* between two looks whether the holder has ended */

static __thread uint64_t me; /* as the word has it; 0: not known yet */

static uint64_t own_word(void)
{
    if (emu_unlikely(me == 0)) {
        pid_t tid = (pid_t)syscall(SYS_gettid);

        me = (emu_start_time(tid) << BEGAN) | (uint64_t)tid;
    }
    return me;
}

void emu_shared_lock_fork_child(void)
{
    me = 0;
}

static bool has_ended(uint64_t word)
{
    return emu_thread_ended((pid_t)(word & TID), (uint32_t)(word >> BEGAN));
}

/* Who finds it taken looks at once whether its holder has ended: there may be no other occasion, as when somebody
 * was told that it has. */
static enum emu_shared_got take(struct emu_shared_lock *l, uint64_t waited)
{
    uint64_t own = own_word(), have = 0;

    if (emu_likely(atomic_compare_exchange_strong(&l->word, &have, own | waited))) {
        return EMU_SHARED_GOT;
    }
    return (((have & ~WAITED) != own) && has_ended(have) &&
            atomic_compare_exchange_strong(&l->word, &have, own | waited | (have & WAITED))) ?
                   EMU_SHARED_GOT_OF_DEAD :
                   EMU_SHARED_NOT;
}

enum emu_shared_got emu_shared_try(struct emu_shared_lock *l)
{
    return take(l, 0);
}

enum emu_shared_got emu_shared_lock(struct emu_shared_lock *l, unsigned ms)
{
    const struct timespec soon = {0, SLEEP_NS};
    uint64_t              end  = emu_now() + ms * UINT64_C(1000000), waited = 0;
    enum emu_shared_got   got;

    while (((got = take(l, waited)) == EMU_SHARED_NOT) && (emu_now() < end)) {
        uint64_t have = atomic_load(&l->word);

        if ((have != 0) && ((have & WAITED) || atomic_compare_exchange_strong(&l->word, &have, have | WAITED))) {
            /* the low half is what is waited on */
            syscall(SYS_futex, &l->word, FUTEX_WAIT, (uint32_t)(have | WAITED), &soon, NULL, 0);
            waited = WAITED; /* there may be others */
        }
    }
    return got;
}

void emu_shared_unlock(struct emu_shared_lock *l)
{
    uint64_t own = own_word(), have = own;

    if (!atomic_compare_exchange_strong(&l->word, &have, 0) && (have == (own | WAITED)) &&
        atomic_compare_exchange_strong(&l->word, &have, 0)) {
        syscall(SYS_futex, &l->word, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
}
