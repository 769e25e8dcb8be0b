"""Every option, once: its name, its default, what it means. Reading them has no effect on anything.

Flags beat the environment (`MCP_OPTIMIZER_*`), which beats a TOML file. An unknown option or a bad value is
an error that names it and says where it came from; that is why the sources are merged here and not by a
settings library, which would have forgotten by then.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from platformdirs import user_config_path, user_data_path
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.limits import Limits

APP_NAME = "mcp-optimizer"
PREFIX = "MCP_OPTIMIZER_"

DEPTH_VARIABLE = f"{PREFIX}DEPTH"
"""How many gateways a process runs inside of. Given to every server, which may be a gateway: no option of its own."""

_NO_OPTIONS = ("settings", "depth", "child")
"""Variables that name the settings file, or that a gateway gives to those it starts."""

SERVER_FILE = "mcp.json"
SETTINGS_FILE = "mcp-optimizer.toml"

FILE_ONLY = frozenset({"groups", "client_profiles", "server_results", "tool_results", "limits"})
"""Options with a structure of their own, which only a file can give."""

LEAST_MAX_TOKENS = 200

LogLevel = Literal["debug", "info", "warning", "error"]
Encoding = Literal["cl100k_base", "o200k_base"]
ResultEncoding = Literal["compact", "original", "csv", "toon"]


class ResultSettings(BaseModel):
    """How the results of one server or tool are treated; what is not given is as everywhere."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_rows: int | None = Field(default=None, ge=0)
    max_tokens: int | None = None
    encoding: ResultEncoding | None = None
    cache_seconds: float | None = Field(default=None, ge=0)

    @field_validator("max_tokens")
    @classmethod
    def _enough(cls, value: int | None) -> int | None:
        return value if value is None else enough_tokens(value)


def enough_tokens(value: int) -> int:
    """A limit must leave room to say that something was cut, and for something worth reading."""
    if 0 < value < LEAST_MAX_TOKENS or value < 0:
        raise ValueError(f"must be 0 (no limit) or at least {LEAST_MAX_TOKENS}")
    return value


def readable_database(value: str) -> str:
    """A URL must be one that can be used, and shown without its password."""
    scheme, separator, _ = value.partition("://")
    if not separator:
        return value
    if scheme not in ("postgresql", "postgres"):
        raise ValueError(
            f"{scheme}:// is not supported; give the name of a file, postgresql://user:password@host/name, or none"
        )
    try:
        before_path = urlsplit(value).netloc
    except ValueError:
        # Not passed on: it may quote the password.
        before_path = "@@"
    if value.count("@") != before_path.count("@") or before_path.count("@") > 1:
        raise ValueError("it cannot be read; write what is special in a password as %XX, such as %40 for @, %2F for /")
    return value


