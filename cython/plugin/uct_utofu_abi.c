/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds the UCX in whose process we are and binds to its functions.
 *
 * Symbols are looked up in the libraries themselves and never in the global
 * scope, because a process may hold several copies of UCX.  Only functions are
 * used, apart from tables that libuct itself reads: a variable may live in the
 * executable instead (copy relocation), where a lookup in the library finds a
 * stale twin.
 */
#include "uct_utofu.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <strings.h>
#include <sys/stat.h>

struct uct_utofu_api uct_utofu_api;

ucs_log_component_config_t uct_utofu_log_config = {
    .log_level   = UCS_LOG_LEVEL_WARN,
    .name        = "UTOFU",
    .file_filter = "*"
};

__thread int uct_utofu_log_hide_errors;


intptr_t uct_utofu_unsupported(void)
{
    return UCS_ERR_UNSUPPORTED;
}

void uct_utofu_ops_fill(void *ops, size_t size)
{
    intptr_t (**slot)(void) = ops;
    size_t i;

    for (i = 0; i < (size / sizeof(*slot)); ++i) {
        slot[i] = uct_utofu_unsupported;
    }
}

/* ------------------------------------------------------------ which library */

/* "libucs.so.0" and "libucs-1a2b3c.so.0.0.0" are libucs, "libucs_signal.so.0"
 * is not. */
static int uct_utofu_is_library(const char *path, const char *name)
{
    const char *base = strrchr(path, '/');
    size_t length    = strlen(name);

    base = (base == NULL) ? path : (base + 1);
    return !strncmp(base, name, length) &&
           ((base[length] == '.') || (base[length] == '-')) &&
           (strstr(base + length, ".so") != NULL);
}

/* The same folder, also when the two paths name it in different ways. */
static int uct_utofu_same_dir(const char *path1, const char *path2)
{
    const char *paths[] = {path1, path2};
    struct stat stats[2];
    char dir[4096];
    const char *slash;
    int i;

    for (i = 0; i < 2; ++i) {
        slash = strrchr(paths[i], '/');
        if (slash == NULL) {
            strcpy(dir, ".");
        } else {
            snprintf(dir, sizeof(dir), "%.*s", (int)(slash - paths[i]) + 1,
                     paths[i]);
        }
        if (stat(dir, &stats[i]) != 0) {
            return 0;
        }
    }

    return (stats[0].st_dev == stats[1].st_dev) &&
           (stats[0].st_ino == stats[1].st_ino);
}

struct uct_utofu_search {
    const char *name;
    const char *beside; /* only in the directory of this file, when set */
    char       path[4096];
    int        found;
};

static int uct_utofu_search_cb(struct dl_phdr_info *info, size_t size,
                               void *arg)
{
    struct uct_utofu_search *search = arg;

    (void)size;
    if ((info->dlpi_name == NULL) ||
        !uct_utofu_is_library(info->dlpi_name, search->name) ||
        (strlen(info->dlpi_name) >= sizeof(search->path))) {
        return 0;
    }

    if ((search->beside != NULL) &&
        !uct_utofu_same_dir(info->dlpi_name, search->beside)) {
        return 0;
    }

    strcpy(search->path, info->dlpi_name);
    ++search->found;
    return 0;
}

/* How many loaded libraries have that name; path of the last one. */
static int uct_utofu_search(struct uct_utofu_search *search, const char *name,
                            const char *beside)
{
    search->name   = name;
    search->beside = beside;
    search->found  = 0;
    dl_iterate_phdr(uct_utofu_search_cb, search);
    return search->found;
}

/* Path of the libucs that contains the address, if it is one. */
static int uct_utofu_libucs_of(const void *address, char *path, size_t size)
{
    struct link_map *map;
    Dl_info info;

    if (!dladdr1(address, &info, (void**)&map, RTLD_DL_LINKMAP) ||
        (map == NULL) || !uct_utofu_is_library(map->l_name, "libucs") ||
        (strlen(map->l_name) >= size)) {
        return 0;
    }

    strcpy(path, map->l_name);
    return 1;
}

