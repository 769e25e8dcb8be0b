"""The options of a gateway that several people use: who may come in, who may do what, what is trusted and recorded."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from mcp_optimizer.domain.principal import Risk
from mcp_optimizer.domain.rule_settings import Pattern, RuleSettings
from mcp_optimizer.domain.token_issuers import TokenIssuer, distinct

Trust = Literal["off", "warn", "block"]


class SharingSettings(BaseModel):
    """Part of `Settings`, which explains where options come from."""

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
