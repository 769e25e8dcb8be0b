"""A server that is about to be added: the kind of its source, its command or address with gaps, and the inputs that
fill them. Pure.

`entry_of` makes the entry of the server file. Texts from registries and bundles enter only after a check; the user's
own answers may refer to variables and secrets. Does no input or output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from mcp_optimizer.errors import ConfigurationError, quoted
from mcp_optimizer.runtime.patterns import regex

# Checks texts of registries and bundles before any of them becomes a command. A `${...}` or `$NAME` in such a text is
# refused: in a server file, it would be replaced by a value of the user's environment, or a secret.

LONGEST_TEXT = 4_000
MOST_ITEMS = 100
"""Maximum arguments, variables, headers or packages of one server."""

_LONGEST_DESCRIPTION = 300
VARIABLE = regex(r"\$[{A-Za-z_]")
"""Also `$NAME`, which is a variable in the files of some programs."""
_ENVIRONMENT_NAME = regex(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_HEADER_NAME = regex(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_OF_THE_CONNECTION = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"}
)
_DANGEROUS = regex(
    r"(PATH|HOME|SHELL|ENV|BASH_ENV|IFS|LD_.*|DYLD_.*|GCONV_PATH|NODE_OPTIONS|NODE_PATH|NODE_EXTRA_CA_CERTS|"
    r"NODE_TLS_REJECT_UNAUTHORIZED|NPM_CONFIG_.*|PYTHON(PATH|STARTUP|HOME|INSPECT|BREAKPOINT|USERBASE)|PIP_.*|UV_.*|"
    r"PERL5(LIB|OPT)|RUBY(LIB|OPT)|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|DOTNET_STARTUP_HOOKS|GIT_SSH.*|GIT_EXEC_PATH|"
    r"DOCKER_HOST|CONTAINER_HOST|SSL_CERT_.*|(HTTPS?|ALL)_PROXY|MCP_OPTIMIZER_.*)",
    re.IGNORECASE,
)


def clean(text: Any, what: str, longest: int = LONGEST_TEXT) -> str:
    """Checks and returns an untrusted text that may go into an entry. `what` names it in messages."""
    if not isinstance(text, str):
        raise ConfigurationError(f"{what} must be a text, not {type(text).__name__}.")
    if len(text) > longest:
        raise ConfigurationError(f"{what} has {len(text):,} characters; at most {longest:,} are allowed.")
    if not text.isprintable():
        raise ConfigurationError(f"{what} contains characters that cannot be shown: {quoted(text)}.")
    if VARIABLE.search(text):
        raise ConfigurationError(
            f"{what} contains a variable, {quoted(text)}, which would be replaced by a value of yours. Only you may "
            "write such a variable."
        )
    return text


def environment_name(name: Any) -> str:
    if not isinstance(name, str) or not _ENVIRONMENT_NAME.fullmatch(name):
        raise ConfigurationError(f"{_shown(name)} is not the name of an environment variable.")
    return name


def header_name(name: Any) -> str:
    if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name) or name.lower() in _OF_THE_CONNECTION:
        raise ConfigurationError(f"{_shown(name)} is not a header that an entry can set.")
    return name


def is_dangerous(name: str) -> bool:
    """Whether an environment variable changes what runs, is trusted or is reached."""
    return _DANGEROUS.fullmatch(name) is not None


def warnings_of(names: Iterable[str]) -> tuple[str, ...]:
    """A note for each dangerous variable."""
    return tuple(f"It sets {name}, which changes what runs or whom it trusts." for name in names if is_dangerous(name))


def items(given: Mapping[str, Any], key: str, what: str) -> list[Mapping[str, Any]]:
    """The objects in an untrusted list; an absent list is empty."""
    found = given.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ConfigurationError(f'"{key}" of {what} must be a list of objects.')
    if len(found) > MOST_ITEMS:
        raise ConfigurationError(f'"{key}" of {what} has {len(found):,} items; at most {MOST_ITEMS} are allowed.')
    return found


def described(text: Any) -> str:
    """A description in one line, shortened; empty if it is not a string. Print it through `terminal_text`."""
    return " ".join(text.split())[:_LONGEST_DESCRIPTION] if isinstance(text, str) else ""


def _shown(name: Any) -> str:
    return quoted(name) if isinstance(name, str) else type(name).__name__


# Parses the argument of `add`: which kind of source it is, and a name for the server.

_LONGEST_NAME = 64
_REGISTRY_NAME = regex(r"[A-Za-z0-9][A-Za-z0-9.-]{0,199}/[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_DECORATION = regex(r"^(mcp[-_.]server[-_.]|server[-_.]|mcp[-_.])|([-_.]mcp[-_.]server|[-_.]mcp)$", re.IGNORECASE)
_MEANINGLESS_LABELS = frozenset({"mcp", "www", "api", "server", "sse"})


class SourceKind(StrEnum):
    """Where a server comes from."""

    COMMAND = "command"
    URL = "url"
    NPM = "npm"
    PYPI = "pypi"
    OCI = "oci"
    BUNDLE = "mcpb"
    REGISTRY = "registry"


_PREFIXES = {"npm:": SourceKind.NPM, "pypi:": SourceKind.PYPI, "oci:": SourceKind.OCI}

_PYPI_AT = regex(r"([\w.-]+(?:\[[\w.,-]*\])?)@(\d[\w.!+-]*)", re.ASCII)
"""A package of PyPI with a version as npm and uvx spell it."""


@dataclass(frozen=True)
class Source:
    """What to add. `text` is a package, an address, a path or a name; `words` a command, or more arguments of it."""

    kind: SourceKind
    text: str
    words: tuple[str, ...] = ()


def source_of(text: str, words: Sequence[str] = ()) -> Source:
    """`NAME -- command ...`, an address, `npm:`, `pypi:`, `oci:`, a bundle, or a name in a registry."""
    given = tuple(words)
    for prefix, kind in _PREFIXES.items():
        if text.startswith(prefix):
            package = text.removeprefix(prefix)
            return Source(kind, _PYPI_AT.sub(r"\1==\2", package) if kind is SourceKind.PYPI else package, given)
    is_address = text.startswith(("http://", "https://"))
    path = urlsplit(text).path if is_address and _is_readable(text) else text
    if path.lower().endswith((".mcpb", ".dxt")):
        return Source(SourceKind.BUNDLE, text, given)
    if is_address:
        if given:
            raise ConfigurationError("A server at an address takes no arguments.")
        return Source(SourceKind.URL, text)
    if _REGISTRY_NAME.fullmatch(text):
        return Source(SourceKind.REGISTRY, text, given)
    if given:
        return Source(SourceKind.COMMAND, text, given)
    raise ConfigurationError(
        f"{quoted(text)} is not a source that can be added: NAME -- COMMAND ARGUMENTS, https://ADDRESS, "
        "npm:PACKAGE, pypi:PACKAGE, oci:IMAGE, FILE.mcpb, or a name in the registry such as io.github.user/server."
    )


def _is_readable(url: str) -> bool:
    try:
        return bool(urlsplit(url).hostname)
    except ValueError:
        return False


def checked_name(name: str) -> str:
    """A valid name for a new server. A slash would make it look like the name of a tool."""
    if not name or len(name) > _LONGEST_NAME:
        raise ConfigurationError(f"The name of a server has 1 to {_LONGEST_NAME} characters, not {len(name):,}.")
    if not name.isprintable() or name != name.strip() or name.startswith("-") or "/" in name or "," in name:
        raise ConfigurationError(
            f"{quoted(name)} cannot be the name of a server: it must be printable, without slash, comma, spaces around "
            "it, or a dash at its beginning."
        )
    return name


def suggested_name(text: str) -> str:
    """A short name derived from a package, image, bundle, address or registry name."""
    if text.startswith(("http://", "https://")):
        return _of_host(text)
    last = re.split(r"[/\\]", text.rstrip("/\\"))[-1]
    last = re.sub(r"(@sha256)?[:@=].*$|\.(mcpb|dxt)$", "", last) or last
    return _plain_name(_DECORATION.sub("", last) or last)


def _of_host(url: str) -> str:
    host = (urlsplit(url).hostname or "") if _is_readable(url) else ""
    if re.fullmatch(r"[\d.]+|.*:.*", host):
        return _plain_name(host)
    labels = host.split(".")[:-1] or [host]
    telling = [label for label in labels if label not in _MEANINGLESS_LABELS]
    return _plain_name((telling or labels)[0])


def _plain_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:_LONGEST_NAME] or "server"


class InputFormat(StrEnum):
    """The form that a value must have."""

    TEXT = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    PATH = "filepath"


Answers = Mapping[str, tuple[str, ...]]
"""Values by input key; several if the input may be repeated."""


@dataclass(frozen=True)
class WantedInput:
    """One input. `key` is its name on the command line: `--input KEY=VALUE`."""

    key: str
    description: str = ""
    is_required: bool = False
    is_secret: bool = False
    default: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    format: InputFormat = InputFormat.TEXT
    minimum: float | None = None
    maximum: float | None = None
    is_list: bool = False

    def problem(self, value: str) -> str:
        """What is wrong with a value, without quoting it; empty if nothing. References are checked when used."""
        if "${" in value:
            return ""
        if "\0" in value:
            return "must not contain a null character"
        if self.choices and value not in self.choices:
            return f"must be one of {', '.join(self.choices)}"
        if self.format is InputFormat.BOOLEAN and value not in ("true", "false"):
            return "must be true or false"
        return self._problem_of_number(value) if self.format is InputFormat.NUMBER else ""

    def _problem_of_number(self, value: str) -> str:
        try:
            number = float(value)
        except ValueError:
            return "must be a number"
        if not (self.minimum is None or number >= self.minimum):
            return f"must be at least {self.minimum:g}"
        if not (self.maximum is None or number <= self.maximum):
            return f"must be at most {self.maximum:g}"
        return ""


def wanted_of(key: str, said: Mapping[str, Any], *, is_required: bool = False) -> WantedInput:
    """Made from an input of server.json."""
    # The key appears on command lines before an equals sign, and inside the braces of a reference.
    named = re.sub(r"[^\w.-]+", "_", clean(key, "The name of an input", 150))
    kind = said.get("format")
    return WantedInput(
        key=named,
        description=described(said.get("description")) or described(said.get("title")),
        is_required=is_required or said.get("isRequired") is True,
        is_secret=said.get("isSecret") is True,
        default=_texts(said.get("default"), f"The default of {named}"),
        choices=_texts(said.get("choices"), f"A choice of {named}"),
        format=next((one for one in InputFormat if one == kind), InputFormat.TEXT),
        minimum=_number(said.get("min")),
        maximum=_number(said.get("max")),
        is_list=said.get("isRepeated") is True,
    )


def _texts(value: Any, what: str) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    several: Sequence[Any] = value if isinstance(value, list) else [value]
    if len(several) > MOST_ITEMS:
        raise ConfigurationError(f"{what} is one of {len(several):,}; at most {MOST_ITEMS} are allowed.")
    return tuple(clean(_plain(one), what) for one in several)


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value}" if isinstance(value, int | float) else value


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


@dataclass(frozen=True)
class Gap:
    """The place of an answer."""

    key: str


Pieces = tuple[str | Gap, ...]
"""A text with gaps. If not all its gaps are filled, it is left out with everything around it."""


@dataclass(frozen=True)
class Argument:
    """Words of a command: a value, with an optional flag before it. A switch is only its flag, if the value is true."""

    value: Pieces = ()
    flag: str = ""
    is_switch: bool = False


@dataclass(frozen=True)
class Draft:
    """A command with arguments, or an address, whose `transport` is empty if it must be detected.

    `env_at`: the position of a container's options that pass variables on.
    """

    name: str
    command: str = ""
    args: tuple[Argument, ...] = ()
    env: Mapping[str, Pieces] = field(default_factory=dict)
    url: Pieces = ()
    headers: Mapping[str, Pieces] = field(default_factory=dict)
    transport: str = ""
    wanted: Mapping[str, WantedInput] = field(default_factory=dict)
    env_at: int | None = None
    notes: tuple[str, ...] = ()
    description: str = ""
    is_foreign: bool = False
    """Whether a third party chose what runs, so that the user should look at it first."""

    def with_values(self, env: Mapping[str, str], headers: Mapping[str, str]) -> Draft:
        """Adds variables and headers that the user chose, which replace those of the same name."""
        if self.url and env:
            raise ConfigurationError("A server at an address has no environment; use --header.")
        if headers and not self.url:
            raise ConfigurationError("A server that is a process has no headers; use --env.")
        texts = {name: (value,) for name, value in env.items()}
        ours = {name.lower() for name in headers}
        kept = {name: value for name, value in self.headers.items() if name.lower() not in ours}
        changed = replace(self, env={**self.env, **texts}, headers={**kept, **{k: (v,) for k, v in headers.items()}})
        return changed.without_unused()

    def without_unused(self) -> Draft:
        """Keeps only inputs that fill a gap."""
        used = set(self.gaps())
        return replace(self, wanted={key: one for key, one in self.wanted.items() if key in used})

    def gaps(self) -> Iterator[str]:
        texts = [*(argument.value for argument in self.args), *self.env.values(), self.url, *self.headers.values()]
        yield from (piece.key for text in texts for piece in text if isinstance(piece, Gap))

    def missing(self, answers: Answers) -> list[WantedInput]:
        """The required inputs without an answer."""
        return [one for one in self.wanted.values() if one.is_required and not answers.get(one.key)]

    def with_defaults(self, answers: Answers) -> dict[str, tuple[str, ...]]:
        """The answers, and defaults for inputs without one."""
        defaults = {key: one.default for key, one in self.wanted.items() if one.default}
        return {**defaults, **{key: value for key, value in answers.items() if value}}


def word(text: str) -> Argument:
    return Argument((text,))


def words(texts: Iterable[str]) -> tuple[Argument, ...]:
    return tuple(word(text) for text in texts)


def entry_of(draft: Draft, answers: Answers) -> dict[str, Any]:
    """The entry of the server file. All required inputs must have answers."""
    if draft.url:
        url = _filled(draft.url, answers)
        if not url:
            raise ConfigurationError(f"The address of {draft.name} needs {', '.join(dict.fromkeys(draft.gaps()))}.")
        headers = _all_filled(draft.headers, answers)
        kind = {"type": draft.transport} if draft.transport else {}
        return {**kind, "url": url, **({"headers": headers} if headers else {})}
    env = _all_filled(draft.env, answers)
    at = len(draft.args) if draft.env_at is None else draft.env_at
    passed_on = [] if draft.env_at is None else [text for name in env for text in ("-e", name)]
    args = [*_words(draft.args[:at], answers), *passed_on, *_words(draft.args[at:], answers)]
    return {"command": draft.command, **({"args": args} if args else {}), **({"env": env} if env else {})}


def _all_filled(texts: Mapping[str, Pieces], answers: Answers) -> dict[str, str]:
    filled = {name: _filled(value, answers) for name, value in texts.items()}
    return {name: value for name, value in filled.items() if value is not None}


def _filled(text: Pieces, answers: Answers) -> str | None:
    """The filled text, with several answers to one gap joined by commas; None if an answer is missing."""
    parts = [piece if isinstance(piece, str) else ",".join(answers.get(piece.key, ())) or None for piece in text]
    given = [part for part in parts if part is not None]
    if any(_makes_variable(one, other) for one, other in pairwise(given)):
        raise ConfigurationError(
            "Joined, its parts make a variable, ${...}, which would be replaced by a value of yours. Only you may "
            "write such a variable."
        )
    return "".join(given) if len(given) == len(parts) else None


def _makes_variable(one: str, other: str) -> bool:
    """Whether a variable starts in one text and continues in the next. Each text was only checked by itself."""
    return one.endswith("$") and VARIABLE.match(f"${other}") is not None


def _words(arguments: Iterable[Argument], answers: Answers) -> Iterator[str]:
    for argument in arguments:
        flag = [argument.flag] if argument.flag else []
        if argument.is_switch:
            yield from flag if _filled(argument.value, answers) == "true" else []
        elif len(argument.value) == 1 and isinstance(gap := argument.value[0], Gap):
            for one in answers.get(gap.key, ()):
                yield from (*flag, one)
        elif (value := _filled(argument.value, answers)) is not None:
            yield from (*flag, value) if argument.value else flag
