"""`secret set`, `list`, `delete` and `rotate`: values that server files refer to by name. Starts no server.

A value is typed without being shown, or read from stdin. It is never an argument: other users of the machine can see
arguments, and shells store them. No command prints a value.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from mcp_optimizer.cli.act_records import record_act
from mcp_optimizer.cli.command_gateway import run
from mcp_optimizer.cli.command_options import CommandGroup, JsonFlag, with_settings
from mcp_optimizer.cli.terminal import console, hidden_value, print_json, value_of_stdin
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.runtime.terminal_text import counted

if TYPE_CHECKING:
    from mcp_optimizer.identity.secrets import Secrets

Name = Annotated[str, typer.Argument(help="The secret's name.")]


def register(app: typer.Typer) -> None:
    group = CommandGroup(no_args_is_help=True, help="Store secrets, encrypted, for server files to refer to by name.")
    for name, command in (("set", set_secret), ("list", list_secrets), ("delete", delete_secret), ("rotate", rotate)):
        group.command(name)(command)
    app.add_typer(group, name="secret")


@with_settings()
def set_secret(name: Name, *, settings: Settings) -> None:
    """Store a secret, which server files use as ${secret:NAME}. The value is asked for, or read from stdin."""
    run(_set(settings, name))


@with_settings()
def list_secrets(*, settings: Settings, as_json: JsonFlag = False) -> None:
    """List the names of all secrets and when each was set; never their values."""
    run(_list(settings, as_json))


@with_settings()
def delete_secret(name: Name, *, settings: Settings) -> None:
    """Delete a secret."""
    run(_delete(settings, name))


@with_settings()
def rotate(*, settings: Settings) -> None:
    """Encrypt all secrets and logins with a new key, and drop the old one."""
    run(_rotate(settings))


@asynccontextmanager
async def _secrets(settings: Settings) -> AsyncIterator[Secrets]:
    from mcp_optimizer.app.setting_values import place_of
    from mcp_optimizer.identity.secrets import opened_secrets

    async with opened_secrets(place_of(settings, "Secrets"), os.environ) as secrets:
        yield secrets


async def _set(settings: Settings, name: str) -> None:
    from mcp_optimizer.identity.secrets import check_name

    # Fail before the user types a value in vain.
    check_name(name)
    async with _secrets(settings) as secrets:
        await secrets.set(name, _asked_value(name))
    await record_act(settings, "secret/set", name)
    print(f"Stored. Server files use it as ${{secret:{name}}}." if _is_own(name) else "Stored.")


def _is_own(name: str) -> bool:
    """Whether the user chose the name; the secrets of VS Code files are referred to differently."""
    return not name.startswith("input:")


async def _list(settings: Settings, as_json: bool) -> None:
    async with _secrets(settings) as secrets:
        names = await secrets.names()
    found = [{"name": name, "set_at": _moment(at_ms)} for name, at_ms in names.items()]
    if as_json:
        print_json({"secrets": found})
        return
    out = console()
    for one in found:
        out.print(f"{one['set_at']}  {one['name']}", markup=False, soft_wrap=True)
    out.print(counted(len(found), "secret"), markup=False)


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


async def _delete(settings: Settings, name: str) -> None:
    async with _secrets(settings) as secrets:
        if not await secrets.delete(name):
            raise ConfigurationError(f"There is no secret {name!r}. `mcp-optimizer secret list` lists all.")
    await record_act(settings, "secret/delete", name)
    print("Deleted.")


async def _rotate(settings: Settings) -> None:
    async with _secrets(settings) as secrets:
        count = await secrets.rotate()
    await record_act(settings, "secret/rotate")
    from mcp_optimizer.identity.vault import VARIABLE

    given = f" You can remove the old key from {VARIABLE} now." if os.environ.get(VARIABLE) else ""
    print(f"Encrypted {counted(count, 'secret')} with a new key.{given}")


def _asked_value(name: str) -> str:
    """The value: typed at a terminal, or all of stdin without its final newline."""
    return hidden_value(f"Value of {name}") if sys.stdin.isatty() else value_of_stdin()
