"""Removes a server's secrets from its output: its stderr, its errors, and quotes of its URL by HTTP libraries.

A secret is any configured value that the user would not show to others: stored secrets, values of the server's
environment and headers, its client secret and private key, credentials and parameters of its URL, arguments named like
secrets. Each is replaced by its name, in all common encodings. Pure; called wherever a server's text leaves its
connection. Results of tools are not changed.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.largejson.compact_json import compact
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.runtime.terminal_text import printable

_LEAST = 6
"""Minimum characters of a redacted value; shorter ones occur in any text."""
_LEAST_IF_NAMED = 4
"""Minimum characters of a value whose name marks it as a secret."""
_CUT = 80
"""Minimum length of a text that may have been cut, perhaps in the middle of a secret."""
_LEAST_OF_CUT = 8
_DEEPEST = 50
_LONGEST_LOOKED_INTO = 10_000
"""Maximum characters of a value in which an import looks for secrets."""
_NESTED = 3
"""Maximum levels of nested values that are read: JSON in a variable, a pair inside it."""

_NAMED = regex(
    r"token|key|secret|passw|passphrase|pwd|auth|cred|cookie|session|bearer|signature|private|dsn|jwt|webhook|"
    r"(?:^|[-_.])(?:pat|pin|pass|sid|sig)(?:$|[-_.])",
    re.IGNORECASE,
)
_ORDINARY = regex(r"[/~.]*(?:(?:[a-z]{1,15}|[A-Z]{1,15}|[A-Z][a-z]{1,14}|\d{1,5})(?:[-_ .,:/@]+|$))+|\d{1,9}")
"""Words and small numbers, not secrets: `production`, `us-east-1`, `http://localhost:8080`, `/home/ada`, `600000`."""
_PAIR = regex(r"([A-Za-z_][\w.-]{0,99})\s*[=:]\s*([^;&\s\"']+)")
_CREDENTIALS = regex(r"://([^/?#\s@]*)@")
_SCHEMED = regex(r"(?:bearer|basic|token|digest|apikey)\s+\S{8,}", re.IGNORECASE)
_RANDOM = regex(r"(?=[^/]*\d)(?=[^/]*[A-Za-z])[\w.~%-]{16,}")
"""A random-looking part of a URL's path; some services put their token there."""
_KNOWN = regex(r"(?:gh[a-z]_|github_pat_|glpat-|sk-|xox[a-z]-|AKIA|ya29\.|eyJ|npm_|pypi-|hf_)[\w.-]{8,}")
"""Known prefixes of tokens."""


class Redactor:
    """Knows the secrets of one server. `text` and `value` return their argument without them."""

    def __init__(self, spec: ServerSpec, current: Callable[[], Mapping[str, str]] = dict) -> None:
        """`current`: secrets that change, such as tokens, by name."""
        self._configured = _labelled(_secrets(spec))
        self._current = current
        self._seen: tuple[Mapping[str, str], dict[str, str]] = ({}, self._configured)

    def _labels(self) -> dict[str, str]:
        """The replacements by the forms in which secrets may appear; rebuilt only when a secret has changed."""
        current = self._current()
        if current != self._seen[0]:
            self._seen = (dict(current), self._configured | _labelled(current.items()))
        return self._seen[1]

    def text(self, text: str) -> str:
        """A text without secrets, including the start of one that the text's end cuts off."""
        labels = self._labels()
        found = sorted((form for form in labels if form in text), key=len, reverse=True)
        if found:
            # In one pass and longest first, so that a replacement is not mistaken for another secret.
            text = re.sub("|".join(map(re.escape, found)), lambda match: labels[match.group()], text)
        return _without_cut(text, labels) if len(text) >= _CUT else text

    def value(self, value: Any) -> Any:
        """The same for all strings in a JSON value, such as the data of an error."""
        return self._walked(value, 0)

    def _walked(self, value: Any, level: int) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if level > _DEEPEST:
            return None
        if isinstance(value, Mapping):
            return {self._walked(key, level): self._walked(item, level + 1) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._walked(item, level + 1) for item in value]
        return value


