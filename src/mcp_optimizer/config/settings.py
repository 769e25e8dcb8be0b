"""Every option, defined once: its name, default and meaning. Reading them has no effect.

Flags beat the environment (`MCP_OPTIMIZER_*`), which beats a TOML file. An error in an option names the option and its
source. The sources are merged here because a settings library would no longer know the source.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from platformdirs import user_config_path, user_data_path
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from mcp_optimizer.config.settings_groups import (
    ProcessSettings,
    ReloadSettings,
    ResultEncoding,
    ResultSettings,
    SettingsOrigin,
    SharingSettings,
    enough_tokens,
    explained,
    from_environment,
    from_file,
    is_elsewhere,
    refuse_unknown,
)
from mcp_optimizer.config.trusted_files import APP_NAME as APP_NAME
from mcp_optimizer.config.trusted_files import SERVER_FILE, SETTINGS_FILE, FolderFile, folder_file, refuse_untrusted
from mcp_optimizer.domain.addresses import browser_address, readable_database
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.limits import DEFAULT_LIMITS, Limits

PREFIX = "MCP_OPTIMIZER_"

"""How many gateways a process is nested in. Passed to every server, which may be a gateway; not an option."""

_NO_OPTIONS = ("settings", "depth", "child", "worker", "link", "secret_key")
"""Variables that name the settings file, that a gateway passes to its children, or that no flag or file may set."""

FILE_ONLY = frozenset(
    "groups client_profiles server_results tool_results limits rules tool_risks servers_trust token_issuers".split()
)
"""Structured options that can only be set in a file."""

_SHORTEST_TOKEN = 16
"""Minimum characters of a token that opens the dashboard."""

LogLevel = Literal["debug", "info", "warning", "error"]
Encoding = Literal["cl100k_base", "o200k_base"]


class GeneralSettings(BaseModel):
    """The options of every gateway, shared or not."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    config: Path | None = Field(
        default=None,
        description="Server file (the mcpServers JSON of Claude Desktop, Cursor, VS Code and other clients). Default: "
        f"./{SERVER_FILE} if you trusted it (folder trust), then the one in your config folder.",
    )
    demo: bool = Field(default=False, description="Use the bundled demo servers instead of a server file.")
    servers: str = Field(
        default="",
        description="Use only these servers of the file, comma-separated; one file can serve several agents. "
        "Default: all.",
    )
    database: str = Field(
        default="",
        repr=False,
        description="Catalog database: a file, postgresql://user:password@host/name (needs the extra postgres), or "
        "'none' to store nothing. Default: a file in your data folder.",
    )
    mode: Literal["search", "native", "transparent"] = Field(
        default="search",
        description="Tools that clients see: a few that find and call the servers' tools (search); all tools of all "
        "servers, compressed, for clients that search them themselves (native); or all of them unchanged "
        "(transparent).",
    )
    encoding: Encoding = Field(default="cl100k_base", description="Token encoding used for all counts.")
    encoder: str = Field(
        default="bundled",
        description="Encoder that finds tools by meaning: bundled, static (smaller and faster, less accurate), none "
        "(words only), a folder with model.onnx and vocab.txt, or an OpenAI-compatible https://host/v1#model.",
    )
    encoder_key: str = Field(default="", repr=False, description="API key for an encoder endpoint.")
    find_limit: int = Field(
        default=5, ge=1, le=100, description="Maximum tools find_tool returns when no limit is given."
    )
    find_tokens: int = Field(
        default=364,
        ge=100,
        description="Tokens that a reply of find_tool should cost a model: tools beyond that are abbreviated or only "
        "named. One large tool may cost more.",
    )
    find_savings: bool = Field(
        default=True,
        description="End the text of a find_tool reply with the tokens it saved, in at most 15 tokens. Programs get "
        "the figures in any case.",
    )
    name_servers: bool = Field(
        default=True,
        description="Name the servers and their purpose in find_tool's description and in the instructions: at most "
        "120 tokens each.",
    )
    learn_from_use: bool = Field(
        default=True,
        description="Rank tools that were called after similar searches slightly higher. Keeps keyed hashes of words "
        "and tools with counts in the catalog database, never texts.",
    )
    learn_shapes: bool = Field(
        default=True,
        description="Learn which keys a tool's results have, to show them in find_tool. Keeps names of keys in the "
        "catalog database, never values.",
    )
    detail: Literal["signature", "schema", "full"] = Field(
        default="signature", description="How find_tool describes parameters when no detail is given."
    )
    signature_notes: Literal["full", "sentence", "none"] = Field(
        default="sentence", description="How much parameter documentation a signature keeps."
    )
    schema_notes: Literal["full", "rules"] = Field(
        default="rules",
        description="How much documentation a compressed schema keeps: first sentences and the rules that a caller "
        "must know (rules), or all of it (full).",
    )
    dialect: Literal["plain", "inlined", "references"] = Field(
        default="plain",
        description="JSON Schema features in compressed schemas: $ref only where the tool itself uses it (plain); no "
        "$ref and nothing else that simple clients cannot read (inlined); or shared definitions (references).",
    )
    groups: dict[str, dict[str, list[str]]] = Field(
        default_factory=dict,
        description="Parameter groups by tool, such as groups.create_card.placement = ['lane_id', 'position'].",
    )
    tool_profile: Literal["minimal", "standard", "full"] | None = Field(
        default=None,
        description="Tools registered directly, next to find_tool: minimal, standard or full. Default: none.",
    )
    description_writer: str = Field(
        default="",
        description="OpenAI-compatible https://host/v1#model that writes the five-word descriptions of registered "
        "tools. Default: words from the tools themselves.",
    )
    description_writer_key: str = Field(default="", repr=False, description="API key for the description writer.")
    concise_profiles: str = Field(
        default="minimal",
        description="Profiles whose tools are described in at most five words, comma-separated: minimal, standard, "
        "full; empty for none. Rules that a correct call needs stay, with the arguments.",
    )
    pinned_tools: str = Field(default="", description="Tools that come first in every profile, comma-separated.")
    minimal_budget: int = Field(default=9_000, ge=0, description="Maximum tokens of tools/list in the minimal profile.")
    standard_budget: int = Field(
        default=20_000, ge=0, description="Maximum tokens of tools/list in the standard profile."
    )
    full_budget: int | None = Field(default=None, ge=0, description="Maximum tokens of tools/list in the full profile.")
    app_tools: int = Field(
        default=20,
        ge=0,
        description="Maximum tools with a page that are registered directly for clients that show pages (MCP Apps), "
        "which learn of a page only from a registered tool.",
    )
    client_profiles: dict[str, Literal["minimal", "standard", "full"]] = Field(
        default_factory=dict, description="Profiles by client name, such as client_profiles.claude-ai = 'minimal'."
    )
    token_estimate: Literal[
        "auto", "character_count_div_4", "character_count_div_3", "tiktoken:cl100k_base", "tiktoken:o200k_base"
    ] = Field(
        default="auto",
        description="How the tokens of a result are estimated; auto counts short texts and samples long ones.",
    )
    max_rows: int = Field(default=1_000, ge=0, description="Maximum rows sent of a result's table; 0 means no limit.")
    max_tokens: int = Field(
        default=10_000,
        description="Maximum tokens sent of a result, at least 200; 0 means no limit. The rest stays readable.",
    )
    preview_tokens: int = Field(
        default=2_000,
        description="Tokens shown at first of a result that exceeds max_tokens, at least 200; 0 shows as many as fit.",
    )
    result_encoding: ResultEncoding = Field(
        default="compact",
        description="How JSON results are sent: compact (no whitespace), original, or flat tables as csv or toon "
        "where that is smaller.",
    )
    cache_seconds: float = Field(
        default=0.0,
        ge=0,
        description="Seconds for which a result is returned again for an identical call. Applies to tools declared "
        "read-only and closed-world; 0 turns the cache off.",
    )
    cache_megabytes: int = Field(default=64, ge=1, description="Maximum megabytes of cached results.")
    server_results: dict[str, ResultSettings] = Field(
        default_factory=dict,
        description="Result options for one server, such as server_results.github.max_tokens = 5000.",
    )
    tool_results: dict[str, ResultSettings] = Field(
        default_factory=dict,
        description="Result options for one tool, by name or server__tool, such as tool_results.git_log.max_rows = 50.",
    )
    kept_hours: float = Field(default=24.0, gt=0, description="Hours for which results that were cut stay readable.")
    kept_megabytes: int = Field(default=256, ge=1, description="Maximum megabytes of kept results, as stored.")
    plain_meta: bool = Field(
        default=False, description="Also write a result's metadata as meta, for clients that do not read _meta."
    )
    start_timeout: float = Field(default=60.0, gt=0, description="Seconds a server has to start and list its tools.")
    start_servers: Literal["on demand", "with the gateway"] = Field(
        default="on demand",
        description="When a server starts whose tools are known from an earlier start: when it is needed, or with the "
        "gateway. An entry's start takes precedence.",
    )
    shared: bool = Field(
        default=True,
        description="On stdio: use one gateway, and one set of servers, for all clients that are started with the same "
        "settings, folder and variables. Not on Windows.",
    )
    idle_timeout: float = Field(
        default=600.0,
        ge=0,
        description="Seconds without use after which a server stops that starts on demand; 0: never. An entry's "
        "idle_timeout takes precedence.",
    )
    call_timeout: float = Field(
        default=60.0, gt=0, description="Seconds a call may take; a timeout in the server file takes precedence."
    )
    network_variables: bool = Field(
        default=True,
        description="Pass variables for proxies and certificates (HTTPS_PROXY, SSL_CERT_FILE, ...) to child processes.",
    )
    restart_pause: float = Field(default=1.0, gt=0, description="Seconds before the first restart of a dead server.")
    restart_pause_max: float = Field(default=60.0, gt=0, description="Maximum seconds between restarts.")
    max_in_flight: int = Field(default=100, ge=1, description="Maximum concurrent calls to one server.")
    max_waiting: int = Field(
        default=1_000,
        ge=0,
        description="Maximum calls waiting for one server; further ones are refused, to be tried again.",
    )
    client_sessions: int = Field(
        default=32,
        ge=0,
        description="Maximum HTTP clients with their own session on one server, for clients that can answer "
        "questions. Further clients share a session in which the server cannot ask. Also the most processes of an "
        "entry that runs one for each caller.",
    )
    answer_timeout: float = Field(
        default=300.0,
        gt=0,
        description="Seconds a modern client has to answer a legacy server's question, which it gets as an "
        "input-required result.",
    )
    limits: Limits = Field(
        default_factory=lambda: DEFAULT_LIMITS,
        description="Limits on what servers and clients may send, such as limits.message_bytes = 50000000. See "
        "limits.md.",
    )
    wait: float = Field(
        default=30.0, ge=0, description="Seconds that find, call, tools and the library wait for servers to start."
    )
    http: str | None = Field(
        default=None, description="Serve streamable HTTP at HOST:PORT (path /mcp) instead of stdio."
    )
    allowed_hosts: str = Field(
        default="",
        description="Host headers to accept over HTTP, comma-separated (host:port, or host:*). Required when not on "
        "loopback.",
    )
    allowed_origins: str = Field(
        default="", description="Origin headers to accept over HTTP in addition to loopback, comma-separated."
    )
    dashboard: bool = Field(
        default=True, description="Serve the dashboard at / and Prometheus metrics at /metrics over HTTP."
    )
    dashboard_token: str = Field(
        default="",
        repr=False,
        description="A token that opens the dashboard and /metrics, next to keys with a role; at least 16 characters. "
        "See callers.md.",
    )
    public_url: str = Field(
        default="",
        description="Address at which browsers reach the gateway, such as https://gateway.example. Logins to servers "
        "return to it, at /logins/callback. List its host in allowed_hosts. Default: the address of the page that "
        "begins the login.",
    )
    history: bool = Field(
        default=True, description="Record events (never arguments or results) in the catalog database, for reports."
    )
    history_days: float = Field(default=90.0, gt=0, description="Days after which history is deleted.")
    requests_per_session: int | None = Field(
        default=None,
        ge=1,
        description="Minimum number of model requests to assume per conversation when calculating savings.",
    )
    context_window: int = Field(
        default=200_000,
        ge=1_000,
        description="Tokens that a model reads at most in one request: no request counts for more in savings.",
    )
    price_model: str = Field(
        default="",
        description="Model whose prices are used for results and savings, such as claude-sonnet-4-5 or openai:gpt-5.",
    )
    log_level: LogLevel = Field(default="warning", description="Minimum level of log messages written to stderr.")
    log_format: Literal["auto", "human", "json"] = Field(
        default="auto", description="Log format: lines for people, or JSON; auto uses lines on a terminal."
    )
    otlp_endpoint: str = Field(
        default="",
        description="Send OpenTelemetry traces to this OTLP/HTTP endpoint, such as http://127.0.0.1:4318. Needs the "
        "extra otel.",
    )

    @field_validator("max_tokens", "preview_tokens")
    @classmethod
    def _enough(cls, value: int) -> int:
        return enough_tokens(value)

    @field_validator("concise_profiles")
    @classmethod
    def _of_profiles(cls, value: str) -> str:
        known = ("minimal", "standard", "full")
        if unknown := [name.strip() for name in value.split(",") if name.strip() and name.strip() not in known]:
            raise ValueError(f"{unknown[0]!r} is no profile; choose among {', '.join(known)}")
        return value

    @field_validator("database")
    @classmethod
    def _readable(cls, value: str) -> str:
        return readable_database(value)

    @field_validator("dashboard_token")
    @classmethod
    def _hard_to_guess(cls, value: str) -> str:
        if value and len(value.strip()) < _SHORTEST_TOKEN:
            raise ValueError(
                f"it opens everything, and needs at least {_SHORTEST_TOKEN} characters. Make one with: "
                'python -c "import secrets; print(secrets.token_urlsafe(24))"'
            )
        return value

    @field_validator("public_url")
    @classmethod
    def _for_browsers(cls, value: str) -> str:
        return browser_address(value)

    @model_validator(mode="after")
    def _without_contradiction(self) -> Self:
        if self.demo and self.config is not None:
            raise ValueError("give either config or demo, not both")
        return self

    @property
    def database_place(self) -> Path | str | None:
        """The database file, the URL of a PostgreSQL database, or None."""
        if self.database.lower() == "none":
            return None
        if "://" in self.database:
            return self.database
        # What the demo leaves behind does not belong among the approvals and calls of the user's own servers.
        name = "demo.db" if self.demo else "catalog.db"
        return Path(self.database).expanduser() if self.database else user_data_path(APP_NAME) / name

    @property
    def server_file(self) -> Path:
        """The server file to read: the configured one, otherwise that of the working folder if it is trusted, otherwise
        the user's own.
        """
        return self.config.expanduser() if self.config is not None else default_server_file()

    def check_server_file(self, path: Path, content: bytes) -> None:
        """Refuse the content of a working folder's server file, unless the user trusts exactly that content."""
        if self.config is None and path != own_server_file():
            refuse_untrusted(path, content)

    @property
    def http_address(self) -> tuple[str, int]:
        """Host and port to serve on. A bare port means loopback; listening everywhere must be explicit."""
        host, _, port = (self.http or "").rpartition(":")
        host = host.strip("[]") or "127.0.0.1"
        if not port.isdecimal() or int(port) > 65535:
            raise ConfigurationError(f"--http {self.http!r} is not HOST:PORT, such as 127.0.0.1:8765.")
        return host, int(port)


