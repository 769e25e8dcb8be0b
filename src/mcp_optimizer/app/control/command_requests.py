"""What commands ask of a gateway, as validated values: written by commands, read by the listener."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

_Name = Annotated[str, Field(max_length=10_000)]


class _Request(BaseModel):
    # Of sixteen kinds, a command makes one.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    wait: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Seconds to wait for servers that are still starting."""


class FindRequest(_Request):
    method: Literal["find"] = "find"
    query: str
    keywords: str = ""
    limit: int | None = None


class ToolsRequest(_Request):
    method: Literal["tools"] = "tools"
    server: _Name | None = None


class CallRequest(_Request):
    method: Literal["call"] = "call"
    tool: _Name
    arguments: Any = None
    plain: tuple[tuple[str, str], ...] = ()
    """Arguments as `key=value`, to be read by their types in the tool's schema."""
    server: _Name | None = None
    select: str = ""


class ReadRequest(_Request):
    method: Literal["read"] = "read"
    result_id: _Name
    offset: int = 0
    limit: int | None = None
    select: str = ""
    search: str = ""


class ServersRequest(_Request):
    method: Literal["servers"] = "servers"


class ShowRequest(_Request):
    method: Literal["show"] = "show"
    tool: _Name


class ResolveRequest(_Request):
    method: Literal["resolve"] = "resolve"
    tool: _Name
    server: _Name | None = None


class StatusRequest(_Request):
    method: Literal["status"] = "status"


class RestartRequest(_Request):
    method: Literal["restart"] = "restart"
    server: _Name


class LogsRequest(_Request):
    method: Literal["logs"] = "logs"
    server: _Name | None = None


class ReloadRequest(_Request):
    method: Literal["reload"] = "reload"


class DashboardRequest(_Request):
    method: Literal["dashboard"] = "dashboard"
    by_address: bool = False
    """Below the gateway's own address, not the host name reserved for sign-ins."""


class SaveScriptRequest(_Request):
    method: Literal["save_script"] = "save_script"
    name: _Name
    source: str
    description: str
    parameters: tuple[str, ...] | None = None
    may_change: tuple[str, ...] = ()
    replaces: bool = False


class ScriptsRequest(_Request):
    method: Literal["scripts"] = "scripts"


class RunScriptRequest(_Request):
    method: Literal["run_script"] = "run_script"
    name: _Name
    arguments: Any = None
    plain: tuple[tuple[str, str], ...] = ()
    select: str = ""


class TryScriptRequest(_Request):
    method: Literal["try_script"] = "try_script"
    script: str
    may_change: tuple[str, ...] = ()


Request = (
    FindRequest
    | ToolsRequest
    | CallRequest
    | ReadRequest
    | ServersRequest
    | ShowRequest
    | ResolveRequest
    | StatusRequest
    | RestartRequest
    | LogsRequest
    | ReloadRequest
    | DashboardRequest
    | SaveScriptRequest
    | ScriptsRequest
    | RunScriptRequest
    | TryScriptRequest
)

REQUESTS: TypeAdapter[Request] = TypeAdapter(
    Annotated[Request, Field(discriminator="method")], config=ConfigDict(defer_build=True)
)
