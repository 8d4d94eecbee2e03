/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conf_tni.c - TNIs and their limits (3.2), versions and coordinates (3.9),
 * against the values of the system (chapter 6).
 */
#include "harness.h"

static const char *const functions[] = {
    "utofu_get_onesided_tnis", "utofu_get_barrier_tnis",
    "utofu_query_onesided_caps", "utofu_query_barrier_caps",
    "utofu_create_vcq", "utofu_create_vcq_with_cmp_id", "utofu_free_vcq",
    "utofu_query_vcq_id", "utofu_construct_vcq_id", "utofu_set_vcq_id_path",
    "utofu_query_vcq_info", "utofu_alloc_vbg", "utofu_free_vbg",
    "utofu_set_vbg", "utofu_query_vbg_info", "utofu_get_path_id",
    "utofu_get_path_coords", "utofu_reg_mem", "utofu_reg_mem_with_stag",
    "utofu_query_stadd", "utofu_dereg_mem", "utofu_put", "utofu_put_gap",
    "utofu_put_stride", "utofu_put_stride_gap", "utofu_put_piggyback",
    "utofu_put_piggyback8", "utofu_get", "utofu_get_gap", "utofu_get_stride",
    "utofu_get_stride_gap", "utofu_armw4", "utofu_armw8", "utofu_cswap4",
    "utofu_cswap8", "utofu_nop", "utofu_prepare_put", "utofu_prepare_put_gap",
    "utofu_prepare_put_stride", "utofu_prepare_put_stride_gap",
    "utofu_prepare_put_piggyback", "utofu_prepare_put_piggyback8",
    "utofu_prepare_get", "utofu_prepare_get_gap", "utofu_prepare_get_stride",
    "utofu_prepare_get_stride_gap", "utofu_prepare_armw4",
    "utofu_prepare_armw8", "utofu_prepare_cswap4", "utofu_prepare_cswap8",
    "utofu_prepare_nop", "utofu_post_toq", "utofu_poll_tcq", "utofu_poll_mrq",
    "utofu_query_num_unread_tcq", "utofu_query_num_unread_mrq",
    "utofu_barrier", "utofu_reduce_uint64", "utofu_reduce_double",
    "utofu_poll_barrier", "utofu_poll_reduce_uint64",
    "utofu_poll_reduce_double", "utofu_query_tofu_version",
    "utofu_query_utofu_version", "utofu_query_my_coords",
};

CONF_TEST("3", all_functions_exist, 1,
          "every function of utofu.h is defined, all by one library")
{
    char        library[4096];
    const char *file;
    size_t      i;

    CONF_CHECK(CONF_LEN(functions) == 65, "the list has %zu functions",
               CONF_LEN(functions));
    file = conf_symbol_file(functions[0]);
    CONF_CHECK(file != NULL, "%s is not defined", functions[0]);
    strncpy(library, file, sizeof(library) - 1);
    library[sizeof(library) - 1] = '\0';
    for (i = 1; i < CONF_LEN(functions); i++) {
        file = conf_symbol_file(functions[i]);
        CONF_CHECK(file != NULL, "%s is not defined", functions[i]);
        CONF_CHECK(strcmp(file, library) == 0, "%s is defined by %s, not %s",
                   functions[i], file, library);
    }
}

CONF_TEST("3.2.1.1", onesided_tnis, 1,
          "utofu_get_onesided_tnis gives distinct TNI IDs in memory that free "
          "releases, the same ones each time")
{
    utofu_tni_id_t *ids, *again;
    size_t          num, num_again, i, j;

    CONF_OK(utofu_get_onesided_tnis(&ids, &num));
    CONF_OK(utofu_get_onesided_tnis(&again, &num_again));
    CONF_CHECK((num > 0) && (ids != NULL), "no TNI");
    CONF_CHECK(num == num_again, "%zu TNIs, then %zu", num, num_again);
    CONF_CHECK(ids != again, "both calls gave the same memory");
    for (i = 0; i < num; i++) {
        CONF_CHECK(ids[i] == again[i], "TNI %zu differs between calls", i);
        for (j = 0; j < i; j++) {
            CONF_CHECK(ids[i] != ids[j], "TNI %d is there twice", ids[i]);
        }
    }
    free(ids);
    free(again);
}

CONF_TEST("6.1.2", six_tnis, 1, "a node has 6 TNIs, with IDs 0 to 5")
{
    size_t i;

    CONF_CHECK(conf_num_tnis() <= 6, "%zu TNIs", conf_num_tnis());
    CONF_CHECK(!conf_is_emulator() || (conf_num_tnis() == 6),
               "%zu TNIs, expected 6", conf_num_tnis());
    for (i = 0; i < conf_num_tnis(); i++) {
        CONF_CHECK(conf_tni(i) < 6, "TNI ID %d", conf_tni(i));
    }
}

CONF_TEST("3.2.1.1", onesided_tnis_pointers, 1,
          "utofu_get_onesided_tnis refuses null pointers")
{
    utofu_tni_id_t *ids = NULL;
    size_t          num = 0;

    CONF_CODE(utofu_get_onesided_tnis(NULL, &num), UTOFU_ERR_INVALID_POINTER);
    CONF_CODE(utofu_get_onesided_tnis(&ids, NULL), UTOFU_ERR_INVALID_POINTER);
}

