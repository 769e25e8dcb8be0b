"""`key create`, `list`, `rotate` and `revoke`: who may call over HTTP, and what each may do. Starts no server.

A key is shown once, when it is made; the database keeps only a hash. A running gateway notices every change.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcp_optimizer.cli.act_records import record_act
from mcp_optimizer.cli.command_gateway import run
from mcp_optimizer.cli.command_options import CommandGroup, JsonFlag, with_settings
from mcp_optimizer.cli.terminal import console, print_json
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.domain.caller import Risk, Role
from mcp_optimizer.errors import ConfigurationError, OptimizerError, listed, quoted
from mcp_optimizer.runtime.terminal_text import counted, in_a_line

if TYPE_CHECKING:
    from mcp_optimizer.access.callers.keys import Wanted
    from mcp_optimizer.db.credentials import StoredKeys
    from mcp_optimizer.domain.credentials import ApiKey

_USUAL_ADDRESS = "http://127.0.0.1:8765"
_USED = frozenset({"config", "demo", "database", "log_level", "log_format"})
_NOT_USED = frozenset(Settings.model_fields) - _USED
"""Options without effect here; some share their names with a key's own."""

_Name = Annotated[str, typer.Option("--name", help="The holder's name, for people and rules.", show_default=False)]
_Servers = Annotated[
    str | None,
    typer.Option("--servers", help="Its only servers, comma-separated. Default: all.", show_default=False),
]
_Risk = Annotated[Risk, typer.Option("--risk", help="The worst kind of tools that it may call.")]
_Role = Annotated[Role, typer.Option("--role", help="Its role on the dashboard.")]
_Profile = Annotated[
    str | None,
    typer.Option("--profile", help="Tools registered directly for it: minimal, standard or full.", show_default=False),
]
_CallsPerMinute = Annotated[
    int | None,
    typer.Option("--calls-per-minute", help="Its own rate limit; 0: none. Default: that of the settings."),
]
_Expires = Annotated[str, typer.Option("--expires", help="When it ends: 12h, 90d, 8w, 2027-01-31 or never.")]
_Holder = Annotated[
    str,
    typer.Option(
        "--holder",
        help="The person whose key it is, such as an e-mail address: all keys of a person have the same logins and "
        "limits.",
        show_default=False,
    ),
]
_Which = Annotated[str, typer.Argument(help="The key's name.", show_default=False)]
_Revoked = Annotated[str, typer.Argument(help="The key's name.", show_default=False)]
_AllOf = Annotated[str, typer.Option("--holder", help="Revoke all keys of this person.", show_default=False)]
_Overlap = Annotated[
    str, typer.Option("--overlap", help="How long the old key stays valid beside the new one: 30m, 1h, 7d, or 0.")
]
_NewExpiry = Annotated[
    str | None,
    typer.Option(
        "--expires", help="When the new key ends. Default: as long after today as the old one after its making."
    ),
]


def register(app: typer.Typer) -> None:
    group = CommandGroup(no_args_is_help=True, help="Keys with which callers over HTTP prove who they are.")
    for name, command in (("create", create_key), ("list", list_keys), ("rotate", rotate), ("revoke", revoke_key)):
        group.command(name)(command)
    app.add_typer(group, name="key")


@with_settings(leave_out=_NOT_USED)
def create_key(
    *,
    settings: Settings,
    name: _Name,
    key_servers: _Servers = None,
    risk: _Risk = Risk.READ,
    role: _Role = Role.NONE,
    profile: _Profile = None,
    key_calls: _CallsPerMinute = None,
    expires: _Expires = "90d",
    holder: _Holder = "",
    as_json: JsonFlag = False,
) -> None:
    """Make a key. It is shown once; a running gateway accepts it within two seconds."""
    from mcp_optimizer.access.callers.keys import Wanted

    servers = None if key_servers is None else [part.strip() for part in key_servers.split(",") if part.strip()]
    run(_create(settings, Wanted(name, servers, risk, role, profile, key_calls, expires, holder), as_json))


