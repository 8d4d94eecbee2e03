# SPDX-License-Identifier: BSD-3-Clause
"""Exceptions: one family for codes of utofu.h, one for statuses of the core.

The three kinds of failure stay apart, as they do in C: *try again* (nothing
happened, a resource is missing for now), *caller* (the call was wrong), and
*operation* (it was accepted and failed later, or the peer is gone).  Within the
last two, each mistake or fault that a program may want to tell apart has a class
of its own.
"""

from __future__ import annotations

__all__ = [
    "UtofuError",
    "UtofuBusyError",
    "TofuError",
    "TofuRetryError",
    "TofuCallerError",
    "TofuOperationError",
    "WorldError",
    "PeerFailedError",
    "TofuBufferError",
    "TofuContiguityError",
    "TofuDtypeError",
    "TofuReadOnlyError",
    "TofuRangeError",
    "TofuKeyError",
    "TofuClosedError",
    "TofuInUseError",
    "TofuThreadError",
    "TofuForkError",
    "TofuPeerError",
    "STATUS_NAMES",
    "status_class",
    "status_error",
    "code_error",
]


class UtofuError(Exception):
    """A uTofu call, or an operation it started, failed.

    Attributes
    ----------
    call : str
        The function, e.g. ``utofu_create_vcq``.
    code : int
        The return code (negative).
    name : str
        The code by name, e.g. ``UTOFU_ERR_FULL``.
    detail : str
        The object and the arguments, in words; may be empty.
    notice : MrqNotice or None
        For MRQ_* codes of ``Vcq.poll_mrq``: which operation failed.
    cbdata : int or None
        For TCQ_* codes of ``Vcq.poll_tcq``: which operation failed.

    Source: uTofu user's guide 3.1.2.1.
    """

    def __init__(self, call, code, name, detail="", notice=None, cbdata=None):
        self.call = call
        self.code = code
        self.name = name
        self.detail = detail
        self.notice = notice
        self.cbdata = cbdata
        text = f"{call}: {name} ({code})"
        super().__init__(f"{text}: {detail}" if detail else text)

    def __reduce__(self):  # a pool of processes sends it to who waits for the result
        return type(self), (
            self.call, self.code, self.name, self.detail, self.notice, self.cbdata,
        )  # fmt: skip


class UtofuBusyError(UtofuError):
    """UTOFU_ERR_BUSY: no queue entry is free.  Poll the TCQ, then try again.

    Source: uTofu user's guide 3.7.1.
    """


class TofuError(Exception):
    """A call of the transport core, or an operation, failed.

    Attributes
    ----------
    call : str
        The function of the core, e.g. ``tofu_ep_put_zcopy``.
    status : int
        The status; the values are those of ``ucs_status_t``.
    name : str
        The status by name, e.g. ``TOFU_ERR_NO_RESOURCE``.
    detail : str
        The object and the sizes, in words.

    Source: cython/core/tofu.h, tofu_status_t.
    """

    def __init__(self, call, status, detail=""):
        self.call = call
        self.status = status
        self.detail = detail
        self.name = STATUS_NAMES.get(status, "unknown status")
        text = f"{call}: {self.name} ({status})"
        super().__init__(f"{text}: {detail}" if detail else text)

    def __reduce__(self):
        return type(self), (self.call, self.status, self.detail)


class TofuRetryError(TofuError):
    """Nothing happened for lack of a resource; progress, then try again.

    Source: cython/core/tofu.h, TOFU_ERR_NO_RESOURCE.
    """


class TofuCallerError(TofuError, ValueError):
    """The call was wrong: a parameter, an address or a range.

    Source: cython/core/tofu.h, tofu_status_t.
    """


class TofuOperationError(TofuError):
    """The operation failed, or the system or the peer could not do it.

    Source: cython/core/tofu.h, tofu_status_t.
    """


class WorldError(RuntimeError):
    """A call of ``uct_tofu.world()`` failed: no bootstrap, or a wrong call.

    Source: docs/launcher.md.
    """


class PeerFailedError(WorldError):
    """Another rank ended, so what this one waits for cannot come.

    Attributes
    ----------
    rank : int or None
        The rank that ended.

    Source: docs/launcher.md.
    """

    def __init__(self, text, rank=None):
        self.rank = rank
        super().__init__(text)

    def __reduce__(self):
        return type(self), (self.args[0], self.rank)


class TofuBufferError(TofuCallerError, BufferError):
    """A buffer cannot be used as it is; the subclasses say why.

    Also raised as it is: memory cannot be freed while views of it exist.

    Source: Python, the buffer protocol.
    """


