/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tofu_dl_functions.h - the 65 functions of utofu.h as X(ret, name, args).
 *
 * Included several times on purpose, with X defined by the includer: there is
 * no include guard.  The order is that of utofu.h.
 */
/* clang-format off */
X(int, get_onesided_tnis, (utofu_tni_id_t **tni_ids, size_t *num_tnis))
X(int, get_barrier_tnis, (utofu_tni_id_t **tni_ids, size_t *num_tnis))
X(int, query_onesided_caps, (utofu_tni_id_t tni_id, struct utofu_onesided_caps
  **tni_caps))
X(int, query_barrier_caps, (utofu_tni_id_t tni_id, struct utofu_barrier_caps
  **tni_caps))
X(int, create_vcq, (utofu_tni_id_t tni_id, unsigned long int flags,
  utofu_vcq_hdl_t *vcq_hdl))
X(int, create_vcq_with_cmp_id, (utofu_tni_id_t tni_id, utofu_cmp_id_t cmp_id,
  unsigned long int flags, utofu_vcq_hdl_t *vcq_hdl))
X(int, free_vcq, (utofu_vcq_hdl_t vcq_hdl))
X(int, query_vcq_id, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t *vcq_id))
X(int, construct_vcq_id, (uint8_t coords[], utofu_tni_id_t tni_id,
  utofu_cq_id_t cq_id, utofu_cmp_id_t cmp_id, utofu_vcq_id_t *vcq_id))
X(int, set_vcq_id_path, (utofu_vcq_id_t *vcq_id, uint8_t path_coords[]))
X(int, query_vcq_info, (utofu_vcq_id_t vcq_id, uint8_t coords[], utofu_tni_id_t
  *tni_id, utofu_cq_id_t *cq_id, uint16_t *extra_val))
X(int, alloc_vbg, (utofu_tni_id_t tni_id, size_t num_vbgs, unsigned long int
  flags, utofu_vbg_id_t vbg_ids[]))
X(int, free_vbg, (utofu_vbg_id_t vbg_ids[], size_t num_vbgs))
X(int, set_vbg, (struct utofu_vbg_setting vbg_settings[], size_t
  num_vbg_settings))
X(int, query_vbg_info, (utofu_vbg_id_t vbg_id, uint8_t coords[], utofu_tni_id_t
  *tni_id, utofu_bg_id_t *bg_id, uint16_t *extra_val))
X(int, get_path_id, (utofu_vcq_id_t vcq_id, uint8_t path_coords[],
  utofu_path_id_t *path_id))
X(int, get_path_coords, (utofu_vcq_id_t vcq_id, utofu_path_id_t path_id,
  uint8_t path_coords[]))
X(int, reg_mem, (utofu_vcq_hdl_t vcq_hdl, void *addr, size_t size, unsigned
  long int flags, utofu_stadd_t *stadd))
X(int, reg_mem_with_stag, (utofu_vcq_hdl_t vcq_hdl, void *addr, size_t size,
  unsigned int stag, unsigned long int flags, utofu_stadd_t *stadd))
X(int, query_stadd, (utofu_vcq_id_t vcq_id, unsigned int stag, utofu_stadd_t
  *stadd))
X(int, dereg_mem, (utofu_vcq_hdl_t vcq_hdl, utofu_stadd_t stadd, unsigned long
  int flags))
X(int, put, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t
  lcl_stadd, utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned
  long int flags, void *cbdata))
X(int, put_gap, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
  utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, size_t length, uint64_t
  edata, unsigned long int flags, size_t mtu, size_t gap, void *cbdata))
X(int, put_stride, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
  utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, size_t length, size_t
  stride, size_t num_blocks, uint64_t edata, unsigned long int flags, void
  *cbdata))
X(int, put_stride_gap, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
  utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, size_t length, size_t
  stride, size_t num_blocks, uint64_t edata, unsigned long int flags, size_t
  mtu, size_t gap, void *cbdata))
X(int, put_piggyback, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, void
  *lcl_data, utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned
  long int flags, void *cbdata))
X(int, put_piggyback8, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
  uint64_t lcl_data, utofu_stadd_t rmt_stadd, size_t length, uint64_t edata,
  unsigned long int flags, void *cbdata))
X(int, get, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, utofu_stadd_t
  lcl_stadd, utofu_stadd_t rmt_stadd, size_t length, uint64_t edata, unsigned
  long int flags, void *cbdata))
X(int, get_gap, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
  utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, size_t length, uint64_t
  edata, unsigned long int flags, size_t mtu, size_t gap, void *cbdata))
X(int, get_stride, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
  utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, size_t length, size_t
  stride, size_t num_blocks, uint64_t edata, unsigned long int flags, void
  *cbdata))
X(int, get_stride_gap, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
  utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, size_t length, size_t
  stride, size_t num_blocks, uint64_t edata, unsigned long int flags, size_t
  mtu, size_t gap, void *cbdata))
X(int, armw4, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum
  utofu_armw_op armw_op, uint32_t op_value, utofu_stadd_t rmt_stadd, uint64_t
  edata, unsigned long int flags, void *cbdata))
X(int, armw8, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum
  utofu_armw_op armw_op, uint64_t op_value, utofu_stadd_t rmt_stadd, uint64_t
  edata, unsigned long int flags, void *cbdata))
