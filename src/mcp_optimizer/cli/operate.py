"""`status`, `restart`, `reload`, `logs` and `dashboard`: controls running gateways. Starts no server."""

from __future__ import annotations

import contextlib
import sys
import time
import webbrowser
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcp_optimizer.cli.command_options import JsonFlag, complete_server, with_settings
from mcp_optimizer.cli.terminal import console, print_json
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.errors import GatewayFailure, listed
from mcp_optimizer.runtime.terminal_text import counted, in_a_line, span

if TYPE_CHECKING:
    from mcp_optimizer.app.control.command_requests import Request
    from mcp_optimizer.app.control.gateway_client import RunningGateway

_SECONDS = 30.0
_LOOK_AGAIN = 0.5
"""Seconds between two reads of logs that are followed."""

_LEADS_TO = '<!doctype html><title>mcp-optimizer</title><meta http-equiv="refresh" content="0;url={}">'

_NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Print the address instead of opening a browser.")]
_ByAddress = Annotated[
    bool,
    typer.Option(
        "--by-address",
        help="Use the gateway's own address, for a browser that does not know names under .localhost. Other programs "
        "on this machine can then read the sign-in if you open one of their pages.",
    ),
]
_Servers = Annotated[
    list[str], typer.Argument(help="The servers' names.", show_default=False, autocompletion=complete_server)
]
_AnyServer = Annotated[
    str | None,
    typer.Argument(metavar="[SERVER]", help="Only this server.", show_default=False, autocompletion=complete_server),
]
_Lines = Annotated[int, typer.Option("--lines", "-n", min=0, max=100_000, help="The last lines of each server.")]
_Follow = Annotated[bool, typer.Option("--follow", "-f", help="Show new lines until Ctrl-C.")]


def register(app: typer.Typer) -> None:
    for command in (status, restart, reload, logs, dashboard):
        app.command()(command)


@with_settings()
def status(*, settings: Settings, as_json: JsonFlag = False) -> None:
    """Show the gateways that are running with these servers. Exit code 1 if there are none."""
    from mcp_optimizer.app.control.command_requests import StatusRequest

    found = [gateway.ask(StatusRequest(), _SECONDS)["value"] for gateway in _running(settings)]
    if as_json:
        print_json({"gateways": found})
    for one in [] if as_json else found:
        states = ", ".join(f"{count} {status}" for status, count in one["servers"].items()) or "no servers"
        up = span(max(0.0, time.time() - one["started"]))
        which = f"pid {one['pid']}" + (f", worker {one['worker']}" if one.get("worker") else "")
        shared = f" for {counted(one['clients'], 'client')}" if "clients" in one else ""
        line = f"{which}: {one['address']}{shared}, up {up}, servers: {states}, {counted(one['tools'], 'tool')}"
        console().print(in_a_line(line), markup=False, soft_wrap=True)


@with_settings()
def restart(names: _Servers, *, settings: Settings) -> None:
    """Restart servers of the running gateways, once their calls have ended."""
    from mcp_optimizer.app.control.command_requests import RestartRequest

    for server in dict.fromkeys(names):
        for gateway, _ in _all(settings, RestartRequest(server=server)):
            print(in_a_line(f"Restarting {server} (gateway with pid {gateway.hello.pid})."))


@with_settings()
def reload(*, settings: Settings, as_json: JsonFlag = False) -> None:
    """Make the running gateways read the server file and the settings again."""
    from mcp_optimizer.app.control.command_requests import ReloadRequest

    done = _all(settings, ReloadRequest())
    if as_json:
        print_json({"gateways": [{"pid": gateway.hello.pid, **outcome} for gateway, outcome in done]})
    for gateway, outcome in [] if as_json else done:
        print(in_a_line(f"pid {gateway.hello.pid}: {_said(outcome)}"))
    if any(outcome.get("problem") for _, outcome in done):
        raise typer.Exit(1)


