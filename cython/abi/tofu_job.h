/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_job.h - the name of the job that a process of the emulator belongs to.
 *
 * Processes of different jobs cannot reach each other.  The emulator names its
 * rendezvous with it, and the loader makes the network ID from it: the decision
 * is here only.
 */
#ifndef TOFU_JOB_H
#define TOFU_JOB_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOFU_JOB_NAME_MAX 64

/*
 * Write the job name to buf (size > TOFU_JOB_NAME_MAX) and return buf:
 * UTOFU_EMU_JOB, else what the launcher set (PMIX_NAMESPACE, PMI_JOBID), else
 * "default".  A name that is long or has characters outside [A-Za-z0-9._-] is
 * replaced by a hash of it.
 */
static inline const char *tofu_job_name(char *buf, size_t size)
{
    static const char *const vars[] = {"UTOFU_EMU_JOB", "PMIX_NAMESPACE", "PMI_JOBID"};
    const char              *name   = "default";

    for (unsigned i = 0; i < sizeof(vars) / sizeof(vars[0]); i++) {
        const char *v = getenv(vars[i]);
        if ((v != NULL) && (*v != '\0')) {
            name = v;
            break;
        }
    }
    if ((strlen(name) <= TOFU_JOB_NAME_MAX) &&
        (strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == strlen(name))) {
        snprintf(buf, size, "%s", name);
    } else {
        uint64_t h = 0xcbf29ce484222325ull; /* FNV-1a */
        for (const char *p = name; *p != '\0'; p++) {
            h = (h ^ (uint8_t)*p) * 0x100000001b3ull;
        }
        snprintf(buf, size, "hash-%016llx", (unsigned long long)h);
    }
    return buf;
}

#endif /* TOFU_JOB_H */