class Settings(BaseModel):
    """The options of mcp-optimizer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    config: Path | None = Field(
        default=None,
        description="Server file (the mcpServers JSON of Claude Desktop, Cursor, VS Code and others). "
        f"Default: ./{SERVER_FILE}, then the one in your config folder.",
    )
    demo: bool = Field(default=False, description="Use the bundled demo servers instead of a server file.")
    servers: str = Field(
        default="",
        description="Only these servers of the file, comma separated: one file can serve several agents, each with its "
        "own. Default: all.",
    )
    database: str = Field(
        default="",
        repr=False,
        description="Catalog database: a file, postgresql://user:password@host/name (needs the extra postgres), or "
        "'none' to keep nothing. Default: a file in your data folder.",
    )
    mode: Literal["search", "transparent"] = Field(
        default="search",
        description="What clients see: a few tools that find and call the others, or all tools of all servers, "
        "exactly as they are.",
    )
    encoding: Encoding = Field(default="cl100k_base", description="Token encoding that everything is counted with.")
    encoder: str = Field(
        default="bundled",
        description="What finds tools by meaning: bundled, static (smaller, quicker, less good), none (words only), "
        "a folder with model.onnx and vocab.txt, or an OpenAI-compatible https://host/v1#model.",
    )
    encoder_key: str = Field(default="", repr=False, description="Key for an encoder that is reached over HTTP.")
    find_limit: int = Field(default=5, ge=1, le=100, description="Most tools that find_tool returns, if not told.")
    learn_from_use: bool = Field(
        default=True,
        description="Rank tools slightly higher that were called after similar searches. Keeps keyed hashes of words "
        "and tools with counts in the catalog database, never texts.",
    )
    detail: Literal["signature", "schema", "full"] = Field(
        default="signature", description="How find_tool describes parameters, if not told."
    )
    signature_notes: Literal["full", "sentence", "none"] = Field(
        default="sentence", description="How much documentation a signature keeps."
    )
    dialect: Literal["plain", "inlined", "references"] = Field(
        default="plain",
        description="What compressed schemas may contain: $ref only where the tool itself has some (plain), "
        "none, nor anything else that simple clients cannot read (inlined), or shared definitions (references).",
    )
    groups: dict[str, dict[str, list[str]]] = Field(
        default_factory=dict,
        description="Parameter groups by tool, such as groups.create_card.placement = ['lane_id', 'position'].",
    )
    tool_profile: Literal["minimal", "standard", "full"] | None = Field(
        default=None,
        description="Tools registered directly beside find_tool: minimal, standard or full. Default: none.",
    )
    description_writer: str = Field(
        default="",
        description="OpenAI-compatible https://host/v1#model that writes the five-word descriptions of registered "
        "tools. Default: words of the tools themselves.",
    )
    description_writer_key: str = Field(default="", repr=False, description="Key for the description writer.")
    pinned_tools: str = Field(default="", description="Tools that come first in every profile, comma separated.")
    minimal_budget: int = Field(default=9_000, ge=0, description="Most tokens of tools/list in the minimal profile.")
    standard_budget: int = Field(default=20_000, ge=0, description="Most tokens of tools/list in the standard profile.")
    full_budget: int | None = Field(default=None, ge=0, description="Most tokens of tools/list in the full profile.")
    client_profiles: dict[str, Literal["minimal", "standard", "full"]] = Field(
        default_factory=dict,
        description="Profiles by the name that a client gives itself, such as client_profiles.claude-ai = 'minimal'.",
    )
    token_estimate: Literal[
        "auto", "character_count_div_4", "character_count_div_3", "tiktoken:cl100k_base", "tiktoken:o200k_base"
    ] = Field(
        default="auto", description="How the tokens of a result are estimated; auto counts what is counted quickly."
    )
    max_rows: int = Field(
        default=1_000, ge=0, description="Most rows of a result's table that are sent; 0: any number."
    )
    max_tokens: int = Field(
        default=20_000,
        description="Most tokens of a result that are sent, at least 200; 0: any number. The rest stays readable.",
    )
    result_encoding: ResultEncoding = Field(
        default="compact",
        description="How JSON results are sent: compact (without blanks), original, or flat tables as csv or toon, "
        "where that is smaller.",
    )
    cache_seconds: float = Field(
        default=0.0,
        ge=0,
        description="Seconds for which a result is served again, of tools that declare to read only, and only what is "
        "their server's own; 0: never.",
    )
    cache_megabytes: int = Field(default=64, ge=1, description="Most megabytes of results that are kept for that.")
    server_results: dict[str, ResultSettings] = Field(
        default_factory=dict,
        description="What is different for one server's results, such as server_results.github.max_tokens = 5000.",
    )
    tool_results: dict[str, ResultSettings] = Field(
        default_factory=dict,
        description="What is different for one tool's results, by its name or server__tool, "
        "such as tool_results.git_log.max_rows = 50.",
    )
    kept_hours: float = Field(default=24.0, gt=0, description="Hours for which results that were cut stay readable.")
    kept_megabytes: int = Field(default=256, ge=1, description="Most megabytes of such results, as they are stored.")
    plain_meta: bool = Field(
        default=False, description="Write a result's metadata as meta too, for clients that do not read _meta."
    )
    start_timeout: float = Field(default=60.0, gt=0, description="Seconds a server has to start and list its tools.")
    call_timeout: float = Field(
        default=60.0, gt=0, description="Seconds a call may take; a server's own timeout in its file comes first."
    )
    restart_pause: float = Field(default=1.0, gt=0, description="Seconds before a dead server is first restarted.")
    restart_pause_max: float = Field(default=60.0, gt=0, description="Longest pause between restarts, in seconds.")
    max_in_flight: int = Field(default=100, ge=1, description="Calls that one server gets at a time.")
    max_waiting: int = Field(
        default=1_000, ge=0, description="Calls that may wait for one server; of more, each is told to try again."
    )
    client_sessions: int = Field(
        default=32,
        ge=0,
        description="Clients over HTTP that may have a session of their own with one server, if they can be asked "
        "things. Of more, each shares one in which the server cannot ask.",
    )
    answer_timeout: float = Field(
        default=300.0,
        gt=0,
        description="Seconds that a client has to answer a server's question, where it is asked by an input-required "
        "result in the middle of a call of the older protocol era.",
    )
    limits: Limits = Field(
        default_factory=Limits,
        description="Bounds on what servers and clients may send, such as limits.message_bytes = 50000000. "
        "See limits.md.",
    )
    shutdown_timeout: float = Field(
        default=10.0, ge=0, description="Seconds that calls under way have to finish when the gateway is stopped."
    )
    shutdown_delay: float = Field(
        default=0.5,
        ge=0,
        description="Seconds of those for which calls are still taken over HTTP after SIGTERM, while /ready says 503 "
        "already. Behind a load balancer: as long as it takes to notice.",
    )
    wait: float = Field(
        default=30.0, ge=0, description="Seconds that find, call, tools and the library wait for servers to start."
    )
    http: str | None = Field(
        default=None, description="Serve streamable HTTP at HOST:PORT (path /mcp) instead of stdio."
    )
    allowed_hosts: str = Field(
        default="",
        description="Host headers to accept over HTTP, comma separated (host:port, or host:*). "
        "Needed when not on loopback.",
    )
    allowed_origins: str = Field(
        default="", description="Origin headers to accept over HTTP besides loopback ones, comma separated."
    )
    dashboard: bool = Field(default=True, description="Serve the dashboard at / and /metrics for Prometheus over HTTP.")
    dashboard_token: str = Field(
        default="",
        repr=False,
        description="Token that the dashboard and /metrics ask for. Needed when not on loopback.",
    )
    history: bool = Field(
        default=True,
        description="Keep what happened (never arguments or results) in the catalog database, for reports.",
    )
    history_days: float = Field(default=90.0, gt=0, description="Days after which history is forgotten.")
    requests_per_session: int | None = Field(
        default=None,
        ge=1,
        description="Model requests assumed in a conversation when savings are told, if more than were seen.",
    )
    price_model: str = Field(
        default="",
        description="Model in whose prices results and savings are told, such as claude-sonnet-4-5 or openai:gpt-5.",
    )
    log_level: LogLevel = Field(default="warning", description="What is written to stderr.")
    log_format: Literal["auto", "human", "json"] = Field(
        default="auto", description="How it is written: lines for people, or JSON; auto is human on a terminal."
    )
    otlp_endpoint: str = Field(
        default="",
        description="Send OpenTelemetry traces to this OTLP/HTTP endpoint, such as http://127.0.0.1:4318. "
        "Needs the extra otel.",
    )

    @field_validator("max_tokens")
    @classmethod
    def _enough(cls, value: int) -> int:
        return enough_tokens(value)

    @field_validator("database")
    @classmethod
    def _readable(cls, value: str) -> str:
        return readable_database(value)

    @model_validator(mode="after")
    def _one_source_of_servers(self) -> Self:
        if self.demo and self.config is not None:
            raise ValueError("give either config or demo, not both")
        return self

    @property
    def database_place(self) -> Path | str | None:
        """The file, or the URL of a PostgreSQL database, or neither."""
        if self.database.lower() == "none":
            return None
        if "://" in self.database:
            return self.database
        return Path(self.database).expanduser() if self.database else user_data_path(APP_NAME) / "catalog.db"

    @property
    def server_file(self) -> Path:
        """The server file to read: the one named, else the first that exists."""
        if self.config is not None:
            return self.config.expanduser()
        here = Path(SERVER_FILE)
        return here if here.exists() else user_config_path(APP_NAME) / SERVER_FILE

    @property
    def http_address(self) -> tuple[str, int]:
        """Host and port to serve on; a bare port means loopback: to listen everywhere has to be said."""
        host, _, port = (self.http or "").rpartition(":")
        host = host.strip("[]") or "127.0.0.1"
        if not port.isdecimal() or int(port) > 65535:
            raise ConfigurationError(f"--http {self.http!r} is not HOST:PORT, such as 127.0.0.1:8765.")
        return host, int(port)


def load_settings(
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    settings_file: Path | None = None,
) -> Settings:
    """Merge the sources and validate them; each value remembers where it came from, for the error."""
    environment = os.environ if environment is None else environment
    flags = {name: value for name, value in (flags or {}).items() if value is not None}
    path = settings_file or _settings_path(environment)
    layers = [
        *([(_from_file(path), f"in {path}")] if path else []),
        (_from_environment(environment), f"in the environment ({PREFIX}*)"),
        (flags, "on the command line"),
    ]
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for values, origin in layers:
        _refuse_unknown(values, origin)
        merged |= values
        origins |= dict.fromkeys(values, origin)
    try:
        return Settings(**merged)
    except ValidationError as error:
        raise ConfigurationError("; ".join(_explain(problem, origins) for problem in error.errors())) from None


def _settings_path(environment: Mapping[str, str]) -> Path | None:
    named = environment.get(f"{PREFIX}SETTINGS")
    if named:
        return Path(named).expanduser()
    candidates = (Path(SETTINGS_FILE), user_config_path(APP_NAME) / "settings.toml")
    return next((path for path in candidates if path.exists()), None)


def _from_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"No settings file at {path}.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"Cannot read the settings file {path}: {error}.") from error


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    found = {name.removeprefix(PREFIX).lower(): value for name, value in environment.items() if name.startswith(PREFIX)}
    # An empty value means "not set", as in a shell script.
    return {name: value for name, value in found.items() if value != "" and name not in _NO_OPTIONS}


def _refuse_unknown(values: Mapping[str, Any], origin: str) -> None:
    for name in values:
        if name not in Settings.model_fields:
            close = difflib.get_close_matches(name, Settings.model_fields, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else f" Known: {', '.join(Settings.model_fields)}."
            raise ConfigurationError(f"Unknown option {name!r} {origin}.{hint}")


def _explain(problem: Any, origins: Mapping[str, str]) -> str:
    name = str(problem["loc"][0]) if problem["loc"] else ""
    message = problem["msg"].removeprefix("Value error, ")
    if not name:
        return f"{message[:1].upper()}{message[1:]}."
    # What is not to be shown is a secret, or may hold one.
    shown = f" {problem['input']!r}" if Settings.model_fields[name].repr else ""
    return f"Bad value{shown} for {name!r} {origins.get(name, 'by default')}: {message}."
