# SPDX-License-Identifier: BSD-3-Clause
"""The uTofu API as Python objects: the backend, its VCQs and VBGs, memory.

Thin: one method is one uTofu call, with the library's own rules; ``wait_*`` polls
until something comes.  All objects may be used by several threads; what the
library wants serialised takes turns.  A child holds its parent, and ``free`` of
the parent refuses while there are children.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_ANY_CONTIGUOUS, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer)
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport (
    SIZE_MAX, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t)
from libc.stdlib cimport free
from uct_tofu cimport utofu as c
from uct_tofu.tofu_dl cimport (
    TOFU_BACKEND_EMULATOR, tofu_backend, tofu_backend_load, tofu_code_name,
    tofu_functions)

import collections
import enum
import types
import warnings
import weakref

from uct_tofu._seconds import seconds
from uct_tofu.errors import code_error

# Not a name of the module: those are gone when the interpreter ends and finds what was
# left open.
cdef object warn = warnings.warn

include "_fork.pxi"
include "_integer.pxi"
include "_whole.pxi"
include "_attribute.pxi"


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

    @staticmethod
    def path(path_id):
        """The flag for one path, instead of the one in the VCQ ID.

        Parameters
        ----------
        path_id : int
            0 to 255, from ``Backend.path_id`` for the same VCQ ID.

        Raises ``ValueError`` for another number.

        Source: uTofu user's guide 3.7.9.2.
        """
        path_id = integer(path_id, "path_id")
        if not 0 <= path_id <= 255:
            raise ValueError(f"path ID {shown(path_id)}: 0 to 255 can be")
        return OnesidedFlag(c.UTOFU_ONESIDED_FLAG_PATH(path_id))

    @staticmethod
    def sps(steps):
        """The flag for the session progress step of a put to a session-mode VCQ:
        how many operations it starts there.

        Parameters
        ----------
        steps : int
            0 to 15.

        Raises ``ValueError`` for another number.

        Source: uTofu user's guide 3.7.9.3.
        """
        steps = integer(steps, "steps")
        if not 0 <= steps <= 15:
            raise ValueError(f"session progress step {shown(steps)}: 0 to 15 can be")
        return OnesidedFlag(c.UTOFU_ONESIDED_FLAG_SPS(steps))


class ArmwOp(enum.IntEnum):
    """Operation of an atomic read-modify-write.

    Source: uTofu user's guide 3.7.7.1.
    """

    SWAP = c.UTOFU_ARMW_OP_SWAP
    ADD = c.UTOFU_ARMW_OP_ADD
    XOR = c.UTOFU_ARMW_OP_XOR
    AND = c.UTOFU_ARMW_OP_AND
    OR = c.UTOFU_ARMW_OP_OR


class ReduceOp(enum.IntEnum):
    """Operation of a reduction: BFPSUM of floating-point numbers, the others of
    whole numbers.  MAXLOC takes pairs of value and place.

    Source: uTofu user's guide 3.8.3.1.
    """

    BARRIER = c.UTOFU_REDUCE_OP_BARRIER
    BAND = c.UTOFU_REDUCE_OP_BAND
    BOR = c.UTOFU_REDUCE_OP_BOR
    BXOR = c.UTOFU_REDUCE_OP_BXOR
    MAX = c.UTOFU_REDUCE_OP_MAX
    MAXLOC = c.UTOFU_REDUCE_OP_MAXLOC
    SUM = c.UTOFU_REDUCE_OP_SUM
    BFPSUM = c.UTOFU_REDUCE_OP_BFPSUM


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


# What freeing raises while the object is in use
cdef tuple USED = (RuntimeError,)

include "_block.pxi"
include "_backend.pxi"
include "_lock.pxi"
include "_wait.pxi"
include "_regmem.pxi"
include "_vcq.pxi"
include "_desc.pxi"
include "_vbg.pxi"

document(Vcq, "backend", "Backend : the uTofu library that it is of.\n\n"
         "Source: uTofu user's guide 3.3.1, utofu_create_vcq.")
document(Vcq, "tni", "int : the TNI that it is of.\n\n"
         "Source: uTofu user's guide 3.3.1, utofu_create_vcq.")
document(RegisteredMemory, "vcq", "Vcq : what it is registered with.\n\n"
         "Source: uTofu user's guide 3.6.1, utofu_reg_mem.")
document(RegisteredMemory, "read_only", "bool : the TNI may only read it.\n\n"
         "Source: uTofu user's guide 3.6.1, utofu_reg_mem.")
document(Descriptors, "vcq", "Vcq : what posts them.\n\n"
         "Source: uTofu user's guide 3.7.2.")
document(Vbg, "backend", "Backend : the uTofu library that they are of.\n\n"
         "Source: uTofu user's guide 3.4.1.1, utofu_alloc_vbg.")
document(Vbg, "tni", "int : the TNI that they are of.\n\n"
         "Source: uTofu user's guide 3.4.1.1, utofu_alloc_vbg.")
