/* SPDX-License-Identifier: BSD-3-Clause */
/* conf_error_fields.c - what the notice of a failed communication has in its fields (3.7.6.1). */
#include "harness.h"

CONF_TEST("3.7.6.1", fields_of_every_error, 2,
          "the notice of any error has the STADD of its kind: MRQ_PEER, RMT_LENGTH, RMT_MEMORY of a put, LCL_* of a get, "
          "posted with or without gap; the VCQ ID has its default path; a get that fails here has told its target")
{
    struct conf_vcq         vcq, gone;
    struct utofu_mrq_notice n;
    utofu_stadd_t           stadds[2], ro[2];
    unsigned char           area[512], sealed[512];
    utofu_vcq_id_t          to;
    uint8_t                 path[3] = {1, 2, 1};
    int                     i, gap;

    conf_need_exact_bounds();
    conf_vcq_open(&vcq, 0, 0);
    conf_vcq_open(&gone, 1, 0);
    conf_vcq_close(&gone);
    conf_reg_all(&vcq, area, sizeof(area), stadds);
    ro[conf_rank] = conf_reg(&vcq, sealed, sizeof(sealed), UTOFU_REG_MEM_FLAG_READ_ONLY);
    conf_exchange(&ro[conf_rank], sizeof(ro[0]), ro);
    for (gap = 0; gap < 2; gap++) {
        for (i = 0; i < 5; i++) {
            utofu_stadd_t lcl = (i == 3) ? ro[0] : (i == 4) ? stadds[0] + 505 : stadds[0];
            utofu_stadd_t rmt = (i == 1) ? stadds[1] + 505 : (i == 2) ? ro[1] : stadds[1];
            static const int codes[5] = {UTOFU_ERR_MRQ_PEER, UTOFU_ERR_MRQ_RMT_LENGTH, UTOFU_ERR_MRQ_RMT_MEMORY,
                                         UTOFU_ERR_MRQ_LCL_MEMORY, UTOFU_ERR_MRQ_LCL_LENGTH};

            if (conf_rank == 0) {
                to = (i == 0) ? gone.peer[1] : vcq.peer[1];
                CONF_OK(utofu_set_vcq_id_path(&to, path));
                CONF_OK((i < 3) ? (gap ? utofu_put_gap(vcq.hdl, to, lcl, rmt, 8, 3, 0, 1920, 1, NULL) :
                                         utofu_put(vcq.hdl, to, lcl, rmt, 8, 3, 0, NULL)) :
                                  (gap ? utofu_get_gap(vcq.hdl, to, lcl, rmt, 8, 3, CONF_RMRQ, 1920, 1, NULL) :
                                         utofu_get(vcq.hdl, to, lcl, rmt, 8, 3, CONF_RMRQ, NULL)));
                CONF_CODE(CONF_WAIT_MRQ(&vcq, &n), codes[i]);
                CONF_CHECK(n.vcq_id == ((i == 0) ? gone.peer[1] : vcq.peer[1]), "case %d, gap %d: VCQ ID", i, gap);
                CONF_CHECK((i < 3) ? (n.rmt_stadd == rmt + 8) : (n.lcl_stadd == lcl + 8), "case %d, gap %d: STADD", i,
                           gap);
            } else if (i >= 3) {
                CONF_EXPECT_MRQ(&vcq, UTOFU_MRQ_TYPE_RMT_GET, vcq.peer[0], 3, NULL);
            }
        }
    }
    conf_barrier();
    conf_dereg(&vcq, ro[conf_rank]);
    conf_dereg(&vcq, stadds[conf_rank]);
    conf_vcq_close(&vcq);
}
