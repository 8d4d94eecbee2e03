/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * selftest.c - tests whose verdict is known, to see that the harness gives it:
 * a suite that cannot fail proves nothing.
 */
#include "harness.h"

#include <unistd.h>

CONF_TEST("0", exchange_passes, 5, "ranks exchange data and meet at barriers")
{
    int mine = conf_rank * 3 + 1, all[5], i, round;

    for (round = 0; round < 100; round++) {
        mine += round;
        conf_exchange(&mine, sizeof(mine), all);
        for (i = 0; i < conf_procs; i++) {
            CONF_CHECK(all[i] == mine + (i - conf_rank) * 3,
                       "rank %d gave %d", i, all[i]);
        }
        conf_barrier();
    }
}

CONF_TEST("0", one_rank_fails, 3, "a failed rank fails the test at once")
{
    CONF_CHECK(conf_rank != 1, "this rank fails");
    conf_barrier();
}

CONF_TEST("0", wrong_code_fails, 1, "a wrong return code is named")
{
    CONF_OK(utofu_query_my_coords(NULL));
}

CONF_TEST("0", crash_fails, 2, "a rank that crashes fails the test")
{
    if (conf_rank == 1) {
        *(volatile int *)8 = 1;
    }
    conf_barrier();
}

CONF_TEST("0", hang_fails, 2, "a rank that hangs fails the test in time")
{
    conf_timeout(1);
    if (conf_rank == 1) {
        conf_at(__FILE__, __LINE__, "waiting forever");
        for (;;) {
            pause();
        }
    }
    conf_barrier();
}

CONF_TEST("0", early_exit_fails, 2, "a rank that ends by itself with an error")
{
    if (conf_rank == 0) {
        _exit(3);
    }
    conf_barrier();
}

CONF_TEST("0", skip_skips, 2, "a skipped test has its own exit code")
{
    conf_skip("nothing to test");
}

CONF_TEST("0", killed_rank_passes, 3,
          "a rank that was killed on request fails nothing")
{
    int  mine = conf_rank + 1, all[3];

    if (conf_rank == 1) {
        for (;;) {
            pause();
        }
    }
    if (conf_rank == 0) {
        conf_stop(1);
        conf_continue(1);
        conf_kill(1);
    }
    conf_exchange(&mine, sizeof(mine), all);
    CONF_CHECK((all[0] == 1) && (all[1] == 0) && (all[2] == 3),
               "%d %d %d", all[0], all[1], all[2]);
}
