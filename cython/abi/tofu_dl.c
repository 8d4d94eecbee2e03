/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_dl.c - finds and loads a libtofucom (tofu_dl.h says by which rules).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tofu_dl.h"
#include "tofu_job.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOFU_DL_SONAME     "libtofucom.so"
#define TOFU_DL_NETWORK_ID 0x746f6675ull /* of the machine: "tofu" */

/* Where the emulator may be, relative to the file that holds this code. */
static const char *const tofu_dl_emulator_dirs[] = {"", "lib/", "../",
                                                    "../lib/", "../emu/"};

static pthread_mutex_t     tofu_dl_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tofu_backend *tofu_dl_backend; /* made once, never freed */

/* What was tried, for the caller's error text. */
struct tofu_dl_report {
    char   *buf;
    size_t size;
    size_t used;
};

static void __attribute__((format(printf, 2, 3)))
tofu_dl_note(struct tofu_dl_report *report, const char *fmt, ...)
{
    va_list ap;
    int     n;

    if (report->used + 1 >= report->size) {
        return;
    }
    if (report->used > 0) {
        n = snprintf(report->buf + report->used, report->size - report->used,
                     "; ");
        report->used += (n > 0) ? (size_t)n : 0;
        if (report->used + 1 >= report->size) {
            report->used = report->size - 1;
            return;
        }
    }
    va_start(ap, fmt);
    n = vsnprintf(report->buf + report->used, report->size - report->used, fmt,
                  ap);
    va_end(ap);
    report->used += (n > 0) ? (size_t)n : 0;
    if (report->used >= report->size) {
        report->used = report->size - 1;
    }
}

static const char *tofu_dl_error(void)
{
    const char *text = dlerror();
    return (text != NULL) ? text : "unknown error of dlopen";
}

/* Full path of the packaged emulator; 0, or -1 when there is none. */
static int tofu_dl_emulator_path(char *path, size_t size,
                                 struct tofu_dl_report *report)
{
    Dl_info info;
    size_t  i, dir_len;
    char    *slash;
    char    self[4096];

    if ((dladdr((void *)&tofu_dl_lock, &info) == 0) ||
        (info.dli_fname == NULL)) {
        tofu_dl_note(report, "dladdr does not know the file of the loader");
        return -1;
    }
    if (realpath(info.dli_fname, self) == NULL) {
        tofu_dl_note(report, "realpath(%s): %s", info.dli_fname,
                     strerror(errno));
        return -1;
    }
    slash   = strrchr(self, '/');
    dir_len = (slash == NULL) ? 0 : (size_t)(slash + 1 - self);
    for (i = 0; i < sizeof(tofu_dl_emulator_dirs) /
                    sizeof(tofu_dl_emulator_dirs[0]); ++i) {
        int n = snprintf(path, size, "%.*s%s%s", (int)dir_len, self,
                         tofu_dl_emulator_dirs[i], TOFU_DL_SONAME);
        if ((n > 0) && ((size_t)n < size) && (access(path, R_OK) == 0)) {
            return 0;
        }
    }
    tofu_dl_note(report, "no %s of this package near %.*s", TOFU_DL_SONAME,
                 (int)dir_len, self);
    return -1;
}

/* Fill the function table; 0, or -1 with the missing names noted. */
static int tofu_dl_resolve(void *handle, const char *name, int is_machine,
                           struct tofu_functions *fn,
                           struct tofu_dl_report *report)
{
    char     missing[512] = "";
    size_t   used         = 0;
    unsigned count        = 0;