def _labelled(secrets: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The replacement of each secret, by the forms in which it may appear, longest first."""
    labels: dict[str, str] = {}
    for name, secret in secrets:
        for form in _forms(secret):
            labels.setdefault(form, f"[redacted: {name}]")
    return dict(sorted(labels.items(), key=lambda item: -len(item[0])))


def _without_cut(text: str, labels: Mapping[str, str]) -> str:
    for form, label in labels.items():
        for length in range(min(len(form), len(text)) - 1, _LEAST_OF_CUT - 1, -1):
            if text.endswith(form[:length]):
                return text[:-length] + label
    return text


def _secrets(spec: ServerSpec) -> Iterator[tuple[str, str]]:
    """The names and values of all secrets of a server. A stored secret always counts, whatever it looks like."""
    for name, value in spec.secrets.items():
        yield name, value
        yield from _inside(name, value)
    for name, value in spec.env.items():
        yield from _inside(name, value)
    for name, value in spec.headers.items():
        yield from _inside(name, value)
    yield from _of_arguments(spec.args)
    yield from _inside("client_secret", spec.auth.client_secret)
    yield from _inside("private_key", spec.auth.private_key)
    if (exchange := spec.auth.exchange) is not None:
        yield from _inside("client_secret", exchange.client_secret)
        yield from _inside("private_key", exchange.private_key)
    yield from _of_arguments(spec.auth.headers_command.split())
    if spec.url:
        yield from _of_url(spec.url)


def is_secret(name: str, value: str) -> bool:
    """Whether a value of this name is a secret: all are, except short ones and common words."""
    if _NAMED.search(name):
        return len(value) >= _LEAST_IF_NAMED and value.lower() not in ("true", "false", "none", "null")
    return len(value) >= _LEAST and _ORDINARY.fullmatch(value) is None


def is_named_secret(name: str, value: str) -> bool:
    """Whether its name or a known token form marks a value as a secret. Does not guess from randomness."""
    return (_NAMED.search(name) is not None and is_secret(name, value)) or _KNOWN.search(value) is not None


def holds_secret(name: str, value: str, level: int = 0) -> bool:
    """Whether a value is such a secret or contains one: in JSON, as `Bearer x`, as `key=value`, in a URL."""
    if is_named_secret(name, value) or _SCHEMED.fullmatch(value.strip()):
        return True
    if any(password for _, _, password in (found.partition(":") for found in _CREDENTIALS.findall(value))):
        return True
    return (
        level < _NESTED
        and len(value) <= _LONGEST_LOOKED_INTO
        and any(holds_secret(inner, item, level + 1) for inner, item in _pairs(value))
    )


def _inside(name: str, value: str, level: int = 0) -> Iterator[tuple[str, str]]:
    """A value and the values inside it: JSON, `Bearer x`, `user:password`, `key=value`, credentials of a URL."""
    if is_secret(name, value):
        yield name, value
    if level >= _NESTED:
        return
    scheme, _, credentials = value.strip().partition(" ")
    if scheme.lower() in ("bearer", "basic", "token", "digest", "apikey") and credentials:
        yield from _inside(name, credentials.strip(), level + 1)
        yield from ((name, part) for part in _basic(credentials))
    for inner, item in _pairs(value):
        yield from _inside(inner or name, item, level + 1)
    for credentials in _CREDENTIALS.findall(value):
        yield from ((name, part) for part in (credentials, *credentials.split(":")) if len(part) >= _LEAST_IF_NAMED)
    yield from ((name, token) for token in _KNOWN.findall(value))
    if "\n" in value:
        yield from ((name, line.strip()) for line in value.splitlines() if is_secret(name, line.strip()))


def _pairs(value: str) -> Iterator[tuple[str, str]]:
    """`key=value` and `Key: value`, and the members of a JSON object; only those named like a secret."""
    try:
        parsed = json.loads(value) if value.lstrip()[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        parsed = None
    if parsed is not None:
        items = parsed.items() if isinstance(parsed, dict) else (("", item) for item in parsed)
        for name, item in items:
            yield str(name), item if isinstance(item, str) else compact(item)
        return
    for name, item in _PAIR.findall(value):
        if _NAMED.search(name) and item != value:
            yield name, item
    header, colon, rest = value.partition(":")
    if colon and _NAMED.search(header) and " " not in header:
        yield header, rest.strip()


def _basic(credentials: str) -> list[str]:
    try:
        user, _, password = base64.b64decode(credentials.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return []
    return [part for part in (f"{user}:{password}", password) if len(part) >= _LEAST_IF_NAMED]


def _of_arguments(arguments: Iterable[str]) -> Iterator[tuple[str, str]]:
    option = ""
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if option and not argument.startswith("-") and is_secret(option, argument):
            yield option, argument
        if equals and name and _NAMED.search(name) and " " not in name and is_secret(name, value):
            yield name, value
        for inner, item in _inside("argument", argument):
            # Most arguments are not secrets; only recognised parts of them are.
            if item != argument or _KNOWN.fullmatch(item):
                yield inner, item
        option = argument if argument.startswith("-") and not equals and _NAMED.search(argument) else ""


def has_random_part(url: str) -> bool:
    """Whether a part of the path of a URL may be a token."""
    return any(_RANDOM.fullmatch(part) for part in url.partition("://")[2].partition("?")[0].split("/")[1:])


def _of_url(url: str) -> Iterator[tuple[str, str]]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    credentials = parts.netloc.rpartition("@")[0]
    for part in (credentials, *credentials.split(":")):
        if len(part) >= _LEAST_IF_NAMED:
            yield "its url", part
            yield "its url", unquote(part)
    for name, value in parse_qsl(parts.query) + parse_qsl(parts.fragment):
        yield from _inside(name, value)
    for segment in parts.path.split("/"):
        if _RANDOM.fullmatch(segment):
            yield "its url", segment


def _forms(secret: str) -> set[str]:
    """The encodings of a secret: plain, in a URL, in JSON, in a header."""
    raw = secret.encode("utf-8", "surrogatepass")
    encoded = [base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()]
    forms = {
        secret,
        secret.strip(),
        printable(secret).strip(),
        quote(raw, safe=""),
        quote(raw),
        quote_plus(raw),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        *encoded,
        *(form.rstrip("=") for form in encoded),
    }
    return {form for form in forms if len(form) >= _LEAST_IF_NAMED}
