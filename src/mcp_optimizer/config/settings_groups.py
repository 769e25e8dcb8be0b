"""The groups of options that `settings` combines, and the sources that they are read from: a TOML file and the
environment.

Values only. `ReloadSettings` remember their sources, so that they can be read again while the gateway runs.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator

from mcp_optimizer.domain.addresses import browser_address
from mcp_optimizer.domain.caller import Effect, Risk, Rule
from mcp_optimizer.domain.credentials import TokenIssuer, distinct
from mcp_optimizer.domain.globs import glob
from mcp_optimizer.errors import ConfigurationError


class ProcessSettings(BaseModel):
    """How a gateway runs on its machine."""

    # Like those of all groups: it is only built as a part of all settings, before the first list.
    model_config = ConfigDict(defer_build=True)

    workers: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Processes that serve at --http, each a gateway with its own servers; they share through the "
        "database. One for each core that should be used.",
    )
    peer_address: str = Field(
        default="",
        description="Address at which the other gateways on the same PostgreSQL reach this one, such as "
        "http://10.0.0.7:8765. Default: the address it listens on; with --http 0.0.0.0:PORT, the address from which it "
        "reaches the database.",
    )
    shutdown_timeout: float = Field(
        default=10.0, ge=0, description="Seconds that calls in progress have to finish when the gateway stops."
    )
    shutdown_delay: float | None = Field(
        default=None,
        ge=0,
        description="Seconds, within shutdown_timeout, for which HTTP calls are still accepted after SIGTERM while "
        "/ready already returns 503. Behind a load balancer: the time it takes to notice. Default: 3 if /ready was "
        "requested in the last 30 s, otherwise none.",
    )

    @field_validator("peer_address")
    @classmethod
    def _for_peers(cls, value: str) -> str:
        return browser_address(value)


Again = Callable[[str], BaseModel]
"""Builds the settings again from the file's new text, and from the other sources as they were."""


@dataclass(frozen=True)
class SettingsOrigin:
    """The source of settings. It takes no part in comparing settings, so all origins are equal."""

    file: Path | None = field(default=None, compare=False)
    again: Again | None = field(default=None, compare=False)
    is_of_folder: bool = field(default=False, compare=False)
    """Whether the file was found in the working folder and not named by the user."""
    passed_over: str = field(default="", compare=False)
    """Why the working folder's settings file was not used, if it has one."""


class ReloadSettings(BaseModel):
    """Whether files are watched, and which file these settings come from."""

    # Part of `Settings`, which builds the validators of all its parts when a command first reads them.
    model_config = ConfigDict(defer_build=True)

    reload: bool = Field(
        default=True,
        description="Apply changes of the server file and the settings file while the gateway runs; otherwise only "
        "at SIGHUP.",
    )
    _origin: SettingsOrigin = PrivateAttr(default_factory=SettingsOrigin)

    def read_from(self, origin: SettingsOrigin) -> Self:
        """Records where these settings were read from, and returns them."""
        self._origin = origin
        return self

    @property
    def origin(self) -> SettingsOrigin:
        return self._origin

    @property
    def settings_file(self) -> Path | None:
        """The file that some of the settings come from."""
        return self._origin.file

    def read_again(self, text: str) -> Self:
        """The settings given this text of the file."""
        assert self._origin.again is not None
        found = self._origin.again(text)
        assert isinstance(found, type(self))
        return found


LEAST_MAX_TOKENS = 200

ResultEncoding = Literal["compact", "original", "csv", "toon"]