@with_settings(leave_out=_NOT_USED)
def list_keys(*, settings: Settings, as_json: JsonFlag = False) -> None:
    """List all keys with their rights, expiry and last use. Never a key itself."""
    run(_list(settings, as_json))


@with_settings(leave_out=_NOT_USED)
def rotate(
    name: _Which,
    *,
    settings: Settings,
    overlap: _Overlap = "1d",
    expires: _NewExpiry = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a new key in place of one, with the same rights and logins. It is shown once; both are valid for a while."""
    run(_rotate(settings, name, overlap, expires, as_json))


@with_settings(leave_out=_NOT_USED)
def revoke_key(*, settings: Settings, name: _Revoked = "", holder: _AllOf = "") -> None:
    """Revoke a key, or all keys of a person. A running gateway refuses them within two seconds."""
    if bool(name) == bool(holder):
        raise ConfigurationError("Name a key, or a person with --holder: one of the two.")
    run(_revoke_all(settings, holder) if holder else _revoke(settings, name))


@asynccontextmanager
async def _keys(settings: Settings) -> AsyncIterator[StoredKeys]:
    from mcp_optimizer.access.callers.keys import opened_keys
    from mcp_optimizer.app.setting_values import place_of

    async with opened_keys(place_of(settings, "Keys")) as keys:
        yield keys


async def _create(settings: Settings, wanted: Wanted, as_json: bool) -> None:
    from mcp_optimizer.access.callers.keys import make_key

    async with _keys(settings) as keys:
        key, text = await make_key(keys, wanted)
        others = await _others(keys, key)
    await record_act(settings, "key/create", _whose(key))
    _warn_of_unknown(settings, key)
    _show_new(settings, key, text, others, as_json)


async def _others(keys: StoredKeys, key: ApiKey) -> list[str]:
    """The names of the other living keys of its holder."""
    if not key.holder:
        return []
    living = await keys.living(key.created_at_ms)
    return sorted({one.name for one in living if one.holder == key.holder and one.name != key.name})


def _whose(key: ApiKey) -> str:
    """A key in the audit."""
    return f"{key.name} of {key.principal.name}" if key.holder else key.name


def _show_new(settings: Settings, key: ApiKey, text: str, others: list[str], as_json: bool) -> None:
    if as_json:
        print_json({"key": text, **_described(key)})
        return
    print(f"{text}\n\nThis is the only time it is shown. {_permits(key)}")
    if others:
        print(in_a_line(f"It has the logins and limits of the other keys of {key.holder}: {listed(others)}."))
    print()
    print(f"Clients send it as a header:\n\n    Authorization: Bearer {text}\n\nor with an entry such as:\n")
    print(json.dumps(_entry(settings, text), indent=2))


async def _rotate(settings: Settings, name: str, overlap: str, expires: str | None, as_json: bool) -> None:
    from mcp_optimizer.access.callers.keys import overlap_of, rotate_key

    lasts = overlap_of(overlap)
    async with _keys(settings) as keys:
        key, text = await rotate_key(keys, name, lasts, expires)
    await record_act(settings, "key/rotate", _whose(key))
    _show_new(settings, key, text, [], as_json)
    if not as_json:
        until = f"until {_moment(key.created_at_ms + round(lasts.total_seconds() * 1_000))} at most"
        print(f"\nThe old key is valid {until if lasts else 'no longer'}.")


def _warn_of_unknown(settings: Settings, key: ApiKey) -> None:
    """A server may be added later, so an unknown name is warned about, not refused."""
    from mcp_optimizer.app.servers import server_specs

    try:
        specs = server_specs(settings.model_copy(update={"servers": ""})) if key.servers else []
        known = {spec.name for spec in specs}
    except OptimizerError:
        return
    if known and (unknown := sorted((key.servers or frozenset()) - known)):
        print(
            in_a_line(f"warning: no server is called {listed(unknown)}. Servers: {listed(sorted(known))}."),
            file=sys.stderr,
        )


def _permits(key: ApiKey) -> str:
    kinds = {Risk.READ: "tools that only read", Risk.WRITE: "tools that read or write", Risk.DESTRUCTIVE: "every tool"}
    where = "all servers" if key.servers is None else listed(sorted(key.servers))
    until = "without an end" if key.expires_at_ms is None else f"until {_moment(key.expires_at_ms)}"
    return in_a_line(f"It may call {kinds[key.risk]} on {where}, {until}.")


def _entry(settings: Settings, text: str) -> dict[str, Any]:
    """An entry that most clients' server files accept."""
    from mcp_optimizer.app.control.gateway_client import address_of_running

    address = settings.public_url or address_of_running(settings) or _USUAL_ADDRESS
    if settings.http and not settings.public_url:
        host, port = settings.http_address
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    headers = {"Authorization": f"Bearer {text}"}
    return {"mcpServers": {"mcp-optimizer": {"type": "http", "url": f"{address}/mcp", "headers": headers}}}


async def _list(settings: Settings, as_json: bool) -> None:
    async with _keys(settings) as keys:
        found = [_described(key) for key in await keys.all()]
    if as_json:
        print_json({"keys": found})
        return
    from rich.table import Table

    out, table = console(), Table(box=None, pad_edge=False)
    for heading in ("name", "holder", "state", "servers", "risk", "role", "expires", "last used"):
        table.add_column(heading, overflow="fold")
    for one in found:
        servers = "all" if one["servers"] is None else listed(one["servers"])
        state = f"{one['state']}, replaced" if one["replaced_at"] and one["state"] == "in use" else one["state"]
        shown = (one["name"], one["holder"] or "–", state, servers, one["risk"], one["role"])
        times = (one["expires_at"] or "never", one["last_used_at"] or "never")
        table.add_row(*(in_a_line(str(value)) for value in (*shown, *times)))
    if found:
        out.print(table, markup=False)
    out.print(counted(sum(one["state"] == "in use" for one in found), "key in use", "keys in use"), markup=False)


def _described(key: ApiKey) -> dict[str, Any]:
    return {
        "name": key.name,
        "id": key.id,
        "holder": key.holder or None,
        "state": key.state(time.time_ns() // 1_000_000),
        "servers": None if key.servers is None else sorted(key.servers),
        "risk": key.risk.value,
        "role": key.role.value,
        "profile": key.profile,
        "calls_per_minute": key.calls_per_minute,
        "created_at": _moment(key.created_at_ms),
        "expires_at": _moment(key.expires_at_ms),
        "last_used_at": _moment(key.used_at_ms),
        "revoked_at": _moment(key.revoked_at_ms),
        "replaced_at": _moment(key.replaced_at_ms),
    }


def _moment(at_ms: int | None) -> str | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="seconds")


async def _revoke(settings: Settings, name: str) -> None:
    async with _keys(settings) as keys:
        now_ms = time.time_ns() // 1_000_000
        is_revoked = await keys.revoke(name, now_ms)
        known = [] if is_revoked else await keys.all()
    if is_revoked:
        await record_act(settings, "key/revoke", name)
        print("Revoked. A running gateway refuses it within two seconds.")
        return
    same = [key.state(now_ms) for key in known if key.name == name]
    if same:
        raise ConfigurationError(f"The key {quoted(name)} is {same[-1]} already.")
    living = [key.name for key in known if key.is_living(now_ms)]
    raise ConfigurationError(f"There is no key {quoted(name)}. Keys in use: {listed(living) or 'none'}.")


async def _revoke_all(settings: Settings, holder: str) -> None:
    async with _keys(settings) as keys:
        names = await keys.revoke_holder(holder, time.time_ns() // 1_000_000)
        known = [] if names else await keys.all()
    if not names:
        holders = sorted({key.holder for key in known if key.holder and key.is_living(time.time_ns() // 1_000_000)})
        shown = listed([quoted(one) for one in holders]) or "none"
        raise ConfigurationError(f"{quoted(holder)} has no key in use. Holders with keys in use: {shown}.")
    for name in names:
        await record_act(settings, "key/revoke", f"{name} of holder:{holder}")
    print(in_a_line(f"Revoked: {listed(names)}. A running gateway refuses them within two seconds."))
