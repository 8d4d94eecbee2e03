/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_stats.c - what each VCQ did (UTOFU_EMU_STATS), told when it is freed or the
 * process ends: a line of text, or of JSON, on stderr or appended to a file.
 */
#include "emu_modes.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct emu_stats {
    uint64_t op[EMU_OP_KINDS];   /* posted, by kind */
    uint64_t bytes[EMU_OP_KINDS]; /* of them */
    uint64_t tcq_asked, lmrq_asked, rmrq_asked;
    uint64_t doorbells;
    uint64_t mapped, syscalls;   /* copies and atomics, by how memory was reached */
    uint64_t failed;
    uint64_t reg[EMU_MEM_MOVED + 1]; /* registrations, by kind */
    const char *private_because;     /* of the last private one */
    uint64_t tcq_polls, tcq_found, mrq_polls, mrq_found;
};

static enum { OFF, TEXT, JSON } form;
static char path[4096];
static bool at_end; /* the process ends, and all was told */

/* As seen from where the process is now: it may go elsewhere before it ends */
static void name_file(const char *name)
{
    const char *last = strrchr(name, '/');
    bool        here = (name[0] != '/') && (getcwd(path, sizeof(path)) != NULL);
    size_t      n    = here ? strlen(path) : 0;

    if ((strlen((last != NULL) ? last + 1 : name) > NAME_MAX) ||
        (size_t)snprintf(path + n, sizeof(path) - n, "%s%s", here ? "/" : "", name) >= sizeof(path) - n) {
        emu_message("UTOFU_EMU_STATS: the name of the file is too long; stderr is used");
        path[0] = '\0';
    }
}

bool emu_stats_init(void)
{
    const char *s = getenv("UTOFU_EMU_STATS");

    form    = OFF;
    path[0] = '\0';
    at_end  = false;
    if ((s == NULL) || (*s == '\0') || (emu_on_or_off(s) == 0)) {
        return false;
    }
    form = TEXT;
    if (!strncmp(s, "json", 4) && ((s[4] == '\0') || (s[4] == ':'))) {
        form = JSON;
        if ((s[4] == ':') && (s[5] != '\0')) {
            name_file(s + 5);
        } else if (s[4] == ':') {
            emu_message("UTOFU_EMU_STATS=json: names no file; stderr is used");
        }
    } else if (emu_on_or_off(s) < 0) {
        emu_message("UTOFU_EMU_STATS=\"%s\" is not 1, json or json:FILE; 1 is used", s);
    }
    return true;
}

int emu_stats_open(struct emu_vcq *vcq)
{
    vcq->stats = calloc(1, sizeof(*vcq->stats));
    return (vcq->stats == NULL) ? UTOFU_ERR_OUT_OF_MEMORY : UTOFU_SUCCESS;
}

void emu_stats_post(struct emu_vcq *vcq, const struct emu_desc *d)
{
    struct emu_stats *s = vcq->stats;

    s->op[d->kind]++;
    s->bytes[d->kind] += d->length;
    s->tcq_asked += (d->flags & UTOFU_ONESIDED_FLAG_TCQ_NOTICE) != 0;
    s->lmrq_asked += (d->flags & UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE) != 0;
    s->rmrq_asked += (d->flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE) != 0;
}

void emu_stats_doorbell(struct emu_vcq *vcq)
{
    vcq->stats->doorbells++;
}

void emu_stats_done(struct emu_vcq *vcq, const struct emu_desc *d, const struct emu_carried *c, int code)
{
    struct emu_stats *s = vcq->stats;

    if (code != UTOFU_SUCCESS) {
        s->failed++;
    } else if (d->kind != EMU_OP_NOP) {
        s->mapped += c->mapped;
        s->syscalls += !c->mapped;
    }
}

void emu_stats_taken(struct emu_vcq *vcq, int code)
{
    vcq->stats->failed += code != UTOFU_SUCCESS;
}

void emu_stats_registered(struct emu_vcq *vcq, enum emu_mem_kind kind, const char *why)
{
    vcq->stats->reg[kind]++;
    if (kind == EMU_MEM_PRIVATE) {
        vcq->stats->private_because = why;
    }
}

void emu_stats_poll(struct emu_vcq *vcq, bool mrq, int code)
{
    struct emu_stats *s = vcq->stats;

    if (mrq) {
        s->mrq_polls++;
        s->mrq_found += code != UTOFU_ERR_NOT_FOUND;
    } else {
        s->tcq_polls++;
        s->tcq_found += code != UTOFU_ERR_NOT_FOUND;
    }
}

static void tell(const char *line, size_t n)
{
    int fd = STDERR_FILENO;

    if (path[0] != '\0') {
        /* a pipe that nobody reads is not waited for */
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
        if (fd < 0) {
            emu_message("UTOFU_EMU_STATS: can't write to \"%s\": %s", path, strerror(errno));
            return;
        }
    }
    if (write(fd, line, n) < 0) { /* one write: lines of several processes do not mix */
        emu_message("UTOFU_EMU_STATS: can't write the counts to %s: %s", (path[0] != '\0') ? path : "stderr",
                    strerror(errno));
    }
    if (fd != STDERR_FILENO) {
        close(fd);
    }
}