class ResultSettings(BaseModel):
    """How the results of one server or tool are handled; missing values fall back to the global ones."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    max_rows: int | None = Field(default=None, ge=0)
    max_tokens: int | None = None
    encoding: ResultEncoding | None = None
    cache_seconds: float | None = Field(default=None, ge=0)

    @field_validator("max_tokens")
    @classmethod
    def _enough(cls, value: int | None) -> int | None:
        return value if value is None else enough_tokens(value)


def enough_tokens(value: int) -> int:
    """A limit must leave room for the notice and for some useful content."""
    if 0 < value < LEAST_MAX_TOKENS or value < 0:
        raise ValueError(f"must be 0 (no limit) or at least {LEAST_MAX_TOKENS}")
    return value


def _readable(pattern: str) -> str:
    return glob(pattern).pattern


Pattern = Annotated[str, Field(min_length=1), AfterValidator(_readable)]
"""A glob parsed when settings load, so that an invalid one fails at the start and not in a call."""


class RuleSettings(BaseModel):
    """One rule: an effect, and the calls it applies to. Omitted fields match everything."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    effect: Effect
    server: Pattern = "*"
    tool: Pattern = "*"
    risk: Risk | None = None
    caller: Pattern = "*"
    group: Pattern | None = None
    reason: str = Field(default="", max_length=1_000)

    @property
    def rule(self) -> Rule:
        """The value that the policy works with."""
        return Rule(self.effect, self.server, self.tool, self.risk, self.caller, self.reason, self.group)


def place_in_rules(location: Sequence[int | str]) -> str:
    """The place of an error in `rules`, counted from 1: "rule 3, 'tol'". Empty for the whole list."""
    number = f"rule {location[0] + 1}" if location and isinstance(location[0], int) else ""
    return f"{number}, {location[1]!r}" if number and len(location) > 1 else number


Trust = Literal["off", "warn", "block"]


