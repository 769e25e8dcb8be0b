"""Who is let in, and what everybody else is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.access.callers.door import Denied, Door
from mcp_optimizer.access.callers.keys import KnownKeys, Wanted, new_key, opened_keys
from mcp_optimizer.access.callers.verification import Credentials
from mcp_optimizer.app.optimizer import Optimizer
from mcp_optimizer.config.settings import load_settings
from mcp_optimizer.db.credentials import StoredKeys
from mcp_optimizer.domain.caller import ANYONE, Caller, Principal, Risk
from mcp_optimizer.errors import ConfigurationError
from tests.unit.access.callers.issuing import ISSUER, RESOURCE, IssuerWeb, token, token_issuer

METADATA = "https://gateway.example/.well-known/oauth-protected-resource/mcp"


def bearer(text: str) -> list[tuple[bytes, bytes]]:
    return [(b"host", b"gateway.example"), (b"authorization", f"Bearer {text}".encode())]


@asynccontextmanager
async def doors(tmp_path: Path, *, is_open: bool = False) -> AsyncIterator[tuple[Door, str]]:
    """A door for keys alone, and the text of a good one."""
    key, text = new_key(Wanted("ci"), datetime.now(UTC))
    async with opened_keys(tmp_path / "catalog.db") as stored:
        assert await stored.add(key, 10) == ""

        async def store() -> StoredKeys:
            return stored

        credentials = Credentials(KnownKeys(store))
        yield Door(credentials, is_open=is_open), text
        await credentials.close()


def token_door(needed: Sequence[str] = (), **said: Any) -> Door:
    issuer = IssuerWeb()
    credentials = Credentials(None, [token_issuer(**said)], {ISSUER: issuer.verifier(**said)})
    return Door(credentials, is_open=False, public_url="https://gateway.example", needed_scopes=lambda *_: needed)


async def refusal(door: Door, headers: list[tuple[bytes, bytes]]) -> Denied:
    with pytest.raises(Denied) as denied:
        await door.admit(headers, RESOURCE)
    return denied.value


async def test_a_key_is_taken_from_either_header(tmp_path: Path) -> None:
    async with doors(tmp_path) as (door, text):
        for headers in (
            bearer(text),
            [(b"x-api-key", text.encode())],
            [(b"authorization", f"bearer  {text}".encode())],
        ):
            assert (await door.admit(headers, RESOURCE)).name == "key:ci"


async def test_without_a_credential_an_open_door_lets_anyone_in_and_a_closed_one_nobody(tmp_path: Path) -> None:
    async with doors(tmp_path, is_open=True) as (door, _):
        assert await door.admit([], RESOURCE) is ANYONE
    async with doors(tmp_path / "other") as (door, _):
        denied = await refusal(door, [])
        assert (denied.status, denied.challenge) == (401, 'Bearer realm="mcp-optimizer"')
        assert "key create" in denied.body["error_description"]


@pytest.mark.parametrize("is_open", [True, False])
async def test_a_wrong_credential_is_refused_also_where_none_is_needed(tmp_path: Path, is_open: bool) -> None:
    async with doors(tmp_path, is_open=is_open) as (door, text):
        wrong: list[list[tuple[bytes, bytes]]] = [
            bearer(text[:-1]),
            bearer(text + "\xe4"),
            bearer(""),
            bearer("\x00"),
            bearer("a b"),
            bearer("x" * 20_000),
            bearer("eyJ.eyJ.x"),
            bearer("mcpo_" + "x" * 10_000),
            [(b"authorization", b"Basic dTpw")],
            [(b"authorization", b"")],
            [(b"authorization", text.encode())],
            [(b"authorization", b"\xff\xfe")],
            [(b"x-api-key", b"")],
            [(b"x-api-key", b"Bearer " + text.encode())],
        ]
        for headers in wrong:
            denied = await refusal(door, headers)
            assert denied.status == 401, headers
            assert 'error="invalid_token"' in denied.challenge
            assert denied.headers["WWW-Authenticate"] == denied.challenge


async def test_two_credentials_are_one_too_many(tmp_path: Path) -> None:
    async with doors(tmp_path) as (door, text):
        for second in (b"authorization", b"x-api-key"):
            assert (await refusal(door, [*bearer(text), (second, text.encode())])).status == 400


async def test_no_answer_repeats_a_credential(tmp_path: Path) -> None:
    async with doors(tmp_path) as (door, text):
        for sent in (text[:-1], f'"{text}', "sent-planted"):
            denied = await refusal(door, bearer(sent))
            assert sent[5:] not in f"{denied} {denied.body} {denied.headers}"


async def test_where_there_are_issuers_a_challenge_says_where_to_get_a_token_and_for_what() -> None:
    door = token_door(required_scopes=["mcp:use"], risk_scopes={"read": ["mcp:read"], "write": ["mcp:write"]})
    denied = await refusal(door, [])
    assert denied.challenge == f'Bearer scope="mcp:use mcp:read", resource_metadata="{METADATA}"'
    denied = await refusal(door, bearer("opaque"))
    assert denied.challenge.startswith('Bearer error="invalid_token", error_description="')
    assert f'resource_metadata="{METADATA}"' in denied.challenge
    denied = await refusal(door, bearer(token()))
    assert (denied.status, denied.error) == (403, "insufficient_scope")
    assert 'error="insufficient_scope"' in denied.challenge
    assert 'scope="mcp:use"' in denied.challenge


async def test_a_key_is_never_shown_to_an_issuer() -> None:
    issuer = IssuerWeb()
    asked = token_issuer(introspection_url=f"{ISSUER}/ask")
    credentials = Credentials(None, [asked], {ISSUER: issuer.verifier()})
    _, text = new_key(Wanted("ci"), datetime.now(UTC))
    door = Door(credentials, is_open=False)
    for sent in (text, text[:-1], "mcpo_x"):
        assert (await refusal(door, bearer(sent))).status == 401
    assert issuer.asked == []


async def test_an_issuer_that_does_not_answer_is_no_reason_to_log_in_again() -> None:
    issuer = IssuerWeb()
    issuer.status = 500
    door = Door(Credentials(None, [token_issuer()], {ISSUER: issuer.verifier()}), is_open=False)
    denied = await refusal(door, bearer(token()))
    assert (denied.status, denied.challenge, "Retry-After" in denied.headers) == (503, "", True)


async def test_a_message_that_needs_more_scopes_is_told_all_of_them() -> None:
    door = token_door(["mcp:write"])
    principal = await door.admit(bearer(token()), RESOURCE)
    with pytest.raises(Denied) as denied:
        door.check_scopes(Caller(principal=principal), {}, RESOURCE)
    assert denied.value.status == 403
    assert 'scope="mcp:read mcp:write"' in denied.value.challenge
    door.check_scopes(Caller(principal=Principal("key:x", "key:x")), {}, RESOURCE)
    token_door(["mcp:read"]).check_scopes(Caller(principal=principal), {}, RESOURCE)


def test_the_scopes_for_a_class_of_tools_are_those_of_the_caller_s_issuer() -> None:
    issuers = [token_issuer(risk_scopes={"write": ["w"]}), token_issuer(name="b", issuer="https://b")]
    credentials = Credentials(None, issuers)
    writer = Principal("token:x", "corp:ada", scopes=frozenset())
    assert credentials.scopes_for(writer, Risk.WRITE) == ("w",)
    assert credentials.scopes_for(writer, Risk.READ) == ()
    assert credentials.scopes_for(Principal("token:y", "b:ada", scopes=frozenset()), Risk.WRITE) == ()
    assert credentials.scopes_for(Principal("key:y", "key:corp"), Risk.WRITE) == ()


def test_the_gateway_describes_itself_as_the_standard_says() -> None:
    assert token_door(risk_scopes={"read": ["r"]}).metadata(RESOURCE) == {
        "resource": RESOURCE,
        "authorization_servers": [ISSUER],
        "scopes_supported": ["r"],
        "bearer_methods_supported": ["header"],
        "resource_name": "mcp-optimizer",
    }


@pytest.mark.parametrize(
    ("scheme", "host", "port", "resource"),
    [
        ("http", "127.0.0.1:8765", 8765, "http://127.0.0.1:8765/mcp"),
        ("http", "127.0.0.1:9999", 8765, "http://127.0.0.1:8765/mcp"),
        ("http", "LocalHost", 80, "http://localhost/mcp"),
        ("https", "gate", 443, "https://gate/mcp"),
        ("http", "[::1]:9", 8765, "http://[::1]:8765/mcp"),
        ("http", "gate", None, "http://gate/mcp"),
    ],
)
def test_a_token_is_for_the_port_we_listen_on_whatever_the_client_says(
    scheme: str, host: str, port: int | None, resource: str
) -> None:
    assert Door(Credentials(None), is_open=True).resource(scheme, host, port) == resource
    assert Door(Credentials(None), is_open=True, public_url="https://x/y").resource(scheme, host, port) == (
        "https://x/y/mcp"
    )


@pytest.mark.parametrize(
    ("host", "options", "is_refused"),
    [
        ("127.0.0.1", {}, False),
        ("192.0.2.1", {"allowed_hosts": "gate.example"}, True),
        ("127.0.0.1", {"allowed_hosts": "gate.example"}, True),
        ("192.0.2.1", {"public_url": "https://gate.example", "allowed_hosts": "gate.example"}, False),
    ],
)
def test_where_others_reach_it_no_host_header_says_what_tokens_are_for(
    host: str, options: dict[str, str], is_refused: bool
) -> None:
    issuer = {"name": "corp", "issuer": "https://id.example"}
    given = {"encoder": "none", "database": "none", "token_issuers": [issuer], "require_auth": True, **options}
    optimizer = Optimizer((), load_settings(given, {}))
    if not is_refused:
        assert optimizer.http_app(host)
        return
    with pytest.raises(ConfigurationError, match="set public_url"):
        optimizer.http_app(host)


async def test_only_valid_tokens_of_issuers_are_handed_on_to_be_exchanged(tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []
    issuer = IssuerWeb()
    credentials = Credentials(None, [token_issuer()], {ISSUER: issuer.verifier()})
    door = Door(
        credentials,
        is_open=True,
        public_url="https://gateway.example",
        verified=lambda principal, text: seen.append((principal.name, text)),
    )
    good = token()
    principal = await door.admit(bearer(good), RESOURCE)
    await door.admit([], RESOURCE)
    await refusal(door, bearer(token(aud="https://elsewhere.example")))
    assert seen == [(principal.name, good)]
    await credentials.close()
