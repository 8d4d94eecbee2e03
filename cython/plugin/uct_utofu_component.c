/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Configuration variables, the component and its registration with UCX.
 */
#include "uct_utofu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <strings.h>

ucs_status_t ucs_module_global_init(void);

static ucs_config_field_t uct_utofu_md_config_table[8];
static ucs_config_field_t uct_utofu_iface_config_table[17];

static uct_tl_t uct_utofu_tl = {
    .name          = UCT_UTOFU_NAME,
    .query_devices = uct_utofu_query_devices,
    .iface_open    = uct_utofu_iface_open,
    .config        = {
        .name   = UCT_UTOFU_NAME " transport",
        .prefix = UCT_UTOFU_CONFIG_PREFIX,
        .table  = uct_utofu_iface_config_table,
        .size   = sizeof(uct_utofu_iface_config_t)
    }
};

static void uct_utofu_md_vfs_init(uct_md_h md)
{
    (void)md; /* nothing of ours is shown in UCX's file system */
}

uct_component_t uct_utofu_component = {
    .name               = UCT_UTOFU_NAME,
    .query_md_resources = uct_utofu_query_md_resources,
    .md_open            = uct_utofu_md_open,
    .cm_open            = (void (*)(void))uct_utofu_unsupported,
    .rkey_unpack        = uct_utofu_rkey_unpack,
    .rkey_ptr           = uct_utofu_rkey_ptr,
    .rkey_release       = uct_utofu_rkey_release,
    .rkey_compare       = uct_utofu_rkey_compare,
    .md_config          = {
        .name   = "Tofu memory domain",
        .prefix = UCT_UTOFU_CONFIG_PREFIX,
        .table  = uct_utofu_md_config_table,
        .size   = sizeof(uct_utofu_md_config_t)
    },
    .cm_config          = UCS_CONFIG_EMPTY_GLOBAL_LIST_ENTRY,
    .tl_list            = {&uct_utofu_component.tl_list,
                           &uct_utofu_component.tl_list},
    .flags              = 0,
    .md_vfs_init        = uct_utofu_md_vfs_init
};

/* ---------------------------------------------------- configuration variables */

/* A time, or "auto": UCX's own time values have no word for "not set". */
static int uct_utofu_sscanf_time_auto(const char *buf, void *dest,
                                      const void *arg)
{
    if (!strcasecmp(buf, "auto")) {
        *(double*)dest = UCT_UTOFU_DOUBLE_AUTO;
        return 1;
    }
    return uct_utofu_api.ucs_config_sscanf_time(buf, dest, arg) &&
           (*(double*)dest >= 0);
}

static int uct_utofu_sprintf_time_auto(char *buf, size_t max, const void *src,
                                       const void *arg)
{
    if (*(const double*)src < 0) {
        return snprintf(buf, max, "auto");
    }
    return uct_utofu_api.ucs_config_sprintf_time(buf, max, src, arg);
}

/* The tables hold addresses of functions of libucs, so they are made when these
 * are known. */
