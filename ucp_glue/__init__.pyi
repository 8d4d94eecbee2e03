# SPDX-License-Identifier: BSD-3-Clause
from ucp_glue._ucp import (
    AmMessage as AmMessage,
    Context as Context,
    Endpoint as Endpoint,
    Inbox as Inbox,
    Listener as Listener,
    Memory as Memory,
    RemoteKey as RemoteKey,
    Request as Request,
    Worker as Worker,
    ucx_version as ucx_version,
)
from ucp_glue.errors import (
    UcpCallerError as UcpCallerError,
    UcpCanceledError as UcpCanceledError,
    UcpClosedError as UcpClosedError,
    UcpConnectionError as UcpConnectionError,
    UcpError as UcpError,
    UcpRetryError as UcpRetryError,
    UcpSystemError as UcpSystemError,
    UcpThreadError as UcpThreadError,
    UcpTimeoutError as UcpTimeoutError,
    UcpTruncatedError as UcpTruncatedError,
    UcpUnreachableError as UcpUnreachableError,
)
from ucp_glue.plugin import (
    Verification as Verification,
    enable as enable,
    environment as environment,
    verify as verify,
)

__all__: list[str]