X(int, cswap4, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint32_t
  old_value, uint32_t new_value, utofu_stadd_t rmt_stadd, uint64_t edata,
  unsigned long int flags, void *cbdata))
X(int, cswap8, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, uint64_t
  old_value, uint64_t new_value, utofu_stadd_t rmt_stadd, uint64_t edata,
  unsigned long int flags, void *cbdata))
X(int, nop, (utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void *cbdata))
X(int, prepare_put, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
  utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, size_t length, uint64_t
  edata, unsigned long int flags, void *desc, size_t *desc_size))
X(int, prepare_put_gap, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
  utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, size_t length, uint64_t
  edata, unsigned long int flags, size_t mtu, size_t gap, void *desc, size_t
  *desc_size))
X(int, prepare_put_stride, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
  utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, size_t length, size_t
  stride, size_t num_blocks, uint64_t edata, unsigned long int flags, void
  *desc, size_t *desc_size))
X(int, prepare_put_stride_gap, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t
  rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, size_t length,
  size_t stride, size_t num_blocks, uint64_t edata, unsigned long int flags,
  size_t mtu, size_t gap, void *desc, size_t *desc_size))
X(int, prepare_put_piggyback, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t
  rmt_vcq_id, void *lcl_data, utofu_stadd_t rmt_stadd, size_t length, uint64_t
  edata, unsigned long int flags, void *desc, size_t *desc_size))
X(int, prepare_put_piggyback8, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t
  rmt_vcq_id, uint64_t lcl_data, utofu_stadd_t rmt_stadd, size_t length,
  uint64_t edata, unsigned long int flags, void *desc, size_t *desc_size))
X(int, prepare_get, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
  utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, size_t length, uint64_t
  edata, unsigned long int flags, void *desc, size_t *desc_size))
X(int, prepare_get_gap, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
  utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, size_t length, uint64_t
  edata, unsigned long int flags, size_t mtu, size_t gap, void *desc, size_t
  *desc_size))
X(int, prepare_get_stride, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
  utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, size_t length, size_t
  stride, size_t num_blocks, uint64_t edata, unsigned long int flags, void
  *desc, size_t *desc_size))
X(int, prepare_get_stride_gap, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t
  rmt_vcq_id, utofu_stadd_t lcl_stadd, utofu_stadd_t rmt_stadd, size_t length,
  size_t stride, size_t num_blocks, uint64_t edata, unsigned long int flags,
  size_t mtu, size_t gap, void *desc, size_t *desc_size))
X(int, prepare_armw4, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum
  utofu_armw_op armw_op, uint32_t op_value, utofu_stadd_t rmt_stadd, uint64_t
  edata, unsigned long int flags, void *desc, size_t *desc_size))
X(int, prepare_armw8, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id, enum
  utofu_armw_op armw_op, uint64_t op_value, utofu_stadd_t rmt_stadd, uint64_t
  edata, unsigned long int flags, void *desc, size_t *desc_size))
X(int, prepare_cswap4, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
  uint32_t old_value, uint32_t new_value, utofu_stadd_t rmt_stadd, uint64_t
  edata, unsigned long int flags, void *desc, size_t *desc_size))
X(int, prepare_cswap8, (utofu_vcq_hdl_t vcq_hdl, utofu_vcq_id_t rmt_vcq_id,
  uint64_t old_value, uint64_t new_value, utofu_stadd_t rmt_stadd, uint64_t
  edata, unsigned long int flags, void *desc, size_t *desc_size))
X(int, prepare_nop, (utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void
  *desc, size_t *desc_size))
X(int, post_toq, (utofu_vcq_hdl_t vcq_hdl, void *desc, size_t desc_size, void
  *cbdata))
X(int, poll_tcq, (utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, void
  **cbdata))
X(int, poll_mrq, (utofu_vcq_hdl_t vcq_hdl, unsigned long int flags, struct
  utofu_mrq_notice *notice))
X(int, query_num_unread_tcq, (utofu_vcq_hdl_t vcq_hdl, size_t *count))
X(int, query_num_unread_mrq, (utofu_vcq_hdl_t vcq_hdl, size_t *count))
X(int, barrier, (utofu_vbg_id_t vbg_id, unsigned long int flags))
X(int, reduce_uint64, (utofu_vbg_id_t vbg_id, enum utofu_reduce_op op, uint64_t
  data[], size_t num_data, unsigned long int flags))
X(int, reduce_double, (utofu_vbg_id_t vbg_id, enum utofu_reduce_op op, double
  data[], size_t num_data, unsigned long int flags))
X(int, poll_barrier, (utofu_vbg_id_t vbg_id, unsigned long int flags))
X(int, poll_reduce_uint64, (utofu_vbg_id_t vbg_id, unsigned long int flags,
  uint64_t data[]))
X(int, poll_reduce_double, (utofu_vbg_id_t vbg_id, unsigned long int flags,
  double data[]))
X(void, query_tofu_version, (int *major_ver, int *minor_ver))
X(void, query_utofu_version, (int *major_ver, int *minor_ver))
X(int, query_my_coords, (uint8_t coords[]))
/* clang-format on */
