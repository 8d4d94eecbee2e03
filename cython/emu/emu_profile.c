/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * emu_profile.c - the parameters of the timed mode: two profiles, and those of a file.
 */
#include "emu_timing.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROFILE_MAX 16384u /* bytes of a file */
#define BLANKS      " \t\r\v\f"

static const char *const parameter_names[PARAMETERS] = {
    "put", "piggyback_saves", "injection_saves", "large_adds", "large_from", "get", "armw", "hop", "byte", "message",
    "post", "tcq", "barrier", "barrier_step", "floor"};

static const double measured[PARAMETERS] = {980, 260, 230, 250, 256, 1345, 1185, 75, 0.1575, 290, 150, 250, 600, 500, 0};
/* A piggyback takes 490 ns with or without cache injection (the paper's figure). */
static const double best[PARAMETERS] = {750, 260, 0, 250, 256, 1345, 1185, 75, 0.1575, 290, 150, 250, 600, 500, 0};

/* "parameter = number", or nothing; # begins a comment.  What is wrong with it, and *part_p, which part of it; NULL:
 * nothing */
static const char *read_line(char *line, double ns[PARAMETERS], const char **part_p)
{
    char    *hash = strchr(line, '#'), *key, *end;
    unsigned i    = 0;
    size_t   n;
    double   v;

    if (hash != NULL) {
        *hash = '\0';
    }
    *part_p = key = line + strspn(line, BLANKS);
    for (n = strlen(key); (n > 0) && (strchr(BLANKS, key[n - 1]) != NULL); n--) {
        key[n - 1] = '\0';
    }
    if (*key == '\0') {
        return NULL;
    }
    n    = strspn(key, "abcdefghijklmnopqrstuvwxyz_");
    line = key + n + strspn(key + n, BLANKS);
    if ((n == 0) || (*line != '=')) {
        return "is not \"parameter = ns\"";
    }
    line++;
    while ((i < PARAMETERS) && ((strlen(parameter_names[i]) != n) || strncmp(key, parameter_names[i], n))) {
        i++;
    }
    if (i == PARAMETERS) {
        key[n] = '\0';
        return "is not for a parameter of this model";
    }
    *part_p = line + strspn(line, BLANKS);
    v = emu_decimal(line, &end);
    if ((end == line) || (end[strspn(end, BLANKS)] != '\0') || !isfinite(v) || (v < 0) || (v > 1e9)) {
        return "is not a number of 0 to 1e9 ns";
    }
    ns[i] = v;
    return NULL;
}

/* All of a regular file, and of no other: one that has no end, or a pipe to which nobody writes,
 * would hold the program up.  Returns its size, or -1 with errno. */
static ssize_t read_all(const char *path, char *text, size_t room)
{
    int         fd   = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t      size = 0;
    ssize_t     got  = -1;
    struct stat st;

    if (fd < 0) {
        return -1;
    }
    if (fstat(fd, &st) == 0) { /* EINVAL: it is no file */
        errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
        while (S_ISREG(st.st_mode) && (size < room) && ((got = read(fd, text + size, room - size)) > 0)) {
            size += (size_t)got;
        }
        if (got > 0) {
            got   = -1;
            errno = EFBIG; /* no room is left to see its end */
        }
    }
    close(fd);
    return (got < 0) ? -1 : (ssize_t)size;
}

static bool read_file(const char *path, double ns[PARAMETERS])
{
    char    text[PROFILE_MAX + 2], *line, *rest = text;
    ssize_t size = read_all(path, text, PROFILE_MAX + 1);

    if (size < 0) {
        emu_message("UTOFU_EMU_TIMING: can't open the profile \"%s\": %s%s; off", path, strerror(errno),
                    (errno == EINVAL) ? " (it is no regular file)" : "");
        return false;
    }
    text[size] = '\0';
    if (memchr(text, '\0', (size_t)size) != NULL) {
        emu_message("UTOFU_EMU_TIMING: the profile \"%s\" is no text; off", path);
        return false;
    }
    for (int number = 1; (line = strsep(&rest, "\n")) != NULL; number++) {
        const char *part, *why = read_line(line, ns, &part);

        if (why != NULL) {
            emu_message("UTOFU_EMU_TIMING: %s:%d %s: \"%.40s\"; off", path, number, why, part);
            return false;
        }
    }
    return true;
}

bool emu_profile_read(double ns[PARAMETERS])
{
    const char *s = getenv("UTOFU_EMU_TIMING");

    if ((s == NULL) || (*s == '\0') || (emu_on_or_off(s) == 0)) {
        return false;
    }
    memcpy(ns, measured, sizeof(measured));
    if (!strcmp(s, "tofud:best")) {
        memcpy(ns, best, sizeof(best));
    } else if (strcmp(s, "tofud") && strcmp(s, "tofud:measured")) {
        if ((strchr(s, '/') == NULL) && (access(s, R_OK) != 0)) {
            emu_message("UTOFU_EMU_TIMING=\"%s\" is neither tofud, tofud:measured, tofud:best nor a file; off", s);
            return false;
        }
        return read_file(s, ns);
    }
    return true;
}
