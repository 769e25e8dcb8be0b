"""`login`, `logout` and `auth`: how a person manages the logins to servers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
import webbrowser
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcp_optimizer.cli.command_gateway import run
from mcp_optimizer.cli.command_options import CommandGroup, JsonFlag, with_settings
from mcp_optimizer.cli.terminal import console, print_json
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.errors import ConfigurationError, OptimizerError
from mcp_optimizer.runtime.terminal_text import counted, in_a_line, span

if TYPE_CHECKING:
    from mcp_optimizer.app.optimizer import Optimizer
    from mcp_optimizer.config.serverfile.spec import ServerSpec
    from mcp_optimizer.identity.login import LoginStatus
    from mcp_optimizer.identity.oauth_client import Attempt
    from mcp_optimizer.upstream.state import UpstreamState

_PATIENCE = 900.0
"""Seconds that a person has to log in."""

_LONGEST_LINE = 65_536

_Server = Annotated[str, typer.Argument(help="The server's name in the server file.", show_default=False)]
_NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Print the address instead of opening a browser.")]
_Paste = Annotated[
    bool,
    typer.Option("--paste", help="For a machine without a browser: log in elsewhere and paste the address it ends at."),
]

_Caller = Annotated[
    str | None,
    typer.Option(
        "--caller",
        help="Show the logins that callers made for themselves, and the tokens that several gateways got in exchange "
        "for theirs: of those whose name fits, as in 'key:*'.",
        show_default=False,
    ),
]

auth = CommandGroup(no_args_is_help=True, help="How the logins to servers stand.")


def register(app: typer.Typer) -> None:
    for command in (login, logout):
        app.command()(command)
    auth.command("status")(status)
    app.add_typer(auth, name="auth")


@with_settings()
def login(server: _Server, *, settings: Settings, no_browser: _NoBrowser = False, paste: _Paste = False) -> None:
    """Log in to a server in a browser. A running gateway uses the login at once."""
    run(_login(_of_one(settings, server), server, opens=not (no_browser or paste), paste=paste))


@with_settings()
def logout(server: _Server, *, settings: Settings) -> None:
    """Forget a login, and revoke it at its authorization server."""
    run(_logout(_of_one(settings, server), server))


@with_settings()
def status(*, settings: Settings, caller: _Caller = None, as_json: JsonFlag = False) -> None:
    """Show the logins: issuer, permissions, expiry, last refresh, last error. Never a token."""
    run(_status(settings, caller, as_json))


def _of_one(settings: Settings, server: str) -> Settings:
    """The settings for one server alone, without search or recording."""
    return settings.model_copy(update={"servers": server, "history": False, "encoder": "none"})


def _started(settings: Settings) -> tuple[Optimizer, list[ServerSpec]]:
    import logging

    from mcp_optimizer.app.optimizer import Optimizer
    from mcp_optimizer.upstream.supervisor import restarts

    if "log_level" not in settings.model_fields_set:
        restarts.setLevel(logging.ERROR)
    optimizer = Optimizer.from_settings(settings.model_copy(update={"start_servers": "with the gateway"}))
    return optimizer, [state.spec for state in optimizer.servers()]


async def _login(settings: Settings, name: str, *, opens: bool, paste: bool) -> None:
    from mcp_optimizer.domain.failure_kinds import FailureKind
    from mcp_optimizer.identity.logins import by_name, wants_login, why_no_login

    optimizer, specs = _started(settings)
    spec = by_name(specs, name)
    if not wants_login(spec):
        raise ConfigurationError(why_no_login(spec))
    if settings.database_place is None:
        raise ConfigurationError("A login cannot be kept with --database none. Name a database, or leave it out.")
    optimizer.start()
    try:
        # The server's own request decides where to log in, and with which permissions.
        await optimizer.wait_for_servers(settings.start_timeout)
        before = _state(optimizer, name)
        if before.failure in (FailureKind.UNREACHABLE, FailureKind.SILENT):
            raise OptimizerError(f"Cannot ask {name} how to log in: {before.reason}. Run `mcp-optimizer doctor`.")
        await (_by_paste(optimizer, spec) if paste else _by_browser(optimizer, spec, opens=opens))
        await _until_used(optimizer, before, settings.start_timeout)
        _tell_outcome(optimizer, name)
    finally:
        await optimizer.stop()


def _state(optimizer: Optimizer, name: str) -> UpstreamState:
    return next(state for state in optimizer.servers() if state.name == name)


async def _begun(optimizer: Optimizer, spec: ServerSpec, redirect: str) -> Attempt:
    """Begin the login, unless the server runs without one and offers none."""
    from mcp_optimizer.domain.tools import ServerStatus

    is_running = _state(optimizer, spec.name).status is ServerStatus.RUNNING
    try:
        attempt = await optimizer.logins.begin(spec, redirect)
    except OptimizerError:
        if is_running and await optimizer.logins.login(spec).current() is None:
            raise ConfigurationError(f"{spec.name!r} runs without a login and offers none. Just use it.") from None
        raise
    if (host := attempt.provider.other_host) is not None:
        told = f"Its authorization server {attempt.provider.issuer} sends you to {host}. Log in only if you trust it."
        print(in_a_line(told), file=sys.stderr)
    return attempt


async def _until_used(optimizer: Optimizer, before: UpstreamState, seconds: float) -> None:
    """Wait until a server that was not running has tried to use the login."""
    from mcp_optimizer.domain.tools import ServerStatus

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while before.status is not ServerStatus.RUNNING and _state(optimizer, before.name) is before:
                await optimizer.catalog.changed()
    await optimizer.wait_for_servers(seconds)


async def _by_browser(optimizer: Optimizer, spec: ServerSpec, *, opens: bool) -> None:
    from mcp_optimizer.identity.callback import waiting_for_browser

    async with waiting_for_browser(optimizer.logins.finish, spec.auth.callback_port) as callback:
        attempt = await _begun(optimizer, spec, callback.address)
        if opens and webbrowser.open(attempt.address):
            print(f"Log in to {spec.name} in your browser. If none has opened, open this address:\n", file=sys.stderr)
        else:
            print(f"Open this address in a browser on this machine to log in to {spec.name}:\n", file=sys.stderr)
        print(attempt.address, flush=True)
        try:
            async with asyncio.timeout(_PATIENCE):
                await callback.done
        except TimeoutError:
            raise OptimizerError(f"There was no login within {_PATIENCE / 60:.0f} minutes.") from None


async def _by_paste(optimizer: Optimizer, spec: ServerSpec) -> None:
    from mcp_optimizer.identity.callback import PATH, PORT

    # Nothing listens there: the browser shows an error page, and only its address matters.
    redirect = f"http://localhost:{spec.auth.callback_port or PORT}{PATH}"
    attempt = await _begun(optimizer, spec, redirect)
    print(
        f"1. Open this address in a browser, on any machine, and log in to {spec.name}:\n\n{attempt.address}\n\n"
        "2. The browser ends at a page that cannot be shown. Copy the whole address of that page.\n"
        "3. Paste it here and press Enter:",
        file=sys.stderr,
        flush=True,
    )
    redirected = await _pasted()
    if not redirected.strip():
        raise OptimizerError("Nothing was pasted. Begin again.")
    await optimizer.logins.finish(redirected, attempt)


async def _pasted() -> str:
    """A line from stdin. The reading thread does not keep a person from stopping with Ctrl+C."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[bytes] = loop.create_future()

    def take(found: bytes) -> None:
        if not line.done():
            line.set_result(found)

    def read() -> None:
        # Not through sys.stdin: the reading thread would hold its lock until the program ends.
        found = b""
        while b"\n" not in found and len(found) < _LONGEST_LINE and (more := os.read(0, _LONGEST_LINE)):
            found += more
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(take, found)

    threading.Thread(target=read, daemon=True).start()
    return (await line).partition(b"\n")[0].decode(errors="replace")


