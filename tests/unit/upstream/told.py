"""A session over a wire that answers as a test says; no process, no network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.upstream.diagnostics import Diagnostics
from mcp_optimizer.upstream.peer import Message, Peer
from mcp_optimizer.upstream.request_errors import RpcError
from mcp_optimizer.upstream.session import Agreement, UpstreamSession


class Told:
    """A transport that answers each message as the test says: a result, or an exception."""

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self.answers = list(answers)
        self.sent: list[str] = []

    async def deliver(self, message: Message, _headers: Mapping[str, str]) -> None:
        self.sent.append(message["method"])
        if "id" not in message or not self.answers:
            return
        answer = self.answers.pop(0)
        if isinstance(answer, RpcError):
            self.peer.receive({"id": message["id"], "error": {"code": answer.code, "message": answer.message}})
        elif isinstance(answer, Exception):
            raise answer
        else:
            self.peer.receive({"id": message["id"], "result": answer})

    def session(self, agreement: Agreement | None = None) -> UpstreamSession:
        self.peer = Peer(lambda _method, _params: None)
        self.peer.bind(self)
        session = UpstreamSession(ServerSpec("far", Transport.HTTP), self.peer, {}, Diagnostics())
        session.agreement = agreement or session.agreement
        return session
