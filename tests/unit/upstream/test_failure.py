"""Why a server is not running: the kind that `doctor` decides by, whatever words the server uses."""

from __future__ import annotations

import httpx2
import pytest

from mcp_optimizer.cli.inspect_servers import advise
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.upstream.endings import ExchangeLost, RpcError, RpcTimeout, ServerGone
from mcp_optimizer.upstream.failure import CommandNotFound, FailureKind, explained, refused_with
from mcp_optimizer.upstream.spec import ServerSpec, Transport
from mcp_optimizer.upstream.state import UpstreamState

ERRORS = [
    (TimeoutError(), FailureKind.SILENT),
    (RpcTimeout("initialize", 5), FailureKind.SILENT),
    (httpx2.ConnectError("refused"), FailureKind.UNREACHABLE),
    (ExchangeLost("nothing answers at its url", was_sent=False), FailureKind.UNREACHABLE),
    (ExchangeLost("cut off"), FailureKind.CLOSED),
    (RpcError(-32000, "the command was not found, is not set, exited"), FailureKind.REFUSED),
    (CommandNotFound("the command 'x' was not found"), FailureKind.COMMAND),
    (PermissionError("not executable"), FailureKind.ENTRY),
    (ServerGone("gone"), FailureKind.CLOSED),
]


@pytest.mark.parametrize(("error", "kind"), ERRORS, ids=lambda value: str(value) or type(value).__name__)
def test_an_error_has_a_kind_whatever_its_text_says(error: Exception, kind: FailureKind) -> None:
    assert explained(ExceptionGroup("group", [error]), 5).kind is kind


def test_a_server_that_wants_credentials_is_told_apart_from_one_that_refuses() -> None:
    assert [refused_with(status).kind.value for status in (401, 403, 404, 500)] == [
        "unauthorised",
        "unauthorised",
        "refused",
        "refused",
    ]


@pytest.mark.parametrize("kind", FailureKind)
@pytest.mark.parametrize("transport", [Transport.STDIO, Transport.HTTP])
def test_every_kind_of_failure_has_advice(kind: FailureKind, transport: Transport) -> None:
    is_stdio = transport is Transport.STDIO
    spec = ServerSpec(
        "files", transport, command="files-server" if is_stdio else "", url="" if is_stdio else "http://h/"
    )
    advice = advise(UpstreamState(spec, ServerStatus.FAILED, reason="exited: was not found", failure=kind))
    assert advice
    assert "{" not in advice


def test_a_server_that_runs_needs_no_advice() -> None:
    assert advise(UpstreamState(ServerSpec("files", Transport.STDIO, command="x"), ServerStatus.RUNNING)) == ""