def _tell_outcome(optimizer: Optimizer, name: str) -> None:
    from mcp_optimizer.domain.tools import ServerStatus

    state = _state(optimizer, name)
    if state.status is ServerStatus.RUNNING:
        print(f"Logged in to {name}: {counted(state.listing.size, 'tool')}.", file=sys.stderr)
    else:
        print(in_a_line(f"Logged in to {name}, but it is not running: {state.reason}"), file=sys.stderr)


async def _logout(settings: Settings, name: str) -> None:
    from mcp_optimizer.identity.logins import by_name, wants_login, why_no_login

    optimizer, specs = _started(settings)
    spec = by_name(specs, name)
    if not wants_login(spec):
        raise ConfigurationError(why_no_login(spec))
    optimizer.storage.open()
    try:
        was = await optimizer.logins.log_out(spec)
        print(f"Logged out of {name}." if was else f"There was no login to {name}.", file=sys.stderr)
    finally:
        await optimizer.stop()


async def _status(settings: Settings, caller: str | None, as_json: bool) -> None:
    optimizer, specs = _started(settings.model_copy(update={"history": False, "encoder": "none"}))
    optimizer.storage.open()
    try:
        found = await (
            optimizer.logins.statuses(specs) if caller is None else optimizer.logins.statuses_of_callers(specs, caller)
        )
    finally:
        await optimizer.stop()
    if as_json:
        print_json({"logins": [_facts(one) for one in found]})
        return
    _show(found, caller)