class Settings(ReloadSettings, SharingSettings, ProcessSettings, GeneralSettings):
    """The options of mcp-optimizer."""

    def check_settings_file(self, path: Path, content: bytes) -> None:
        """Refuse the content of a working folder's settings file, unless the user trusts exactly that content."""
        if self.origin.is_of_folder:
            refuse_untrusted(path, content)

    @model_validator(mode="after")
    def _sign_ins_can_return(self) -> Self:
        wanting = [issuer.name for issuer in self.token_issuers if issuer.dashboard_login is not None]
        if wanting and not self.public_url:
            raise ValueError(
                f"the dashboard_login of the token issuer {wanting[0]!r} needs public_url: browsers return from the "
                "issuer to that address, at /login/done"
            )
        return self

    @property
    def audit_path(self) -> Path | None:
        """The audit file. Without a database there is none, unless the user names one."""
        if not self.audit or self.audit_file.lower() == "none":
            return None
        if self.audit_file:
            return Path(self.audit_file).expanduser()
        place = self.database_place
        folder = place.parent if isinstance(place, Path) else user_data_path(APP_NAME)
        return None if place is None else folder / ("demo-audit.jsonl" if self.demo else "audit.jsonl")


def own_server_file() -> Path:
    """The user's own server file, whatever the working folder."""
    return user_config_path(APP_NAME) / SERVER_FILE


