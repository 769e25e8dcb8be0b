"""Why a server is not running: the kind that `doctor` decides by, whatever words the server uses."""

from __future__ import annotations

import httpx2
import pytest

from mcp_optimizer.cli.server_advice import advise
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.domain.failure_kinds import FailureKind
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.upstream.diagnostics import CommandNotFound, explained, redirected, refused_with
from mcp_optimizer.upstream.request_errors import ExchangeLost, RpcError, RpcTimeout, ServerGone
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


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, "unauthorised"), (403, "forbidden"), (404, "not_found"), (405, "transport"), (406, "transport")],
)
def test_what_a_status_means_has_a_kind(status: int, kind: str) -> None:
    assert refused_with(status).kind.value == kind


def test_a_page_is_not_mcp_and_any_other_status_is_a_refusal() -> None:
    assert refused_with(200, "text/html; charset=utf-8").kind is FailureKind.NOT_MCP
    assert refused_with(500, "text/html").kind is FailureKind.REFUSED


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


def test_what_a_server_would_have_in_this_shell_and_does_not_get_is_named_without_its_value() -> None:
    shell = {"PATH": "/bin", "GITHUB_TOKEN": "ghp_x", "UV_INDEX_URL": "https://ada:pw@x", "OTHER_KEY": "k", "HOME": "/"}
    spec = ServerSpec("files", Transport.STDIO, command="x", env={"UV_CACHE_DIR": "/tmp"})
    said = "it exited with code 1: GITHUB_TOKEN is required"
    failed = UpstreamState(spec, ServerStatus.FAILED, reason=said, failure=FailureKind.EXITED)
    advice = advise(failed, shell)
    assert "Your shell has GITHUB_TOKEN, UV_INDEX_URL, which it does not get" in advice
    assert not [value for value in ("ghp_x", "ada:pw", "OTHER_KEY") if value in advice]
    assert "Your shell has" not in advise(failed, {"PATH": "/bin"})


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("npx", "npm_config_registry"),
        ("/usr/bin/uvx", "PIP_INDEX_URL"),
        ("python3.12", "PIP_INDEX_URL"),
        ("files-server", "PIP_INDEX_URL, npm_config_registry"),
    ],
)
def test_only_variables_of_the_program_that_runs_a_server_are_named(command: str, named: str) -> None:
    shell = {"PATH": "/bin", "PIP_INDEX_URL": "https://x", "npm_config_registry": "https://y"}
    spec = ServerSpec("files", Transport.STDIO, command=command)
    failed = UpstreamState(spec, ServerStatus.FAILED, reason="it exited with code 1", failure=FailureKind.EXITED)
    assert f"Your shell has {named}, which" in advise(failed, shell)


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:8765/servers",
        "http://localhost./x",
        "//[::ffff:127.0.0.1]/x",
        "https://10.0.0.1/",
        "http://0/",
    ],
)
def test_nobody_is_advised_to_use_an_address_of_this_machine_that_a_server_elsewhere_names(location: str) -> None:
    told = redirected("https://tools.example/mcp", location)
    assert "use that url" not in told


@pytest.mark.parametrize("location", ["/mcp/", "https://other.example/mcp", "http://127.0.0.1:9/mcp/"])
def test_a_server_that_moved_within_its_reach_is_followed_by_hand(location: str) -> None:
    assert redirected("http://127.0.0.1:8000/mcp", location) == f"it redirects to {location}: use that url"


def test_a_redirect_to_what_is_no_address_says_so() -> None:
    assert "which is no address" in redirected("https://tools.example/mcp", "http://[")
