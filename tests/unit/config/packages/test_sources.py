"""What a user gives to `add` is recognised, and gets a short name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.config.packages.draft import SourceKind, checked_name, source_of, suggested_name
from mcp_optimizer.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "words", "kind"),
    [
        ("files", ["npx", "-y", "x"], SourceKind.COMMAND),
        ("https://example.com/mcp", [], SourceKind.URL),
        ("npm:@scope/pkg@1.0.0", ["--root", "/x"], SourceKind.NPM),
        ("pypi:pkg==1.0", [], SourceKind.PYPI),
        ("oci:ghcr.io/a/b:1", [], SourceKind.OCI),
        ("./some/weather.mcpb", [], SourceKind.BUNDLE),
        ("weather.DXT", [], SourceKind.BUNDLE),
        ("https://example.com/a/weather.mcpb?x=1", [], SourceKind.BUNDLE),
        ("io.github.user/weather", [], SourceKind.REGISTRY),
    ],
)
def test_each_kind_of_source_is_recognised(text: str, words: list[str], kind: SourceKind) -> None:
    found = source_of(text, words)
    assert (found.kind, found.words) == (kind, tuple(words))


@pytest.mark.parametrize("text", ["weather", "", "-x", "https://[", "a/b/c", "io.github.user/"])
def test_what_is_no_source_is_refused_or_an_address(text: str) -> None:
    if text.startswith("https://"):
        assert source_of(text).kind is SourceKind.URL
        return
    with pytest.raises(ConfigurationError, match="is not a source"):
        source_of(text)


def test_an_address_takes_no_arguments() -> None:
    with pytest.raises(ConfigurationError, match="no arguments"):
        source_of("https://example.com/mcp", ["x"])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("@modelcontextprotocol/server-filesystem@2025.1.14", "filesystem"),
        ("mcp-server-fetch==1.0", "fetch"),
        ("ghcr.io/github/github-mcp-server:1.0", "github"),
        ("docker.io/mcp/time@sha256:" + "0" * 64, "time"),
        ("/some/where/weather.mcpb", "weather"),
        ("io.github.user/weather-mcp", "weather"),
        ("https://mcp.context7.com/mcp", "context7"),
        ("https://api.example.co.uk/x", "example"),
        ("http://127.0.0.1:80/mcp", "127-0-0-1"),
        ("http://localhost/mcp", "localhost"),
        ("mcp", "mcp"),
        ("...", "server"),
    ],
)
def test_a_name_is_suggested(text: str, name: str) -> None:
    assert suggested_name(text) == name


@given(st.text(max_size=200))
def test_every_suggested_name_can_be_used(text: str) -> None:
    assert checked_name(suggested_name(text))
    assert checked_name(suggested_name(f"https://{text}"))


@pytest.mark.parametrize("name", ["", "a/b", "-a", " a", "a\n", "a\x1b[31m", "a" * 65, "a,b", "a\u202eb"])
def test_a_name_that_would_be_misread_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError):
        checked_name(name)