def default_server_file(folder: Path | None = None) -> Path:
    """The server file of a gateway in a folder, if none is named."""
    here = folder_file(SERVER_FILE, own_server_file(), folder)
    return own_server_file() if here is None or here.content is None else here.path


def load_settings(
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    settings_file: Path | None = None,
    text: str | None = None,
) -> Settings:
    """Merge and validate the sources, remembering where each value came from for error messages.

    `text`: the content of the file, if already read.
    """
    environment = os.environ if environment is None else environment
    flags = {name: value for name, value in (flags or {}).items() if value is not None}
    path, here = _chosen_file(flags, environment, settings_file)
    is_of_folder = here is not None and path == here.path
    said = here.content if here is not None and is_of_folder else text
    of_file = from_file(path, said) if path else {}
    if is_of_folder and "config" in of_file:
        # A file other than the trusted one would decide what is started.
        raise ConfigurationError(
            f"{path} names a server file (config), which settings of a folder cannot: call that file {SERVER_FILE} "
            f"and trust it too, or name the settings with --settings {path}."
        )
    layers = [
        (of_file, f"in {path}"),
        (from_environment(environment, PREFIX, _NO_OPTIONS), f"in the environment ({PREFIX}*)"),
        (flags, "on the command line"),
    ]
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for values, origin in layers:
        refuse_unknown(values, origin, Settings.model_fields)
        merged |= values
        origins |= dict.fromkeys(values, origin)
    read_from = SettingsOrigin(
        path,
        lambda now: load_settings(flags, environment, path, now),
        is_of_folder=is_of_folder,
        passed_over=here.problem if here is not None else "",
    )
    try:
        return Settings(**merged).read_from(read_from)
    except ValidationError as error:
        # A hidden value is a secret, or may contain one.
        hidden = {name for name, info in Settings.model_fields.items() if not info.repr}
        said_of = (explained(problem, origins, hidden) for problem in error.errors())
        raise ConfigurationError("; ".join(said_of)) from None


def _chosen_file(
    flags: Mapping[str, Any], environment: Mapping[str, str], named: Path | None
) -> tuple[Path | None, FolderFile | None]:
    """The settings file, if any, and the working folder's file, unless another one is named."""
    if named is None and (variable := environment.get(f"{PREFIX}SETTINGS")):
        named = Path(variable).expanduser()
    if named is not None:
        return named, None
    own = user_config_path(APP_NAME) / "settings.toml"
    servers = flags.get("config") or environment.get(f"{PREFIX}CONFIG")
    here = None if is_elsewhere(servers) else folder_file(SETTINGS_FILE, own)
    if here is not None and here.content is not None:
        return here.path, here
    return (own if own.is_file() else None), here