static void uct_utofu_config_init(void)
{
    const struct uct_utofu_api *api = &uct_utofu_api;

#define UCT_UTOFU_PARSER(_read, _write, _clone, _release, _arg) \
    { \
        _read, _write, _clone, _release, api->ucs_config_help_generic, \
        api->ucs_config_doc_nop, _arg \
    }
#define UCT_UTOFU_PARSER_UCS(_type, _clone, _release, _arg) \
    UCT_UTOFU_PARSER(api->ucs_config_sscanf_##_type, \
                     api->ucs_config_sprintf_##_type, \
                     api->ucs_config_clone_##_clone, \
                     api->ucs_config_release_##_release, _arg)
#define UCT_UTOFU_PARSER_TABLE(_table) \
    { \
        api->ucs_config_sscanf_table, NULL, api->ucs_config_clone_table, \
        api->ucs_config_release_table, api->ucs_config_help_table, \
        api->ucs_config_doc_nop, _table \
    }
    const ucs_config_parser_t string =
            UCT_UTOFU_PARSER_UCS(string, string, string, "string");
    const ucs_config_parser_t count =
            UCT_UTOFU_PARSER_UCS(ulunits, ulong, nop,
                                 "unsigned long: <number> or \"auto\"");
    const ucs_config_parser_t bytes =
            UCT_UTOFU_PARSER_UCS(memunits, ulong, nop,
                                 "memory units: <number>[b|kb|mb|gb] or "
                                 "\"auto\"");
    const ucs_config_parser_t yesno =
            UCT_UTOFU_PARSER_UCS(bool, int, nop, "<y|n>");
    const ucs_config_parser_t ternary =
            UCT_UTOFU_PARSER_UCS(ternary_auto, int, nop, "<yes|no|auto>");
    const ucs_config_parser_t bandwidth =
            UCT_UTOFU_PARSER_UCS(bw, double, nop,
                                 "bandwidth value: "
                                 "<number>[T|G|M|K]B|b[[p|/]s] or \"auto\"");
    const ucs_config_parser_t time =
            UCT_UTOFU_PARSER(uct_utofu_sscanf_time_auto,
                             uct_utofu_sprintf_time_auto,
                             api->ucs_config_clone_double,
                             api->ucs_config_release_nop,
                             "time value: <number>[m|s|ms|us|ns] or \"auto\"");
    const ucs_config_parser_t md_parent =
            UCT_UTOFU_PARSER_TABLE(api->uct_md_config_table);
    const ucs_config_parser_t iface_parent =
            UCT_UTOFU_PARSER_TABLE(api->uct_iface_config_table);

    const ucs_config_field_t md_table[] = {
        {"", "", NULL, offsetof(uct_utofu_md_config_t, super), md_parent},

        {"BACKEND", "",
         "Library that provides the uTofu functions:\n"
         " auto     - the machine's libtofucom when it loads and reports a "
         "network interface, else the emulator\n"
         " tofu     - the machine's libtofucom\n"
         " emulator - the libtofucom of this package\n"
         "When empty, the environment variable UCT_TOFU_BACKEND decides.",
         offsetof(uct_utofu_md_config_t, backend), string},

        {"TNI", "auto",
         "Tofu network interface to use first: an index into those that the "
         "process may use for one-sided communication. \"auto\" takes the "
         "process's rank on its node, as the starter of a parallel program "
         "tells it in the environment, modulo their number, or 0.",
         offsetof(uct_utofu_md_config_t, tni), count},

        {"TNIS", "all",
         "Tofu network interfaces to use for large transfers, and when those "
         "before are used up: \"all\", or indices as in 0,2-4.",
         offsetof(uct_utofu_md_config_t, tnis), string},

        {"MAX_CQS", "auto",
         "Completion queues that this process may take of the 54 of its node. "
         "\"auto\" is an equal share where the starter of a parallel program "
         "tells in the environment how many processes are on the node, else "
         "all.",
         offsetof(uct_utofu_md_config_t, max_cqs), count},

        {"MAX_VCQS", "auto",
         "Virtual control queues that the interfaces (workers) of a domain may "
         "have of their own; further interfaces share some, and are slower. "
         "\"auto\": while any of the node's 432 is left to the process.",
         offsetof(uct_utofu_md_config_t, max_vcqs), count},

        {"STRIPE_THRESH", "auto",
         "Size from which on a put or get may travel by another network "
         "interface than the one that is used first, or by several where the "
         "ways to the peer begin with different links. \"auto\" is 256k, "
         "\"inf\" means never.",
         offsetof(uct_utofu_md_config_t, stripe_thresh), bytes},

        {NULL}
    };
    const ucs_config_field_t iface_table[] = {
        /* Memory of the domain comes first: peers on an emulated network reach
         * it by plain loads and stores, other memory only with the help of the
         * kernel. */
        {"", "ALLOC=md,thp,mmap,heap", NULL,
         offsetof(uct_utofu_iface_config_t, super), iface_parent},

        {"AM_SEG_SIZE", "auto",
         "Size of a receive slot: the largest active message that is sent by "
         "bcopy or zcopy. \"auto\" is 8256: 8 KiB of a user, and headers.",
         offsetof(uct_utofu_iface_config_t, am_seg_size), bytes},

        {"RX_SLOTS", "auto",
         "Number of receive slots of AM_SEG_SIZE bytes. They are shared by all "
         "peers, so this does not grow with the size of a job. It is made "
         "smaller where the message receive queue is too short for it.",
         offsetof(uct_utofu_iface_config_t, rx_slots), count},

        {"RX_SHORT_SLOTS", "auto",
         "Number of receive slots for short active messages.",
         offsetof(uct_utofu_iface_config_t, rx_short_slots), count},

        {"TX_BOUNCE", "auto",
         "Number of buffers for sending by bcopy.",
         offsetof(uct_utofu_iface_config_t, tx_bounce), count},

        {"TX_NOTIFIED", "auto",
         "Largest number of operations in flight whose completion is reported: "
         "zcopy, get, fetching atomics and flush.",
         offsetof(uct_utofu_iface_config_t, tx_notified), count},

        {"AM_POLLED", "auto",
         "Senders that may send small messages without a notice: the interface "
         "looks at memory for each of them. At most 8; 0 is none, \"auto\" is 4.",
         offsetof(uct_utofu_iface_config_t, am_polled), count},

        {"AM_IN_PLACE", "auto",
         "Pack messages into the receive slot itself when the peer is a process of this "
         "host, whose slots are then mapped: bcopy and zcopy of 256 bytes and more, and "
         "short ones that go without a notice. Both sides must want it. \"auto\" is where "
         "the library then copies nothing: with the emulator.",
         offsetof(uct_utofu_iface_config_t, am_in_place), ternary},

        {"AM_AHEAD", "auto",
         "Take the cache line of an answer to a small message when the handler has "
         "returned, before there is one. For peers on this host, and for users that "
         "do not answer at once. \"auto\" is for UCP, on processors where it is known "
         "to be faster.",
         offsetof(uct_utofu_iface_config_t, am_ahead), ternary},

        {"STRONG_ORDER", "n",
         "Post zcopy operations in strong order too, so that they take effect in "
         "the order in which they were posted and the last byte of a put is "
         "written last, without a fence. All other operations always are.",
         offsetof(uct_utofu_iface_config_t, strong_order), yesno},

        {"EARLY_COMPLETE", "y",
         "Look once, after a zcopy or a fetching atomic was posted, whether it is "
         "done: then it returns OK, which shortens it where memory is near; so "
         "does a short zcopy message, whose data is copied. \"n\" is for programs "
         "that know only completion in progress, as network interfaces have it.",
         offsetof(uct_utofu_iface_config_t, early_complete), yesno},

        {"STATS", "n",
         "Print counters of the interface to the standard error when it is "
         "closed: messages, credit messages, notices, polls and others.",
         offsetof(uct_utofu_iface_config_t, stats), yesno},

        {"BANDWIDTH", "auto",
         "Bandwidth of the interface that is reported to the upper layer; it "
         "is used to choose between transports and protocols.",
         offsetof(uct_utofu_iface_config_t, bandwidth), bandwidth},

        {"LATENCY", "auto",
         "One-way latency of the interface that is reported to the upper "
         "layer.",
         offsetof(uct_utofu_iface_config_t, latency), time},

        {"OVERHEAD", "auto",
         "Processor time of posting one operation that is reported to the "
         "upper layer.",
         offsetof(uct_utofu_iface_config_t, overhead), time},

        {"WAKEUP_TIMER", "auto",
         "How long a worker that waits for events sleeps at most where nothing "
         "would wake it: always on the machine, and while it waits for credit. "
         "At most 100ms; \"auto\" is 1ms.",
         offsetof(uct_utofu_iface_config_t, wakeup_timer), time},

        {NULL}
    };

    _Static_assert(sizeof(md_table) == sizeof(uct_utofu_md_config_table),
                   "number of md variables");
    _Static_assert(sizeof(iface_table) == sizeof(uct_utofu_iface_config_table),
                   "number of iface variables");
    memcpy(uct_utofu_md_config_table, md_table, sizeof(md_table));
    memcpy(uct_utofu_iface_config_table, iface_table, sizeof(iface_table));
}

/* --------------------------------------------------------------- registration */

/* The head of libuct's list of components.  A program that names the variable has it
 * itself (copy relocation), and libuct uses that one.  What the library has is then no
 * part of the list: it points to the true head for good, as the linker left it. */
static const ucs_list_link_t *uct_utofu_component_list(void)
{
    const ucs_list_link_t *head = uct_utofu_api.uct_components_list;
    const ucs_list_link_t *link;

    for (link = head->next->next; link != head->next; link = link->next) {
        if (link == head) {
            return head;
        }
    }
    return (head->next == head) ? head : head->next;
}

/* The component of that name which libuct already has, or NULL. */
static uct_component_t *uct_utofu_find_component(void)
{
    const ucs_list_link_t *head = uct_utofu_component_list();
    uct_component_t *component;
    const ucs_list_link_t *link;

    for (link = head->next; link != head; link = link->next) {
        component = (uct_component_t*)((char*)link -
                                       offsetof(uct_component_t, list));
        if (!strcmp(component->name, UCT_UTOFU_NAME)) {
            return component;
        }
    }
    return NULL;
}

/* This file stays in memory from now on: UCX's lists lead into it, and removing
 * a component from them is not foreseen in UCX. */
static int uct_utofu_pin(char *why, size_t why_size)
{
    Dl_info info;

    if (!dladdr(&uct_utofu_component, &info) ||
        (dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) ==
         NULL)) {
        snprintf(why, why_size, "can't keep the plugin loaded: %s", dlerror());
        return -1;
    }
    return 0;
}

