# SPDX-License-Identifier: BSD-3-Clause
"""Exceptions of the UCP-level objects: one class for each family of statuses.

Every failed call or operation of UCX raises a ``UcpError`` that knows the call, the
status and its name.  Misuse that never reaches UCX (a closed object, the wrong
thread) has classes of its own.
"""

from __future__ import annotations

__all__ = [
    "STATUS_NAMES",
    "UcpCallerError",
    "UcpCanceledError",
    "UcpClosedError",
    "UcpConnectionError",
    "UcpError",
    "UcpRetryError",
    "UcpSystemError",
    "UcpThreadError",
    "UcpTimeoutError",
    "UcpTruncatedError",
    "UcpUnreachableError",
    "status_class",
    "status_error",
]


class UcpError(Exception):
    """A call of UCP, or an operation that it started, failed.

    Attributes
    ----------
    call : str
        The function, e.g. ``ucp_tag_send_nbx``.
    status : int
        The status (negative), a value of ``ucs_status_t``.
    name : str
        The status by name, e.g. ``UCS_ERR_CONNECTION_RESET``.
    detail : str
        The object and the sizes, in words; may be empty.

    Source: UCX v1.22, ucs/type/status.h.
    """

    def __init__(self, call, status, detail=""):
        self.call = call
        self.status = status
        self.detail = detail
        self.name = STATUS_NAMES.get(status, "unknown status")
        text = f"{call}: {self.name} ({status})"
        super().__init__(f"{text}: {detail}" if detail else text)

    def __reduce__(self):  # a pool of processes sends it to who waits for the result
        return type(self), (self.call, self.status, self.detail)


class UcpRetryError(UcpError):
    """Nothing happened for lack of a resource; progress, then try again.

    Source: UCX v1.22, ucs/type/status.h, UCS_ERR_NO_RESOURCE, UCS_ERR_BUSY.
    """


class UcpCallerError(UcpError, ValueError):
    """The call was wrong: a parameter, an address, a range, a missing feature.

    Source: UCX v1.22, ucs/type/status.h, UCS_ERR_INVALID_PARAM.
    """


class UcpTruncatedError(UcpError):
    """A message is longer than the buffer that was to receive it.

    Source: UCX v1.22, ucs/type/status.h, UCS_ERR_MESSAGE_TRUNCATED.
    """


class UcpCanceledError(UcpError):
    """The operation was cancelled, or its worker or endpoint was closed.

    Source: UCX v1.22, ucs/type/status.h, UCS_ERR_CANCELED.
    """


class UcpUnreachableError(UcpError, ConnectionError):
    """No transport that may be used reaches the peer, or none is there at all.

    Source: UCX v1.22, ucs/type/status.h, UCS_ERR_UNREACHABLE, UCS_ERR_NO_DEVICE.
    """


class UcpConnectionError(UcpError, ConnectionError):
    """The peer closed the connection, refused it, or is dead.

    Source: UCX v1.22, ucs/type/status.h, UCS_ERR_CONNECTION_RESET.
    """


class UcpTimeoutError(UcpError, TimeoutError):
    """UCX itself gave up waiting, for example for an answer of the peer.

    Source: UCX v1.22, ucs/type/status.h, UCS_ERR_TIMED_OUT.
    """


class UcpSystemError(UcpError):
    """The system or the transport could not do it.

    Source: UCX v1.22, ucs/type/status.h, UCS_ERR_IO_ERROR, UCS_ERR_NO_MEMORY.
    """


class UcpClosedError(RuntimeError):
    """The object, or one that it depends on, is closed.

    Source: ucp_glue, cython/ucp_glue.
    """


class UcpThreadError(RuntimeError):
    """A worker for a single thread was used by another one.

    Source: UCX v1.22, ucs/type/thread_mode.h, UCS_THREAD_MODE_SINGLE.
    """


# Name and class of every single failure of ucs_status_t.  A test holds this table
# against the header.
_STATUSES = {
    -1: ("UCS_ERR_NO_MESSAGE", UcpRetryError),
    -2: ("UCS_ERR_NO_RESOURCE", UcpRetryError),
    -3: ("UCS_ERR_IO_ERROR", UcpSystemError),
    -4: ("UCS_ERR_NO_MEMORY", UcpSystemError),
    -5: ("UCS_ERR_INVALID_PARAM", UcpCallerError),
    -6: ("UCS_ERR_UNREACHABLE", UcpUnreachableError),
    -7: ("UCS_ERR_INVALID_ADDR", UcpCallerError),
    -8: ("UCS_ERR_NOT_IMPLEMENTED", UcpCallerError),
    -9: ("UCS_ERR_MESSAGE_TRUNCATED", UcpTruncatedError),
    -10: ("UCS_ERR_NO_PROGRESS", UcpRetryError),
    -11: ("UCS_ERR_BUFFER_TOO_SMALL", UcpCallerError),
    -12: ("UCS_ERR_NO_ELEM", UcpCallerError),
    -13: ("UCS_ERR_SOME_CONNECTS_FAILED", UcpConnectionError),
    -14: ("UCS_ERR_NO_DEVICE", UcpUnreachableError),
    -15: ("UCS_ERR_BUSY", UcpRetryError),
    -16: ("UCS_ERR_CANCELED", UcpCanceledError),
    -17: ("UCS_ERR_SHMEM_SEGMENT", UcpSystemError),
    -18: ("UCS_ERR_ALREADY_EXISTS", UcpCallerError),
    -19: ("UCS_ERR_OUT_OF_RANGE", UcpCallerError),
    -20: ("UCS_ERR_TIMED_OUT", UcpTimeoutError),
    -21: ("UCS_ERR_EXCEEDS_LIMIT", UcpCallerError),
    -22: ("UCS_ERR_UNSUPPORTED", UcpCallerError),
    -23: ("UCS_ERR_REJECTED", UcpConnectionError),
    -24: ("UCS_ERR_NOT_CONNECTED", UcpConnectionError),
    -25: ("UCS_ERR_CONNECTION_RESET", UcpConnectionError),
    -40: ("UCS_ERR_FIRST_LINK_FAILURE", UcpConnectionError),
    -59: ("UCS_ERR_LAST_LINK_FAILURE", UcpConnectionError),
    -60: ("UCS_ERR_FIRST_ENDPOINT_FAILURE", UcpConnectionError),
    -80: ("UCS_ERR_ENDPOINT_TIMEOUT", UcpConnectionError),
    -89: ("UCS_ERR_LAST_ENDPOINT_FAILURE", UcpConnectionError),
}

STATUS_NAMES = {value: name for value, (name, _) in _STATUSES.items()}
STATUS_NAMES[0] = "UCS_OK"
STATUS_NAMES[1] = "UCS_INPROGRESS"


def status_class(status: int) -> type[UcpError]:
    """Exception class for a negative status of UCX.

    Source: UCX v1.22, ucs/type/status.h.
    """
    return _STATUSES.get(status, (None, UcpError))[1]


def status_error(call: str, status: int, detail: str = "") -> UcpError:
    """Make the exception for a failed call of UCX.

    Source: UCX v1.22, ucs/type/status.h.
    """
    return status_class(status)(call, status, detail)