    /* ISO C has no conversion from void* to a function pointer; POSIX
     * promises that copying the bits is one. */
#define X(ret, fname, args) \
    do { \
        void *sym = dlsym(handle, "utofu_" #fname); \
        memcpy(&fn->fname, &sym, sizeof(sym)); \
        if ((sym == NULL) && \
            !(is_machine && !strcmp(#fname, "query_num_unread_mrq"))) { \
            ++count; \
            if (used + sizeof("utofu_" #fname) + 1 < sizeof(missing)) { \
                used += (size_t)snprintf(missing + used, \
                                         sizeof(missing) - used, \
                                         " utofu_" #fname); \
            } \
        } \
    } while (0);
#include "tofu_dl_functions.h"
#undef X

    if (count > 0) {
        tofu_dl_note(report, "%s: %u functions of utofu.h are missing:%s%s",
                     name, count, missing,
                     (used + 64 > sizeof(missing)) ? " ..." : "");
        return -1;
    }
    return 0;
}

/* The file that a handle's functions come from. */
static void tofu_dl_file(const struct tofu_functions *fn, const char *fallback,
                         char *path, size_t size)
{
    Dl_info info;
    void    *sym;
    char    real[4096];

    memcpy(&sym, &fn->query_tofu_version, sizeof(sym));
    if ((dladdr(sym, &info) == 0) || (info.dli_fname == NULL)) {
        snprintf(path, size, "%s", fallback);
    } else if (realpath(info.dli_fname, real) != NULL) {
        snprintf(path, size, "%s", real);
    } else {
        snprintf(path, size, "%s", info.dli_fname);
    }
}

static int tofu_dl_same_file(const char *a, const char *b)
{
    struct stat sa, sb;

    return (stat(a, &sa) == 0) && (stat(b, &sb) == 0) &&
           (sa.st_dev == sb.st_dev) && (sa.st_ino == sb.st_ino);
}

/* Number of usable TNIs, or -1 with the reason noted. */
static int tofu_dl_count_tnis(struct tofu_backend *backend,
                              struct tofu_dl_report *report)
{
    utofu_tni_id_t *tnis = NULL;
    size_t         count = 0;
    int            ret;

    ret = backend->fn.get_onesided_tnis(&tnis, &count);
    free(tnis);
    if (ret != UTOFU_SUCCESS) {
        tofu_dl_note(report, "%s: utofu_get_onesided_tnis returned %s",
                     backend->path, tofu_code_name(ret));
        return -1;
    }
    if (count == 0) {
        tofu_dl_note(report, "%s reports no TNI", backend->path);
        return -1;
    }
    backend->num_tnis = count;
    return 0;
}

static uint64_t tofu_dl_hash(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *p = data;

    while (size-- > 0) { /* FNV-1a */
        hash = (hash ^ *p++) * 0x100000001b3ull;
    }
    return hash;
}

/* Same for the processes of one user and job on one booted host. */
static uint64_t tofu_dl_emulator_network(void)
{
    uint64_t hash = 0xcbf29ce484222325ull;
    uint64_t uid  = geteuid();
    char     text[TOFU_JOB_NAME_MAX + 64];
    ssize_t  n;
    int      fd;

    fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        n = read(fd, text, sizeof(text));
        if (n > 0) {
            hash = tofu_dl_hash(hash, text, (size_t)n);
        }
        close(fd);
    }
    hash = tofu_dl_hash(hash, &uid, sizeof(uid));
    tofu_job_name(text, sizeof(text));
    return tofu_dl_hash(hash, text, strlen(text));
}

/* As the emulator (emu_profile.c) has it, which says why on stderr when it is off */
static int tofu_dl_timed(void)
{
    static const char *const off[]     = {"", "0", "off", "no", "false"};
    static const char *const profile[] = {"tofud", "tofud:measured", "tofud:best"};
    const char              *timing    = getenv("UTOFU_EMU_TIMING");
    unsigned                 i;

    for (i = 0; (timing != NULL) && (i < sizeof(off) / sizeof(off[0])); i++) {
        timing = strcmp(timing, off[i]) ? timing : NULL;
    }
    for (i = 0; (timing != NULL) && (i < sizeof(profile) / sizeof(profile[0])); i++) {
        if (!strcmp(timing, profile[i])) {
            return 1;
        }
    }
    return (timing != NULL) && !access(timing, R_OK); /* a file */
}

/* Load one library.  Returns 0 and fills backend, or -1 with the reason noted.
 * A library that turns out to be of no use stays loaded: it may have started
 * threads, and unloading it would pull the code from under them. */
static int tofu_dl_open(enum tofu_backend_kind kind, const char *emulator,
                        struct tofu_backend *backend,
                        struct tofu_dl_report *report)
{
    const char *name = (kind == TOFU_BACKEND_EMULATOR) ? emulator :
                                                         TOFU_DL_SONAME;
    void       *handle;

    handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        tofu_dl_note(report, "dlopen: %s", tofu_dl_error());
        return -1;
    }
    if (tofu_dl_resolve(handle, name, kind == TOFU_BACKEND_TOFU, &backend->fn,
                        report) != 0) {
        return -1;
    }
    tofu_dl_file(&backend->fn, name, backend->path, sizeof(backend->path));
    if ((kind == TOFU_BACKEND_TOFU) && (emulator != NULL) &&
        tofu_dl_same_file(backend->path, emulator)) {
        tofu_dl_note(report,
                     "the %s of the library search is the emulator, %s",
                     TOFU_DL_SONAME, backend->path);
        return -1;
    }
    if (tofu_dl_count_tnis(backend, report) != 0) {
        return -1;
    }
    backend->kind       = kind;
    backend->unordered  = (kind == TOFU_BACKEND_EMULATOR);
    backend->in_place   = (kind == TOFU_BACKEND_EMULATOR);
    backend->timed      = (kind == TOFU_BACKEND_EMULATOR) && tofu_dl_timed();
    backend->network_id = (kind == TOFU_BACKEND_TOFU) ?
                                  TOFU_DL_NETWORK_ID :
                                  tofu_dl_emulator_network();
    return 0;
}

static int tofu_dl_load(const char *choice, const char *who,
                        struct tofu_backend *backend,
                        struct tofu_dl_report *report)
{
    int  try_machine, try_emulator, have_emulator;
    char emulator[4096];

    try_machine   = !strcmp(choice, "auto") || !strcmp(choice, "tofu");
    try_emulator  = !strcmp(choice, "auto") || !strcmp(choice, "emulator");
    if (!try_machine && !try_emulator) {
        tofu_dl_note(report,
                     "%s is '%s'; it can be auto, tofu or emulator", who,
                     choice);
        return -1;
    }

    have_emulator = tofu_dl_emulator_path(emulator, sizeof(emulator),
                                          report) == 0;
    if (try_machine &&
        (tofu_dl_open(TOFU_BACKEND_TOFU, have_emulator ? emulator : NULL,
                      backend, report) == 0)) {
        snprintf(backend->reason, sizeof(backend->reason),
                 "%s is '%s' and the machine's library reports %zu TNIs", who,
                 choice, backend->num_tnis);
        return 0;
    }
    if (try_emulator && have_emulator) {
        /* keep why the machine's library was not taken for `reason` */
        size_t before = report->used;
        if (tofu_dl_open(TOFU_BACKEND_EMULATOR, emulator, backend, report) ==
            0) {
            snprintf(backend->reason, sizeof(backend->reason), "%s is '%s'%s%.*s",
                     who, choice, (before > 0) ? "; " : "",
                     (int)((before < 400) ? before : 400), report->buf);
            return 0;
        }
    }
    return -1;
}

int tofu_backend_load(const char *choice, const struct tofu_backend **backend_p,
                      char *err, size_t err_size)
{
    const char            *who = "the choice of backend";
    char                  text[2048];
    struct tofu_dl_report report = {text, sizeof(text), 0};
    struct tofu_backend   *backend;
    int                   ret = -1;

    text[0] = '\0';
    if (choice == NULL) {
        who    = "UCT_TOFU_BACKEND";
        choice = getenv(who);
        if ((choice == NULL) || (choice[0] == '\0')) {
            choice = "auto";
        }
    }

    pthread_mutex_lock(&tofu_dl_lock);
    if (tofu_dl_backend != NULL) {
        int other = (!strcmp(choice, "tofu") &&
                     (tofu_dl_backend->kind != TOFU_BACKEND_TOFU)) ||
                    (!strcmp(choice, "emulator") &&
                     (tofu_dl_backend->kind != TOFU_BACKEND_EMULATOR));
        if (other || (strcmp(choice, "auto") && strcmp(choice, "tofu") &&
                      strcmp(choice, "emulator"))) {
            tofu_dl_note(&report,
                         "%s is '%s', but this process already uses %s (%s)",
                         who, choice, tofu_dl_backend->path,
                         (tofu_dl_backend->kind == TOFU_BACKEND_TOFU) ?
                                 "tofu" :
                                 "emulator");
            goto out_unlock;
        }
    } else {
        backend = calloc(1, sizeof(*backend));
        if (backend == NULL) {
            tofu_dl_note(&report, "out of memory");
            goto out_unlock;
        }
        if (tofu_dl_load(choice, who, backend, &report) != 0) {
            free(backend);
            goto out_unlock;
        }
        tofu_dl_backend = backend;
    }
    *backend_p = tofu_dl_backend;
    ret        = 0;

out_unlock:
    pthread_mutex_unlock(&tofu_dl_lock);
    if ((ret != 0) && (err != NULL) && (err_size > 0)) {
        snprintf(err, err_size, "%s", text);
    }
    return ret;
}