int uct_utofu_libs_open(const void *caller, struct uct_utofu_libs *libs,
                        char *why, size_t why_size)
{
    struct uct_utofu_search search;
    int count;

    memset(libs, 0, sizeof(*libs));

    if (!uct_utofu_libucs_of(caller, libs->ucs_path, sizeof(libs->ucs_path))) {
        count = uct_utofu_search(&search, "libucs", NULL);
        if (count != 1) {
            snprintf(why, why_size,
                     (count == 0) ?
                     "no UCX (libucs) is loaded in this process" :
                     "this process holds %d copies of UCX (libucs), and the "
                     "plugin was not called by one of them", count);
            return -1;
        }
        strcpy(libs->ucs_path, search.path);
    }

    count = uct_utofu_search(&search, "libuct", libs->ucs_path);
    if ((count == 0) && (uct_utofu_search(&search, "libucs", NULL) == 1)) {
        /* one UCX, each library in its own folder: a build tree */
        count = uct_utofu_search(&search, "libuct", NULL);
    }
    if (count != 1) {
        snprintf(why, why_size,
                 (count == 0) ? "no libuct is loaded beside %s" :
                 "several libuct are loaded beside %s", libs->ucs_path);
        return -1;
    }
    strcpy(libs->uct_path, search.path);

    /* They are loaded: this only takes references, which are kept for good once
     * we are registered, so that UCX cannot go away under us. */
    libs->ucs = dlopen(libs->ucs_path, RTLD_LAZY | RTLD_NOLOAD);
    libs->uct = dlopen(libs->uct_path, RTLD_LAZY | RTLD_NOLOAD);
    if ((libs->ucs == NULL) || (libs->uct == NULL)) {
        snprintf(why, why_size, "dlopen(%s) of a loaded library failed: %s",
                 (libs->ucs == NULL) ? libs->ucs_path : libs->uct_path,
                 dlerror());
        uct_utofu_libs_close(libs);
        return -1;
    }

    count = uct_utofu_search(&search, "libucp", libs->ucs_path);
    if ((count == 0) && (uct_utofu_search(&search, "libucs", NULL) == 1)) {
        count = uct_utofu_search(&search, "libucp", NULL);
    }
    if (count == 1) {
        libs->ucp = dlopen(search.path, RTLD_LAZY | RTLD_NOLOAD);
    }

    return 0;
}

void uct_utofu_libs_close(struct uct_utofu_libs *libs)
{
    void *handles[] = {libs->ucp, libs->uct, libs->ucs};
    size_t i;

    for (i = 0; i < (sizeof(handles) / sizeof(handles[0])); ++i) {
        if (handles[i] != NULL) {
            dlclose(handles[i]);
        }
    }
    libs->ucp = libs->uct = libs->ucs = NULL;
}

int uct_utofu_api_bind(const struct uct_utofu_libs *libs, char *why,
                       size_t why_size)
{
    struct uct_utofu_api api;

#define UCT_UTOFU_BIND(_lib, _name) \
    do { \
        *(void**)&api._name = dlsym(libs->_lib, #_name); \
        if (api._name == NULL) { \
            snprintf(why, why_size, "%s has no symbol %s", \
                     libs->_lib##_path, #_name); \
            return -1; \
        } \
    } while (0);
#define UCT_UTOFU_BIND_UCS(_name) UCT_UTOFU_BIND(ucs, _name)
#define UCT_UTOFU_BIND_UCT(_name) UCT_UTOFU_BIND(uct, _name)

    UCT_UTOFU_FOREACH_UCS_FUNC(UCT_UTOFU_BIND_UCS)
    UCT_UTOFU_FOREACH_UCT_FUNC(UCT_UTOFU_BIND_UCT)
    UCT_UTOFU_BIND_UCT(uct_base_iface_t_class)
    UCT_UTOFU_BIND_UCT(uct_base_ep_t_class)
    UCT_UTOFU_BIND_UCT(uct_md_config_table)
    UCT_UTOFU_BIND_UCT(uct_iface_config_table)
    UCT_UTOFU_BIND_UCT(uct_components_list)

    uct_utofu_api = api;
    return 0;
}

/* ------------------------------------------------------------------ logging */

static void uct_utofu_core_log(int level, const char *message)
{
    static const ucs_log_level_t levels[] = {
        UCS_LOG_LEVEL_ERROR, UCS_LOG_LEVEL_WARN, UCS_LOG_LEVEL_INFO,
        UCS_LOG_LEVEL_DEBUG
    };
    ucs_log_level_t ucs_level = UCS_LOG_LEVEL_DEBUG;

    if ((level >= 0) && (level < (int)(sizeof(levels) / sizeof(levels[0])))) {
        ucs_level = levels[level];
    }
    if (uct_utofu_log_hide_errors && (ucs_level <= UCS_LOG_LEVEL_WARN)) {
        ucs_level = UCS_LOG_LEVEL_DEBUG;
    }

    uct_utofu_log(ucs_level, "%s", message);
}

void uct_utofu_log_init(void)
{
    static const struct {
        const char      *name;
        ucs_log_level_t level;
    } levels[] = {
        {"FATAL", UCS_LOG_LEVEL_FATAL}, {"ERROR", UCS_LOG_LEVEL_ERROR},
        {"WARN", UCS_LOG_LEVEL_WARN},   {"DIAG", UCS_LOG_LEVEL_DIAG},
        {"INFO", UCS_LOG_LEVEL_INFO},   {"DEBUG", UCS_LOG_LEVEL_DEBUG},
        {"TRACE", UCS_LOG_LEVEL_TRACE}, {"REQ", UCS_LOG_LEVEL_TRACE_REQ},
    };
    char value[64] = "";
    size_t i;

    /* By its name, because the variable behind it may be the executable's. */
    if (uct_utofu_api.ucs_global_opts_get_value("LOG_LEVEL", value,
                                                sizeof(value)) == UCS_OK) {
        /* Names that are not in the list are DATA and above. */
        uct_utofu_log_config.log_level = UCS_LOG_LEVEL_TRACE_DATA;
        for (i = 0; i < (sizeof(levels) / sizeof(levels[0])); ++i) {
            if (!strcasecmp(value, levels[i].name)) {
                uct_utofu_log_config.log_level = levels[i].level;
                break;
            }
        }
    }

    tofu_set_log(uct_utofu_core_log);
}
