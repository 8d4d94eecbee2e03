/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * forks.c - each generation uses the library, or the first one only, and forks the next; each ends
 * as programs do, so that it is checked for leaks.
 */
#include <utofu.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char buffer[4096];

static int use(int tni)
{
    utofu_vcq_hdl_t hdl;
    utofu_stadd_t   stadd;

    return utofu_create_vcq(tni, 0, &hdl) || utofu_reg_mem(hdl, buffer, sizeof(buffer), 0, &stadd);
}

int main(int argc, char **argv)
{
    int generations = atoi(argv[1]), uses = atoi(argv[2]);

    for (int i = 0; i < generations; i++) {
        pid_t pid;
        int   status;

        if (((i == 0) || uses) && use(i)) {
            return 9;
        }
        pid = fork();
        if (pid != 0) {
            if ((waitpid(pid, &status, 0) != pid) || (status != 0)) {
                fprintf(stderr, "generation %d: status 0x%x\n", i + 1, status);
                return 3;
            }
            return 0;
        }
    }
    return argc != 3;
}