static ucs_status_t uct_utofu_register(const void *caller)
{
    static int refused;
    char why[sizeof(((struct uct_utofu_libs*)0)->ucs_path) + 256] = "";
    uct_component_t *component;
    struct uct_utofu_libs libs;

    if (uct_utofu_libs_open(caller, &libs, why, sizeof(why)) != 0) {
        goto err;
    }
    if ((uct_utofu_guard_check(&libs, why, sizeof(why)) != 0) ||
        (uct_utofu_api_bind(&libs, why, sizeof(why)) != 0)) {
        goto err_close;
    }

    uct_utofu_log_init();

    component = uct_utofu_find_component();
    if (component != NULL) {
        if (component != &uct_utofu_component) {
            uct_utofu_debug("another copy of the utofu plugin is registered "
                            "with %s, this one is not used", libs.uct_path);
        }
        uct_utofu_libs_close(&libs); /* the first call keeps its references */
        return UCS_OK;
    }

    if (uct_utofu_pin(why, sizeof(why)) != 0) {
        goto err_close;
    }

    uct_utofu_config_init();
    uct_utofu_md_ops_init();
    uct_utofu_iface_ops_init();
    uct_utofu_api.uct_component_register(&uct_utofu_component);
    uct_utofu_api.uct_tl_register(&uct_utofu_component, &uct_utofu_tl);
    uct_utofu_debug("transport utofu registered with %s", libs.uct_path);
    return UCS_OK;

err_close:
    uct_utofu_libs_close(&libs);
err:
    /* Not through UCX's log: of a UCX that we don't know, not even that
     * function is to be trusted. */
    if (!refused) {
        refused = 1;
        fprintf(stderr,
                "libuct_utofu: the utofu transport is not available: %s\n",
                why);
    }
    return UCS_ERR_UNSUPPORTED;
}

/*
 * Called by libucs after it has loaded this file, or by a program that loads the
 * file by itself, before it opens a UCP context.  Any number of calls registers
 * the transport once.
 */
__attribute__((visibility("default"), noinline))
ucs_status_t ucs_module_global_init(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    ucs_status_t status;

    pthread_mutex_lock(&lock);
    status = uct_utofu_register(__builtin_return_address(0));
    pthread_mutex_unlock(&lock);
    return status;
}
