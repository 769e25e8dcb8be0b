"""What a server says is shown without the secrets that were configured for it, and otherwise as it was."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.config.serverfile.redaction import Redactor
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport

TOKEN = 'ghp_Zr5/+q 9"x\\=é&w'


def child(args: tuple[str, ...] = (), **env: str) -> Redactor:
    return Redactor(ServerSpec("s", Transport.STDIO, "server", args, env))


def remote(url: str = "https://example.com/mcp", **headers: str) -> Redactor:
    return Redactor(ServerSpec("s", Transport.HTTP, url=url, headers=headers))


@pytest.mark.parametrize(
    "written",
    [
        TOKEN,
        quote(TOKEN, safe=""),
        json.dumps(TOKEN),
        json.dumps({"env": {"GITHUB_TOKEN": TOKEN}}, ensure_ascii=False),
        repr({"token": TOKEN}),
        base64.b64encode(TOKEN.encode()).decode(),
        base64.urlsafe_b64encode(TOKEN.encode()).decode().rstrip("="),
    ],
)
def test_a_secret_is_found_in_whatever_way_it_is_written(written: str) -> None:
    shown = child(GITHUB_TOKEN=TOKEN).text(f"401 for {written}.")
    assert "[redacted: GITHUB_TOKEN]" in shown
    assert "Zr5" not in shown
    assert shown.startswith("401 for ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DEBUG", "true"),
        ("PORT", "8080"),
        ("TIMEOUT_MS", "600000"),
        ("NODE_ENV", "production"),
        ("AWS_REGION", "us-east-1"),
        ("API_URL", "http://localhost:8080"),
        ("DATA", "/home/ada/notes"),
        ("USE_AUTH", "true"),
        ("API_KEY", "abc"),
        ("EMPTY", ""),
    ],
)
def test_ordinary_words_are_left_where_they_are(name: str, value: str) -> None:
    said = f"cannot use {value} here, true or not, in production"
    assert child((), **{name: value}).text(said) == said


@pytest.mark.parametrize(
    ("name", "value"),
    [("PASSWORD", "hunter2"), ("API_KEY", "production"), ("PIN", "4711"), ("ANYTHING", "a8f5f167f44f4964e6c998de")],
)
def test_what_is_named_like_a_secret_or_looks_random_is_one(name: str, value: str) -> None:
    assert child((), **{name: value}).text(f"wrong: {value}") == f"wrong: [redacted: {name}]"


@pytest.mark.parametrize(
    ("args", "secret"),
    [
        (("--token", "s3cr3t-value"), "s3cr3t-value"),
        (("--api-key=s3cr3t-value",), "s3cr3t-value"),
        (("-e", "GITHUB_TOKEN=s3cr3t-value"), "s3cr3t-value"),
        (("--header", "Authorization: Bearer s3cr3t-value"), "s3cr3t-value"),
        (("--header", "Authorization:Bearer s3cr3t-value"), "s3cr3t-value"),
        (("postgresql://ada:s3cr3t-value@db/notes",), "s3cr3t-value"),
        (("ghp_16C7e42F292c6912E7",), "ghp_16C7e42F292c6912E7"),
        (("Server=db;Password=s3cr3t-value;Port=1",), "s3cr3t-value"),
    ],
)
def test_arguments_that_are_secrets_are_redacted(args: tuple[str, ...], secret: str) -> None:
    shown = child(("serve", *args, "--verbose")).text(f"bad credentials {secret} for serve --verbose")
    assert secret not in shown
    assert shown.startswith("bad credentials [redacted: ")
    assert shown.endswith(" for serve --verbose")


def test_ordinary_arguments_are_not() -> None:
    said = "no such package @modelcontextprotocol/server-filesystem in /home/ada/Projects-2025/x1"
    assert child(("-y", "@modelcontextprotocol/server-filesystem", "/home/ada/Projects-2025/x1")).text(said) == said


def test_what_stands_inside_of_a_value_is_redacted_too() -> None:
    headers = json.dumps({"Authorization": "Bearer ntn_48f2a81c", "Notion-Version": "2022-06-28"})
    assert "ntn_48f2a81c" not in child(OPENAPI_MCP_HEADERS=headers).text("401: ntn_48f2a81c")
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----"
    assert "hkiG9w0BAQEFAASC" not in child(PRIVATE_KEY=key).text("line 2: hkiG9w0BAQEFAASC")


def test_headers_and_their_parts_are_redacted() -> None:
    basic = base64.b64encode(b"ada:s3cr3t").decode()
    redactor = remote(Authorization="Bearer abc.def-123", Cookie="sid=9f86d081", Proxy=f"Basic {basic}")
    shown = redactor.text(f"Bearer abc.def-123, abc.def-123, 9f86d081, {basic}, ada:s3cr3t, s3cr3t")
    for secret in ("abc.def", "9f86d081", basic, "s3cr3t"):
        assert secret not in shown


def test_credentials_parameters_and_random_parts_of_a_url_are_redacted() -> None:
    url = "https://ada:p%40ss-word@example.com/s/Q2hhcmxpZTEyMzQ1Njc4/mcp?api_key=k-12345&page=2&mode=fast"
    shown = remote(url).text(f"ConnectError: {url} and p@ss-word")
    for secret in ("p%40ss", "p@ss", "Q2hhcmxp", "k-12345"):
        assert secret not in shown
    assert "example.com/s/" in shown
    assert "page=2&mode=fast" in shown


def test_a_secret_that_was_cut_at_the_end_of_a_line_is_redacted() -> None:
    redactor = child(API_TOKEN="abcdefghijklmnop-0123456789")
    assert redactor.text("x" * 480 + "abcdefghijklmnop-012") == "x" * 480 + "[redacted: API_TOKEN]"


def test_the_data_of_an_error_is_redacted_at_every_level_and_however_deep() -> None:
    redactor = child(TOKEN="s3cr3t-value")
    data = {"why": ["s3cr3t-value", 1, None, {"s3cr3t-value": True}]}
    assert redactor.value(data) == {"why": ["[redacted: TOKEN]", 1, None, {"[redacted: TOKEN]": True}]}
    deep: list[object] = ["s3cr3t-value"]
    for _ in range(10_000):
        deep = [deep]
    assert "s3cr3t-value" not in repr(redactor.value(deep))


def test_the_longest_is_replaced_first_and_a_replacement_is_not_replaced_again() -> None:
    redactor = child(SHORT_KEY="redacted", LONG_KEY="redacted-and-more")
    assert redactor.text("redacted-and-more redacted") == "[redacted: LONG_KEY] [redacted: SHORT_KEY]"


def test_nobody_sees_the_secrets_of_a_redactor_that_is_printed() -> None:
    assert "s3cr3t" not in repr(child(TOKEN="s3cr3t-value"))


@given(st.text(min_size=6), st.text(), st.text())
def test_no_secret_is_left_whatever_it_is_and_wherever_it_stands(secret: str, before: str, after: str) -> None:
    shown = child(TOKEN=secret).text(before + secret + after)
    assert secret not in shown or secret in "[redacted: TOKEN]" or secret in before + after or secret.lower() == "false"


@given(st.text(), st.dictionaries(st.text(), st.text()), st.lists(st.text()), st.text())
def test_nothing_that_is_configured_makes_it_fail(text: str, env: dict[str, str], args: list[str], url: str) -> None:
    Redactor(ServerSpec("s", Transport.STDIO, "x", tuple(args), env, url=url, headers=env)).text(text)
