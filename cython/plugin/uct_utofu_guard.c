/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Refuses a UCX whose internal structures we do not know.
 *
 * libuct and libucs carry no version, and the sizes that libuct tells about
 * itself did not change from 1.19 to 1.22.  So three things are asked: the
 * sizes (they catch builds with statistics), which functions libuct has (they
 * tell the releases apart), and the version text of libucp where it is loaded.
 * Only symbols are looked up here; no function of an unknown library is called,
 * except for ucp_get_version, whose form never changed.
 */
#include "uct_utofu.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>

/* Functions that came or went with a release of UCX. */
static int uct_utofu_has(const struct uct_utofu_libs *libs, const char *name)
{
    return dlsym(libs->uct, name) != NULL;
}

static void uct_utofu_guess_version(const struct uct_utofu_libs *libs,
                                    char *version, size_t size)
{
    void (*get_version)(unsigned *major, unsigned *minor, unsigned *release);
    unsigned major, minor, release;
    const char *guess;

    if (libs->ucp != NULL) {
        *(void**)&get_version = dlsym(libs->ucp, "ucp_get_version");
        if (get_version != NULL) {
            get_version(&major, &minor, &release);
            snprintf(version, size, "%u.%u.%u", major, minor, release);
            return;
        }
    }

    if (uct_utofu_has(libs, "uct_ep_get_sgl_zcopy")) {
        guess = "1.23 or later";
    } else if (uct_utofu_has(libs, "uct_ep_put_sgl_zcopy")) {
        guess = "1.22";
    } else if (uct_utofu_has(libs, "uct_md_mem_elem_pack")) {
        guess = "1.21";
    } else if (uct_utofu_has(libs, "uct_iface_mem_element_pack")) {
        guess = "1.20";
    } else {
        guess = "1.19 or earlier";
    }
    snprintf(version, size, "%s", guess);
}

/* Size of a variable as the dynamic symbol table of the library has it. */
static size_t uct_utofu_symbol_size(const struct uct_utofu_libs *libs,
                                    const char *name)
{
    const ElfW(Sym) *symbol = NULL;
    void *address           = dlsym(libs->uct, name);
    Dl_info info;

    if ((address == NULL) ||
        !dladdr1(address, &info, (void**)&symbol, RTLD_DL_SYMENT) ||
        (symbol == NULL) || (info.dli_saddr != address)) {
        return 0;
    }
    return symbol->st_size;
}

/* Name of the first structure whose size differs, or NULL. */
static const char *uct_utofu_bad_size(const struct uct_utofu_libs *libs,
                                      size_t *size_p, size_t *expected_p)
{
    static const struct {
        const char *name;
        int        is_class; /* a class descriptor, which has the size inside */
        size_t     size;
    } sizes[] = {
        {"uct_iface_t_class", 1, sizeof(uct_iface_t)},
        {"uct_base_iface_t_class", 1, sizeof(uct_base_iface_t)},
        {"uct_base_ep_t_class", 1, sizeof(uct_base_ep_t)},
        {"uct_worker_t_class", 1, sizeof(uct_worker_t)},
        {"uct_priv_worker_t_class", 1, sizeof(uct_priv_worker_t)},
        {"uct_tcp_component", 0, sizeof(uct_component_t)},
        {"uct_self_tl", 0, sizeof(uct_tl_t)}
    };
    const ucs_class_t *cls;
    size_t i, size;

    for (i = 0; i < (sizeof(sizes) / sizeof(sizes[0])); ++i) {
        if (sizes[i].is_class) {
            cls  = dlsym(libs->uct, sizes[i].name);
            size = (cls == NULL) ? 0 : cls->size;
        } else {
            size = uct_utofu_symbol_size(libs, sizes[i].name);
        }
        if (size != sizes[i].size) {
            *size_p     = size;
            *expected_p = sizes[i].size;
            return sizes[i].name;
        }
    }
    return NULL;
}

int uct_utofu_guard_check(const struct uct_utofu_libs *libs, char *why,
                          size_t why_size)
{
    size_t size, expected;
    char version[64];
    const char *name;

    uct_utofu_guess_version(libs, version, sizeof(version));

    if (strncmp(version, "1.22", 4) ||
        ((version[4] != '.') && (version[4] != '\0')) ||
        !uct_utofu_has(libs, "uct_ep_put_sgl_zcopy") ||
        !uct_utofu_has(libs, "uct_iface_query_v2") ||
        !uct_utofu_has(libs, "uct_md_mem_query_v2") ||
        uct_utofu_has(libs, "uct_ep_get_sgl_zcopy")) {
        snprintf(why, why_size,
                 "found UCX %s (%s), this plugin works with UCX %d.%d only",
                 version, libs->uct_path, UCT_VERNO_MAJOR, UCT_VERNO_MINOR);
        return -1;
    }

    name = uct_utofu_bad_size(libs, &size, &expected);
    if (name != NULL) {
        snprintf(why, why_size,
                 "found UCX %s (%s) in another configuration than the UCX "
                 "%d.%d this plugin works with: %s has size %zu, not %zu",
                 version, libs->uct_path, UCT_VERNO_MAJOR, UCT_VERNO_MINOR,
                 name, size, expected);
        return -1;
    }

    return 0;
}