class TofuContiguityError(TofuBufferError):
    """The buffer is strided, with gaps: neither C- nor F-contiguous.

    Source: Python, the buffer protocol.
    """


class TofuDtypeError(TofuBufferError, TypeError):
    """The elements mean nothing elsewhere: Python objects, variable strings.

    Source: NumPy, dtype.hasobject.
    """


class TofuReadOnlyError(TofuBufferError):
    """The operation writes, and the local buffer or the remote key is read-only.

    Source: Python, the buffer protocol; cython/core/tofu.h, TOFU_MEM_READ_ONLY.
    """


class TofuRangeError(TofuCallerError, IndexError):
    """Offset and length, one of them perhaps negative, are not inside the memory.

    Source: cython/core/tofu.h, TOFU_ERR_OUT_OF_RANGE.
    """


class TofuKeyError(TofuCallerError):
    """A key or address that is damaged, not of this transport, or of elsewhere.

    Elsewhere is another network (on the emulator another host, user or job), or,
    of local memory, another MemoryDomain.

    Source: cython/core/tofu.h, tofu_rkey_unpack.
    """


class TofuClosedError(TofuCallerError, RuntimeError):
    """The object was closed.

    Source: cython/uct_tofu, close().
    """


class TofuInUseError(TofuCallerError, RuntimeError):
    """The object cannot be closed, for something that is open depends on it.

    Source: cython/uct_tofu, close().
    """


class TofuThreadError(TofuCallerError, RuntimeError):
    """The iface belongs to another thread; see ``Iface.claim``.

    Source: cython/core/tofu.h, thread rules.
    """


class TofuForkError(TofuCallerError, RuntimeError):
    """The object was made before a fork and belongs to the parent process.

    Source: cython/uct_tofu/_fork.pxi.
    """


class TofuPeerError(TofuOperationError, ConnectionError):
    """The peer cannot be reached: it ended, or it never was there.

    Source: cython/core/tofu.h, TOFU_ERR_ENDPOINT_TIMEOUT.
    """


# Name and class of every status of tofu.h that is an error.  A test holds this
# table against the header.
_STATUSES = {
    -1: ("TOFU_ERR_NO_MESSAGE", TofuRetryError),
    -2: ("TOFU_ERR_NO_RESOURCE", TofuRetryError),
    -3: ("TOFU_ERR_IO_ERROR", TofuOperationError),
    -4: ("TOFU_ERR_NO_MEMORY", TofuOperationError),
    -5: ("TOFU_ERR_INVALID_PARAM", TofuCallerError),
    -6: ("TOFU_ERR_UNREACHABLE", TofuPeerError),
    -7: ("TOFU_ERR_INVALID_ADDR", TofuCallerError),
    -12: ("TOFU_ERR_NO_ELEM", TofuCallerError),
    -14: ("TOFU_ERR_NO_DEVICE", TofuOperationError),
    -15: ("TOFU_ERR_BUSY", TofuRetryError),
    -16: ("TOFU_ERR_CANCELED", TofuOperationError),
    -18: ("TOFU_ERR_ALREADY_EXISTS", TofuCallerError),
    -19: ("TOFU_ERR_OUT_OF_RANGE", TofuRangeError),
    -20: ("TOFU_ERR_TIMED_OUT", TofuOperationError),
    -21: ("TOFU_ERR_EXCEEDS_LIMIT", TofuCallerError),
    -22: ("TOFU_ERR_UNSUPPORTED", TofuCallerError),
    -80: ("TOFU_ERR_ENDPOINT_TIMEOUT", TofuPeerError),
}

STATUS_NAMES = {value: name for value, (name, _) in _STATUSES.items()}
STATUS_NAMES[0] = "TOFU_OK"
STATUS_NAMES[1] = "TOFU_INPROGRESS"


def status_class(status: int) -> type[TofuError]:
    """Exception class for a negative status of the core.

    Source: cython/core/tofu.h, tofu_status_t.
    """
    return _STATUSES.get(status, (None, TofuError))[1]


def status_error(call: str, status: int, detail: str = "") -> TofuError:
    """Make the exception for a failed call of the core.

    Source: cython/core/tofu.h, tofu_status_t.
    """
    return status_class(status)(call, status, detail)


def code_error(call, code, name, detail="", notice=None, cbdata=None) -> UtofuError:
    """Make the exception for a failed uTofu call.

    Source: uTofu user's guide 3.1.2.1.
    """
    cls = UtofuBusyError if name == "UTOFU_ERR_BUSY" else UtofuError
    return cls(call, code, name, detail, notice, cbdata)
