"""Forwards requests that belong to another gateway of the installation.

A modern client's answers go to the gateway where its call waits, by the signed state that the client carries; a legacy
client's, to the gateway that asked, by the question's id; a lost stream continues where it began, by the event's id. A
cancellation names no gateway, so it goes to all of them. A forwarded request is never forwarded again; one that cannot
be forwarded is answered here: the call is gone. Called by the gate over HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from mcp_optimizer.runtime.signatures import OwnedNames, Signatures, is_whole_name, owner_of_event, owner_of_question
from mcp_optimizer.runtime.tasks import BackgroundTasks
from mcp_optimizer.serving.peers import (
    FORWARDED_KEY,
    HEADER,
    PROOF_PATH,
    Forwarded,
    ForwardedHeaders,
    Passed,
    PeerClient,
    Peers,
)
from mcp_optimizer.serving.relay.connected import ORPHANED_KEY, PRINCIPAL_KEY

logger = logging.getLogger(__name__)

LAST_EVENT_ID: Final = "last-event-id"

_MOST = 256
"""Maximum number of requests being forwarded at a time."""

_MOST_TOLD = 64
"""Maximum number of cancellations being forwarded; more are dropped."""

_LONGEST_QUESTION = 100
_BUSY = "Too many requests are being passed on to other gateways. Try again shortly."
_NOT_THIS = "This is not the request that another gateway passed on."


class Forwarding:
    """Forwards requests between this gateway and the others."""

    def __init__(self, peers: Peers, names: OwnedNames, signatures: Signatures) -> None:
        self._peers = peers
        self._names = names
        self._headers = ForwardedHeaders(peers.own, signatures)
        self._client = PeerClient(self._headers)
        self._under_way = 0
        self._telling = BackgroundTasks(logger, "A cancellation was not passed on")

    @property
    def own(self) -> str:
        """The id of this gateway."""
        return self._peers.own

    def routes(self) -> list[Route]:
        """The route where another gateway verifies that it reached this one."""
        return [Route(PROOF_PATH, self._prove)]

    async def close(self) -> None:
        await self._telling.close()
        await self._client.close()

    async def _prove(self, request: Request) -> Response:
        asked = request.query_params.get("ask", "")
        if not asked or len(asked) > _LONGEST_QUESTION:
            return PlainTextResponse("Ask something.", status_code=400)
        return PlainTextResponse(await self._headers.proof(asked, self.own))

    async def arrived(self, request: Request) -> Forwarded | None:
        """The other gateway's statement about this request, if one forwarded it."""
        header = request.headers.get(HEADER)
        return await self._headers.read(header) if header is not None else None

    async def took(
        self, message: JSONRPCMessage, body: bytearray, resource: str, scope: Scope, receive: Receive, send: Send
    ) -> bool:
        """Whether the message was answered here, by forwarding or refusing it."""
        told, principal = scope.get(FORWARDED_KEY), scope[PRINCIPAL_KEY].id
        if told is not None:
            if told.is_about(body, principal):
                return False
            await JSONResponse({"error": _NOT_THIS}, status_code=400)(scope, receive, send)
            return True
        owner = await self._owner(message, principal)
        if not owner or owner == self.own:
            return False
        is_request = isinstance(message, JSONRPCRequest)
        took = await self._pass_on(owner, bytes(body), resource, scope, receive, send, all_of=is_request)
        if not took and isinstance(message, JSONRPCRequest) and is_whole_name((message.params or {})["requestState"]):
            scope[ORPHANED_KEY] = True
        return took

    async def took_stream(self, resource: str, scope: Scope, receive: Receive, send: Send) -> bool:
        """Whether a lost stream is continued by the gateway where it began."""
        owner = owner_of_event(Request(scope).headers.get(LAST_EVENT_ID, ""))
        if scope["method"] != "GET" or FORWARDED_KEY in scope or not owner or owner == self.own:
            return False
        return await self._pass_on(owner, b"", resource, scope, receive, send, all_of=False)

    def tell_others(self, message: JSONRPCMessage, body: bytearray, resource: str, scope: Scope) -> None:
        """Forward a legacy client's cancellation of a request that is not in progress here to all other gateways."""
        is_cancel = isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled"
        if is_cancel and FORWARDED_KEY not in scope and len(self._telling) < _MOST_TOLD:
            self._telling.spawn(self._tell(_passed(scope, bytes(body)), resource, scope[PRINCIPAL_KEY].id))

    async def _tell(self, request: Passed, resource: str, principal: str) -> None:
        async def tell(gateway: str, address: str) -> None:
            header = await self._headers.written(gateway, principal, resource, request.body)
            await self._client.tell(gateway, address, request, header)

        await asyncio.gather(*(tell(gateway, address) for gateway, address in (await self._peers.others()).items()))

    async def _owner(self, message: JSONRPCMessage, principal: str) -> str:
        if isinstance(message, JSONRPCRequest):
            return await self._names.owner_of_call((message.params or {}).get("requestState"), principal)
        return owner_of_question(message.id) if isinstance(message, JSONRPCResponse | JSONRPCError) else ""

    async def _pass_on(
        self, owner: str, body: bytes, resource: str, scope: Scope, receive: Receive, send: Send, *, all_of: bool
    ) -> bool:
        address = await self._peers.address(owner)
        if not address or not await self._client.is_there(owner, address):
            return False
        if self._under_way >= _MOST:
            await JSONResponse({"error": _BUSY}, status_code=503, headers={"retry-after": "1"})(scope, receive, send)
            return True
        self._under_way += 1
        try:
            header = await self._headers.written(owner, scope[PRINCIPAL_KEY].id, resource, body)
            request = _passed(scope, body)
            return await self._client.carry(owner, address, request, header, receive, send, all_of=all_of)
        finally:
            self._under_way -= 1


def _passed(scope: Scope, body: bytes) -> Passed:
    return Passed(scope["method"], scope.get("query_string", b""), scope["headers"], body)