#define CHECK_CAP(_member, _value) \
    CONF_CHECK(caps->_member == (_value), "TNI %d: " #_member " is %lu, " \
               "expected %lu", conf_tni(i), (unsigned long)caps->_member, \
               (unsigned long)(_value))

CONF_TEST("6.1.2", onesided_caps, 1,
          "every TNI has the features and limits of table 6.4; the flag of a "
          "mode is set exactly when VCQs of this mode exist")
{
    struct utofu_onesided_caps *caps;
    utofu_vcq_hdl_t             hdl;
    bool                        session;
    size_t                      i;
    int                         rc;

    for (i = 0; i < conf_num_tnis(); i++) {
        CONF_OK(utofu_query_onesided_caps(conf_tni(i), &caps));
        CONF_CHECK((caps->flags &
                    ~(UTOFU_ONESIDED_CAP_FLAG_SESSION_MODE)) ==
                           UTOFU_ONESIDED_CAP_FLAG_ARMW,
                   "TNI %d: flags 0x%lx", conf_tni(i), caps->flags);
        CHECK_CAP(armw_ops, 0x3fUL);
        CHECK_CAP(num_cmp_ids, 8);
        CHECK_CAP(num_reserved_stags, 256);
        CHECK_CAP(cache_line_size, 256);
        CHECK_CAP(stag_address_alignment, 256);
        CHECK_CAP(max_toq_desc_size, 64);
        CHECK_CAP(max_putget_size, 16777215);
        CHECK_CAP(max_piggyback_size, 32);
        CHECK_CAP(max_edata_size, 1);
        CHECK_CAP(max_mtu, 1920);
        CHECK_CAP(max_gap, 255);
        session = (caps->flags & UTOFU_ONESIDED_CAP_FLAG_SESSION_MODE) != 0;
        rc = utofu_create_vcq(conf_tni(i), UTOFU_VCQ_FLAG_SESSION_MODE, &hdl);
        if (session) {
            CONF_CODE(rc, UTOFU_SUCCESS, UTOFU_ERR_NOT_AVAILABLE);
            if (rc == UTOFU_SUCCESS) {
                CONF_OK(utofu_free_vcq(hdl));
            }
        } else {
            CONF_CODE(rc, UTOFU_ERR_NOT_SUPPORTED);
        }
    }
}

CONF_TEST("3.2.1.3", onesided_caps_arguments, 1,
          "utofu_query_onesided_caps gives memory of the library, only for "
          "TNIs that exist")
{
    struct utofu_onesided_caps *caps, *again;

    CONF_OK(utofu_query_onesided_caps(conf_tni(0), &caps));
    CONF_OK(utofu_query_onesided_caps(conf_tni(0), &again));
    CONF_CHECK(memcmp(caps, again, sizeof(*caps)) == 0,
               "two queries differ");
    CONF_CODE(utofu_query_onesided_caps(6, &caps), UTOFU_ERR_INVALID_TNI_ID);
    CONF_CODE(utofu_query_onesided_caps(UINT16_MAX, &caps),
              UTOFU_ERR_INVALID_TNI_ID);
    CONF_CODE(utofu_query_onesided_caps(conf_tni(0), NULL),
              UTOFU_ERR_INVALID_POINTER);
}

CONF_TEST("3.9.1.1", tofu_version, 1,
          "the version of the interconnect is 3.0 (table 6.1)")
{
    int major = -1, minor = -1;

    utofu_query_tofu_version(&major, &minor);
    CONF_CHECK((major == 3) && (minor == 0), "version %d.%d", major, minor);
}

CONF_TEST("3.9.1.2", utofu_version, 1,
          "the API of the library is not older than that of the header, with "
          "the same major version")
{
    int major = -1, minor = -1;

    utofu_query_utofu_version(&major, &minor);
    CONF_CHECK((major == UTOFU_VERSION_MAJOR) && (minor >= UTOFU_VERSION_MINOR),
               "version %d.%d, header %d.%d", major, minor,
               UTOFU_VERSION_MAJOR, UTOFU_VERSION_MINOR);
}

CONF_TEST("3.9.2.1", my_coords, 2,
          "utofu_query_my_coords gives X, Y, Z, A, B, C, with A, B, C below "
          "2, 3, 2, the same ones each time")
{
    uint8_t coords[8], again[8];

    memset(coords, 0xee, sizeof(coords));
    CONF_OK(utofu_query_my_coords(coords));
    CONF_CHECK((coords[3] < 2) && (coords[4] < 3) && (coords[5] < 2),
               "A, B, C are %d, %d, %d", coords[3], coords[4], coords[5]);
    CONF_CHECK((coords[6] == 0xee) && (coords[7] == 0xee),
               "more than 6 coordinates were written");
    memset(again, 0xee, sizeof(again));
    CONF_OK(utofu_query_my_coords(again));
    CONF_CHECK(memcmp(coords, again, sizeof(coords)) == 0,
               "two queries differ");
    CONF_CODE(utofu_query_my_coords(NULL), UTOFU_ERR_INVALID_POINTER);
}