def _facts(one: LoginStatus) -> dict[str, Any]:
    facts: dict[str, Any] = {"server": one.server, "state": one.state}
    if one.caller:
        facts["caller"] = one.caller
    if one.issuer:
        facts |= {"issuer": one.issuer, "scopes": list(one.scopes), "refreshable": one.can_refresh}
    for key, moment in (("expires_at", one.expires_at), ("refreshed_at", one.refreshed_at)):
        if moment is not None:
            facts[key] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
    if one.wanted:
        facts["wanted_scopes"] = list(one.wanted)
    if one.error:
        facts["error"] = one.error
    return facts


def _show(found: list[LoginStatus], caller: str | None) -> None:
    from rich.text import Text

    out = console()
    if not found:
        none = "No server of the server file can want a login."
        out.print(none if caller is None else Text(f"No caller {caller!r} has a login of its own.", style="default"))
    for one in found:
        style = {"logged in": "green", "exchanged": "green", "none": "dim"}.get(one.state, "yellow")
        whose = f" as {in_a_line(one.caller)}" if one.caller else ""
        line = Text(f"{one.server}{whose}: {one.state}", style=style)
        out.print(line)
        for text in _lines(one):
            out.print(Text(f"    {in_a_line(text)}", style="default"))


def _lines(one: LoginStatus) -> list[str]:
    said = []
    if one.issuer:
        said.append(f"by {one.issuer}, for {', '.join(one.scopes) or 'what the server gives by default'}")
    if one.expires_at is not None:
        left = one.expires_at - time.time()
        when = f"expires in {span(left)}" if left > 0 else f"expired {span(-left)} ago"
        said.append(f"{when}; {'refreshed by itself' if one.can_refresh else 'not refreshable'}")
    if one.refreshed_at is not None:
        said.append(f"last given {span(time.time() - one.refreshed_at)} ago")
    if one.wanted:
        said.append(f"a call needed more permissions: {', '.join(one.wanted)}; log in again to give them")
    if one.error:
        said.append(f"last error: {one.error}")
    if one.state in ("login needed", "more permissions needed"):
        said.append("the caller can log in again" if one.caller else f"mcp-optimizer login {one.server}")
    return said