@with_settings()
def logs(server: _AnyServer = None, *, settings: Settings, lines: _Lines = 50, follow: _Follow = False) -> None:
    """Show the last lines that servers wrote to stderr, and their events, without their secrets."""
    from mcp_optimizer.app.control.command_requests import LogsRequest

    gateway, request = _running(settings)[0], LogsRequest(server=server)
    shown = _logs(gateway, request)
    for name, found in shown.items():
        _print_lines(name, found[len(found) - min(lines, len(found)) :], is_named=server is None)
    while follow:
        time.sleep(_LOOK_AGAIN)
        now = _logs(gateway, request)
        for name, found in now.items():
            _print_lines(name, new_lines(shown.get(name, []), found), is_named=server is None)
        shown = now


@with_settings()
def dashboard(*, settings: Settings, no_browser: _NoBrowser = False, by_address: _ByAddress = False) -> None:
    """Open the dashboard of the running gateway, signed in as its owner."""
    gateway, address = _entrance(settings, by_address=by_address)
    if not no_browser and _shown_in_browser(gateway, address):
        print("The dashboard opens in your browser. If it does not, open this address:\n", file=sys.stderr)
    else:
        print("Open this address in a browser:\n", file=sys.stderr)
    print(in_a_line(address), flush=True)
    print("\nIt works once, within two minutes, and signs in as the owner: do not share it.", file=sys.stderr)


def _entrance(settings: Settings, *, by_address: bool) -> tuple[RunningGateway, str]:
    """The first gateway with a dashboard: one that a client starts on stdio has none."""
    from mcp_optimizer.app.control.command_requests import DashboardRequest

    problem: GatewayFailure | None = None
    for gateway in _running(settings):
        try:
            return gateway, gateway.ask(DashboardRequest(by_address=by_address), _SECONDS)["value"]["address"]
        except GatewayFailure as failure:
            problem = problem or failure
    assert problem is not None
    raise problem


def _shown_in_browser(gateway: RunningGateway, address: str) -> bool:
    """Pass the address in a file that only we can read: every user of this machine can see a browser's command line."""
    from mcp_optimizer.config.textfiles.writing import replace_file

    place = gateway.path.with_name("dashboard.html")
    with contextlib.suppress(OSError):
        place.unlink(missing_ok=True)
        replace_file(place, _LEADS_TO.format(escape(address)), expected=None, private=True)
        return webbrowser.open(place.as_uri())
    return False


def new_lines(before: Sequence[str], now: Sequence[str]) -> Sequence[str]:
    """The lines added to a log that keeps only the last ones."""
    for start in range(len(before)):
        kept = len(before) - start
        if kept <= len(now) and list(before[start:]) == list(now[:kept]):
            return now[kept:]
    return now


def _logs(gateway: RunningGateway, request: Request) -> dict[str, list[str]]:
    found: dict[str, list[str]] = gateway.ask(request, _SECONDS)["value"]
    return found


def _print_lines(name: str, lines: Sequence[str], *, is_named: bool) -> None:
    for line in lines:
        # Text that a server wrote.
        print(in_a_line(f"{name}: {line}" if is_named else line), flush=True)


def _said(outcome: dict[str, Any]) -> str:
    kinds = ("added", "removed", "changed", "settings")
    said = [f"{kind} {listed(list(outcome[kind]))}" for kind in kinds if outcome.get(kind)]
    if later := outcome.get("needs_restart"):
        said.append(f"at the next start: {listed(list(later))}")
    said = said or ["nothing changed"]
    return "; ".join([*said, *([f"wrong: {problem}"] if (problem := outcome.get("problem")) else [])])


def _all(settings: Settings, request: Request) -> list[tuple[RunningGateway, Any]]:
    """All of them, because each client may have started its own gateway."""
    return [(gateway, gateway.ask(request, _SECONDS)["value"]) for gateway in _running(settings)]


def _running(settings: Settings) -> list[RunningGateway]:
    from mcp_optimizer.app.control.gateway_client import running_gateways
    from mcp_optimizer.runtime.sharing.places import CAN_CONTROL

    found = running_gateways(settings)
    same = [gateway for gateway in found if gateway.is_same_version]
    if same:
        return same
    if found:
        raise GatewayFailure(f"The running gateway is version {found[0].hello.version}; use that version's command.")
    if not CAN_CONTROL:
        raise GatewayFailure("Commands cannot reach a running gateway on this system.")
    which = "the demo servers" if settings.demo else str(settings.server_file)
    raise GatewayFailure(f"No gateway is running with {which} and these --servers and --database.")
