# SPDX-License-Identifier: BSD-3-Clause
"""The uTofu API as Python objects: the backend, its VCQs, registered memory.

Thin: one method is one uTofu call, with the library's own rules.  Every call
holds the GIL, which also serialises the use of a VCQ by several threads.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer)
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free
from uct_tofu cimport utofu as c
from uct_tofu.tofu_dl cimport (
    TOFU_BACKEND_EMULATOR, tofu_backend, tofu_backend_load, tofu_code_name)

import collections
import enum
import warnings

from uct_tofu.errors import code_error

include "_fork.pxi"


class OnesidedFlag(enum.IntFlag):
    """Flags of a posted one-sided operation; combine with ``|``.

    Source: uTofu user's guide 3.7.9.1.
    """

    STRONG_ORDER = c.UTOFU_ONESIDED_FLAG_STRONG_ORDER
    PACKET_RESPONSE = c.UTOFU_ONESIDED_FLAG_PACKET_RESPONSE
    REMOTE_MRQ_NOTICE = c.UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE
    PADDING = c.UTOFU_ONESIDED_FLAG_PADDING
    CACHE_INJECTION = c.UTOFU_ONESIDED_FLAG_CACHE_INJECTION
    DELAY_START = c.UTOFU_ONESIDED_FLAG_DELAY_START
    TCQ_NOTICE = c.UTOFU_ONESIDED_FLAG_TCQ_NOTICE
    LOCAL_MRQ_NOTICE = c.UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE


class ArmwOp(enum.IntEnum):
    """Operation of an atomic read-modify-write.

    Source: uTofu user's guide 3.7.7.1.
    """

    SWAP = c.UTOFU_ARMW_OP_SWAP
    ADD = c.UTOFU_ARMW_OP_ADD
    XOR = c.UTOFU_ARMW_OP_XOR
    AND = c.UTOFU_ARMW_OP_AND
    OR = c.UTOFU_ARMW_OP_OR


class MrqType(enum.IntEnum):
    """What an MRQ notice tells of: LCL of an own operation, RMT of a peer's.

    Source: uTofu user's guide 3.7.8.1.
    """

    LCL_PUT = c.UTOFU_MRQ_TYPE_LCL_PUT
    RMT_PUT = c.UTOFU_MRQ_TYPE_RMT_PUT
    LCL_GET = c.UTOFU_MRQ_TYPE_LCL_GET
    RMT_GET = c.UTOFU_MRQ_TYPE_RMT_GET
    LCL_ARMW = c.UTOFU_MRQ_TYPE_LCL_ARMW
    RMT_ARMW = c.UTOFU_MRQ_TYPE_RMT_ARMW


class MrqNotice(collections.namedtuple(
        "MrqNotice", "type vcq_id edata rmt_value lcl_stadd rmt_stadd")):
    """One notice of the MRQ.

    ``type`` is an ``MrqType``; which of the other fields have a meaning depends
    on it.

    Source: uTofu user's guide 3.7.6.1.
    """

    __slots__ = ()


cdef object fail(call, int code, detail="", notice=None, cbdata=None):
    """Raise the exception for a negative return code."""
    raise code_error(call, code, tofu_code_name(code).decode(), detail, notice,
                     cbdata)


include "_backend.pxi"
include "_vcq.pxi"
