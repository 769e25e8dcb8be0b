"""What the short ways of calls have in common: the way back to the client, and the errors that it gets.

For a transport that has read a `tools/call` itself, and has it answered by `relay/sdk_calls.py`. What is used here is
the SDK's public surface. Knows no transport.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.dispatcher import CallOptions, Outbound
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data, progress_token_from_params
from mcp.shared.transport_context import TransportContext
from pydantic import ValidationError

PROGRESS = "notifications/progress"

_DUPLEX = TransportContext(kind="jsonrpc", can_send_request=True)
_ONE_WAY = TransportContext(kind="jsonrpc", can_send_request=False)


def progress_of(
    token: types.ProgressToken, progress: float, total: float | None, message: str | None
) -> dict[str, Any]:
    """The parameters of a notification of progress, without what is not known."""
    more = {"total": total, "message": message}
    said = {key: value for key, value in more.items() if value is not None}
    return {"progressToken": token, "progress": progress, **said}


class CallChannel:
    """One call's way back to its client, until the call ends: an SDK `DispatchContext`."""

    def __init__(
        self, request_id: types.RequestId, params: Mapping[str, Any], outbound: Outbound, *, can_ask: bool
    ) -> None:
        self.request_id = request_id
        self.transport = _DUPLEX if can_ask else _ONE_WAY
        self.message_metadata = None
        self._params = params
        self._outbound = outbound
        self._is_closed = False
        self._cancel_requested: anyio.Event | None = None

    @property
    def can_send_request(self) -> bool:
        return self.transport.can_send_request and not self._is_closed

    @property
    def cancel_requested(self) -> anyio.Event:
        # Nobody of ours waits for it.
        if self._cancel_requested is None:
            self._cancel_requested = anyio.Event()
        return self._cancel_requested

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        if not self.can_send_request:
            raise NoBackChannelError(method)
        return await self._outbound.send_raw_request(method, params, opts)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        if not self._is_closed:
            await self._outbound.notify(method, params, opts)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        token = progress_token_from_params(self._params)
        if token is not None:
            await self.notify(PROGRESS, progress_of(token, progress, total, message))

    def close(self) -> None:
        """The call is over: nothing more belongs to it."""
        self._is_closed = True


def error_of(error: MCPError | ValidationError) -> types.ErrorData:
    """The error that a client gets, as the SDK words it."""
    found = handler_exception_to_error_data(error)
    assert found is not None
    return found


def unknown_error(error: Exception, *, is_modern: bool) -> types.ErrorData:
    """What the SDK tells a client of an error that nobody expected."""
    if is_modern:
        return types.ErrorData(code=types.INTERNAL_ERROR, message="Internal server error")
    return types.ErrorData(code=0, message=str(error))
