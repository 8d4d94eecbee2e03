# SPDX-License-Identifier: BSD-3-Clause
"""The prototypes of utofu.h as one table: a word for each parameter.

A word says what the parameter is, from which its C type, hostile and sensible values
follow.  `>N` is an output of N bytes, `in:N` an input array of N bytes.
"""

import ctypes

_PUTGET = "hdl rmt_id lcl_stadd rmt_stadd length edata op_flags"
_STRIDE = "hdl rmt_id lcl_stadd rmt_stadd length stride blocks edata op_flags"
_PIGGYBACK = "hdl rmt_id data rmt_stadd length edata op_flags"
_PIGGYBACK8 = "hdl rmt_id value rmt_stadd length edata op_flags"
_ARMW4 = "hdl rmt_id armw_op value4 rmt_stadd edata op_flags"
_ARMW8 = "hdl rmt_id armw_op value rmt_stadd edata op_flags"
_CSWAP4 = "hdl rmt_id value4 value4 rmt_stadd edata op_flags"
_CSWAP8 = "hdl rmt_id value value rmt_stadd edata op_flags"

#: One-sided operations: each exists to be posted and to be prepared.
_OPERATIONS = {
    "put": _PUTGET,
    "put_gap": f"{_PUTGET} mtu gap",
    "put_stride": _STRIDE,
    "put_stride_gap": f"{_STRIDE} mtu gap",
    "put_piggyback": _PIGGYBACK,
    "put_piggyback8": _PIGGYBACK8,
    "get": _PUTGET,
    "get_gap": f"{_PUTGET} mtu gap",
    "get_stride": _STRIDE,
    "get_stride_gap": f"{_STRIDE} mtu gap",
    "armw4": _ARMW4,
    "armw8": _ARMW8,
    "cswap4": _CSWAP4,
    "cswap8": _CSWAP8,
    "nop": "hdl op_flags",
}

PROTOTYPES = {
    name: words.split()
    for name, words in {
        "utofu_get_onesided_tnis": ">8 >8",
        "utofu_get_barrier_tnis": ">8 >8",
        "utofu_query_onesided_caps": "tni >8",
        "utofu_query_barrier_caps": "tni >8",
        "utofu_create_vcq": "tni vcq_flags >8",
        "utofu_create_vcq_with_cmp_id": "tni cmp vcq_flags >8",
        "utofu_free_vcq": "hdl",
        "utofu_query_vcq_id": "hdl >8",
        "utofu_construct_vcq_id": "in:6 tni cq cmp >8",
        "utofu_set_vcq_id_path": "inout:8 in:3",
        "utofu_query_vcq_info": "rmt_id >6 >2 >2 >2",
        "utofu_alloc_vbg": "tni vbgs flags >512",
        "utofu_free_vbg": "in:512 vbgs",
        "utofu_set_vbg": "in:240 settings",
        "utofu_query_vbg_info": "vbg >6 >2 >2 >2",
        "utofu_get_path_id": "rmt_id in:3 >1",
        "utofu_get_path_coords": "rmt_id path >3",
        "utofu_reg_mem": "hdl memory size flags >8",
        "utofu_reg_mem_with_stag": "hdl memory size stag flags >8",
        "utofu_query_stadd": "rmt_id stag >8",
        "utofu_dereg_mem": "hdl lcl_stadd flags",
        **{f"utofu_{op}": f"{words} cb" for op, words in _OPERATIONS.items()},
        **{
            f"utofu_prepare_{op}": f"{words} desc >8"
            for op, words in _OPERATIONS.items()
        },
        "utofu_post_toq": "hdl desc desc_size cb",
        "utofu_poll_tcq": "hdl flags >8",
        "utofu_poll_mrq": "hdl flags >64",
        "utofu_query_num_unread_tcq": "hdl >8",
        "utofu_query_num_unread_mrq": "hdl >8",
        "utofu_barrier": "vbg flags",
        "utofu_reduce_uint64": "vbg reduce_op in:128 count flags",
        "utofu_reduce_double": "vbg reduce_op in:128 count flags",
        "utofu_poll_barrier": "vbg flags",
        "utofu_poll_reduce_uint64": "vbg flags >128",
        "utofu_poll_reduce_double": "vbg flags >128",
        "utofu_query_tofu_version": "need:4 need:4",
        "utofu_query_utofu_version": "need:4 need:4",
        "utofu_query_my_coords": ">6",
    }.items()
}

_SMALL = {
    "tni": ctypes.c_uint16,
    "cq": ctypes.c_uint16,
    "cmp": ctypes.c_uint16,
    "path": ctypes.c_uint8,
    "stag": ctypes.c_uint,
    "armw_op": ctypes.c_uint,
    "reduce_op": ctypes.c_uint,
    "value4": ctypes.c_uint32,
}
POINTERS = {"data", "memory", "desc", "cb"}


def is_pointer(word):
    return word in POINTERS or word[0] == ">" or ":" in word


def c_type(word):
    return ctypes.c_void_p if is_pointer(word) else _SMALL.get(word, ctypes.c_uint64)


def bits(word):
    return 8 * ctypes.sizeof(c_type(word))


def load(path):
    """The library, with the types of all functions set."""
    lib = ctypes.CDLL(str(path))
    for name, words in PROTOTYPES.items():
        function = getattr(lib, name)
        function.argtypes = [c_type(word) for word in words]
        function.restype = None if "version" in name else ctypes.c_int
    return lib