static void print(const struct emu_vcq *vcq)
{
    const struct emu_stats *s = vcq->stats;
    char                    line[1536];
    const char              *because;
    int                     n;

    because = (s->private_because != NULL) ? s->private_because : "";
#define U64 "%" PRIu64
    if (form == JSON) {
        n = snprintf(line, sizeof(line),
                     "{\"pid\": %d, \"vcq_id\": \"0x%016" PRIx64 "\", \"tni\": %u, \"cq\": %u, \"cmp\": %u, "
                     "\"put\": " U64 ", \"piggyback\": " U64 ", \"get\": " U64 ", \"armw\": " U64 ", \"nop\": " U64 ", "
                     "\"put_bytes\": " U64 ", \"get_bytes\": " U64 ", "
                     "\"tcq_notices\": " U64 ", \"local_notices\": " U64 ", \"remote_notices\": " U64 ", "
                     "\"doorbells\": " U64 ", \"mapped\": " U64 ", \"syscalls\": " U64 ", \"failed\": " U64 ", "
                     "\"reg_mapped\": " U64 ", \"reg_moved\": " U64 ", \"reg_private\": " U64
                     ", \"private_because\": \"%s\", "
                     "\"tcq_polls\": " U64 ", \"tcq_found\": " U64 ", \"mrq_polls\": " U64 ", \"mrq_found\": " U64 "}\n",
                     (int)getpid(), vcq->id, vcq->tni, vcq->cq, vcq->cmp, s->op[EMU_OP_PUT], s->op[EMU_OP_PIGGYBACK],
                     s->op[EMU_OP_GET], s->op[EMU_OP_ARMW], s->op[EMU_OP_NOP],
                     s->bytes[EMU_OP_PUT] + s->bytes[EMU_OP_PIGGYBACK], s->bytes[EMU_OP_GET], s->tcq_asked,
                     s->lmrq_asked, s->rmrq_asked, s->doorbells, s->mapped, s->syscalls, s->failed,
                     s->reg[EMU_MEM_SHARED], s->reg[EMU_MEM_MOVED], s->reg[EMU_MEM_PRIVATE], because, s->tcq_polls,
                     s->tcq_found, s->mrq_polls, s->mrq_found);
    } else {
        n = snprintf(line, sizeof(line),
                     "utofu: stats: pid %d TNI %u CQ %u component %u: put " U64 ", piggyback " U64 " (" U64
                     " bytes), get " U64 " (" U64 " bytes), armw " U64 ", nop " U64 "; notices TCQ " U64 ", local " U64
                     ", remote " U64 "; doorbells " U64 "; mapped " U64 ", system calls " U64 ", failed " U64
                     "; polls TCQ " U64 " (found " U64 "), MRQ " U64 " (found " U64 "); registered mapped " U64
                     ", moved " U64 ", private " U64 "%s%s\n",
                     (int)getpid(), vcq->tni, vcq->cq, vcq->cmp, s->op[EMU_OP_PUT], s->op[EMU_OP_PIGGYBACK],
                     s->bytes[EMU_OP_PUT] + s->bytes[EMU_OP_PIGGYBACK], s->op[EMU_OP_GET], s->bytes[EMU_OP_GET],
                     s->op[EMU_OP_ARMW], s->op[EMU_OP_NOP], s->tcq_asked, s->lmrq_asked, s->rmrq_asked, s->doorbells,
                     s->mapped, s->syscalls, s->failed, s->tcq_polls, s->tcq_found, s->mrq_polls, s->mrq_found,
                     s->reg[EMU_MEM_SHARED], s->reg[EMU_MEM_MOVED], s->reg[EMU_MEM_PRIVATE],
                     (*because != '\0') ? ", the last because " : "", because);
    }
    if (n > 0) {
        tell(line, ((size_t)n < sizeof(line)) ? (size_t)n : sizeof(line) - 1);
    }
}

void emu_stats_forget(struct emu_vcq *vcq)
{
    free(vcq->stats);
    vcq->stats = NULL;
}

void emu_stats_close(struct emu_vcq *vcq)
{
    if ((vcq->stats != NULL) && !at_end) {
        print(vcq);
    }
    emu_stats_forget(vcq);
}

/* Other threads may still call the library: they go on counting. */
void emu_stats_print(void)
{
    at_end = true;
    for (unsigned i = 0; i < EMU_MAX_VCQS; i++) {
        if ((emu_g.vcqs[i].vcq != NULL) && (emu_g.vcqs[i].vcq->stats != NULL)) {
            print(emu_g.vcqs[i].vcq);
        }
    }
}