class SharingSettings(BaseModel):
    """Shared use. Part of `Settings`, which explains where options come from."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    rules: tuple[RuleSettings, ...] = Field(
        default_factory=tuple,
        description="Rules for calls: a list of `[[rules]]`, in which the first match counts. See policy.md.",
    )
    tool_risks: dict[Pattern, Risk] = Field(
        default_factory=dict,
        description="Risk classes of tools, by name or server__tool, such as `tool_risks.'git__get_*' = 'read'`.",
    )
    calls_per_minute: int = Field(
        default=0,
        ge=0,
        description="Calls and searches that each caller may make in a minute, on average; as many may come at once. "
        "0: no limit.",
    )
    split_calls: bool | None = Field(
        default=None,
        description="Give clients call_tool_read next to call_tool, for tools that only read: a client can approve "
        "these once. Default: only clients that are known to ask by tool.",
    )
    scripts: Literal["off", "read", "write"] = Field(
        default="off",
        description="Give clients run_script, which runs Python that calls tools: off, read (only tools that read) "
        "or write (also other tools, if the request names them). Needs the extra scripts. See scripts.md.",
    )
    audit: bool = Field(
        default=True, description="Record each call, its caller and the rule that allowed it in the audit."
    )
    audit_file: str = Field(
        default="",
        description="JSON lines file of the audit, next to its table, or 'none'. Default: audit.jsonl beside the "
        "database file, in your data folder with PostgreSQL, none with --database none.",
    )
    audit_megabytes: float = Field(
        default=10.0, gt=0, description="Megabytes at which the audit's file is renamed and a new one begins."
    )
    audit_files: int = Field(default=5, ge=0, le=1_000, description="Renamed files of the audit that are kept.")
    audit_days: float = Field(
        default=365.0, gt=0, description="Days after which an entry is deleted from the audit's table."
    )
    audit_arguments: bool = Field(
        default=False,
        description="Also record the arguments of calls. They may contain secrets and personal data.",
    )
    trust_local: Trust = Field(
        default="warn",
        description="Handling of tools that changed, or are new, since the approval, on servers with a command: off "
        "(nothing), warn (used and reported) or block (neither found nor called until approved). See "
        "trust.md.",
    )
    trust_remote: Trust = Field(
        default="block",
        description="The same for servers with a URL. An entry of the server file can set its own, with trust.",
    )
    servers_trust: dict[str, Trust] = Field(
        default_factory=dict,
        description="The same for one server, such as servers_trust.github = 'warn'. Overrides its entry.",
    )
    require_auth: bool | None = Field(
        default=None,
        description="Answer only callers over HTTP with a key or a token. Default: required unless on loopback.",
    )
    open_to_anyone: bool = Field(
        default=False, description="Serve anyone who reaches the gateway over HTTP, beyond loopback too."
    )
    token_issuers: list[TokenIssuer] = Field(
        default_factory=list,
        repr=False,
        description="Issuers whose tokens callers over HTTP may use: [[token_issuers]] tables with a name, an issuer "
        "...",
    )
    dashboard_changes: bool = Field(
        default=True,
        description="Let the role manage add, remove and switch servers on the dashboard. An added server runs a "
        "program on this machine.",
    )

    @field_validator("token_issuers")
    @classmethod
    def _distinct(cls, value: list[TokenIssuer]) -> list[TokenIssuer]:
        return distinct(value)

    @model_validator(mode="after")
    def _open_or_not(self) -> Self:
        if self.require_auth and self.open_to_anyone:
            raise ValueError("give either require_auth or open_to_anyone, not both")
        return self

    @model_validator(mode="after")
    def _groups_have_a_source(self) -> Self:
        about = next((number for number, rule in enumerate(self.rules, 1) if rule.group is not None), None)
        if about is not None and not any(issuer.groups_claim for issuer in self.token_issuers):
            raise ValueError(f"rule {about} is about a group, and no [[token_issuers]] names its groups_claim")
        return self


# Reads options from a TOML file and the environment, and says which option of which source is wrong.


def is_elsewhere(servers: str | Path | None) -> bool:
    """Whether a server file is named that is not below the current folder.

    A client starts the gateway in whatever folder is open, with a server file of the user: that folder's settings are
    about other servers.
    """
    if not servers:
        return False
    try:
        return not Path(os.path.abspath(Path(servers).expanduser())).is_relative_to(Path.cwd())
    except OSError:
        # The folder was deleted.
        return True


def from_file(path: Path, said: str | bytes | None = None) -> dict[str, Any]:
    """`said`: the content of the file, if already read."""
    try:
        found = path.read_bytes() if said is None else said
        return tomllib.loads(found.decode() if isinstance(found, bytes) else found)
    except FileNotFoundError:
        raise ConfigurationError(f"No settings file at {path}.") from None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"Cannot read the settings file {path}: {error}.") from error
    except RecursionError:
        raise ConfigurationError(f"Cannot read the settings file {path}: it is nested too deeply.") from None


def from_environment(environment: Mapping[str, str], prefix: str, no_options: Collection[str]) -> dict[str, str]:
    found = {name.removeprefix(prefix).lower(): value for name, value in environment.items() if name.startswith(prefix)}
    # An empty value means "not set", as in a shell script.
    return {name: value for name, value in found.items() if value != "" and name not in no_options}


def refuse_unknown(values: Mapping[str, Any], origin: str, known: Collection[str]) -> None:
    for name in values:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else f" Known: {', '.join(known)}."
            raise ConfigurationError(f"Unknown option {name!r} {origin}.{hint}")


def explained(problem: Any, origins: Mapping[str, str], hidden: Collection[str]) -> str:
    """A problem that pydantic found, with the option, its source and, unless hidden, its value."""
    name = str(problem["loc"][0]) if problem["loc"] else ""
    message = problem["msg"].removeprefix("Value error, ")
    if not name:
        return f"{message[:1].upper()}{message[1:]}."
    shown = f" {problem['input']!r}" if name not in hidden else ""
    if name == "rules" and (place := place_in_rules(problem["loc"][1:])):
        return f"Bad value{shown} for 'rules' {origins.get(name, 'by default')}: {place}: {message}."
    place = ".".join(map(str, problem["loc"]))
    return f"Bad value{shown} for {place!r} {origins.get(name, 'by default')}: {message}."
