"""`policy test`: explains whether a caller may call a tool, and which rule says so. Calls nothing."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Annotated

import typer

from mcp_optimizer.cli.groups import CommandGroup
from mcp_optimizer.cli.options import JsonFlag, with_settings
from mcp_optimizer.cli.running import run, started
from mcp_optimizer.cli.show import console, print_json
from mcp_optimizer.domain.principal import LOCAL_PRINCIPAL, Principal, Risk
from mcp_optimizer.settings import Settings

if TYPE_CHECKING:
    from mcp_optimizer.policy.explaining import Explanation


def register(app: typer.Typer) -> None:
    group = CommandGroup(no_args_is_help=True, help="See what callers may do.")
    group.command("test")(policy_test)
    app.add_typer(group, name="policy")


@with_settings()
def policy_test(
    tool: Annotated[str, typer.Argument(help="The tool's name, or server__tool.")],
    *,
    settings: Settings,
    server: Annotated[str | None, typer.Option(help="The server, if several have the tool.")] = None,
    caller: Annotated[str, typer.Option(help="The caller's name, such as key:ci. Default: whoever is local.")] = "",
    caller_servers: Annotated[
        str | None, typer.Option(help="The servers that the caller's key permits, comma-separated. Default: all.")
    ] = None,
    caller_risk: Annotated[
        Risk | None, typer.Option(help="The worst class of tools that the caller's key permits. Default: any.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Explain whether a caller may call a tool: its risk class, the rule that decides, and what would change that."""
    run(_test(settings, tool, server, _caller(settings, caller, caller_servers, caller_risk), as_json))


async def _caller(settings: Settings, name: str, servers: str | None, risk: Risk | None) -> Principal:
    """A stored key of this name with what it permits, or somebody with the limits that are given."""
    from mcp_optimizer.policy.explaining import imagined

    if servers is None and risk is None and (known := await _with_key(settings, name)) is not None:
        return known
    permitted = None if servers is None else frozenset(filter(None, map(str.strip, servers.split(","))))
    return imagined(name or LOCAL_PRINCIPAL.name, permitted, risk or Risk.DESTRUCTIVE)


async def _with_key(settings: Settings, name: str) -> Principal | None:
    place = settings.database_place
    if not name.startswith("key:") or place is None:
        return None
    from mcp_optimizer.callers.known_keys import opened_keys

    async with opened_keys(place) as keys:
        return next((key.principal for key in reversed(await keys.all()) if key.principal.name == name), None)


async def _test(
    settings: Settings, tool: str, server: str | None, looked_up: Awaitable[Principal], as_json: bool
) -> None:
    from mcp_optimizer.app.options import policy_of
    from mcp_optimizer.gateway.resolving import on_server, resolve
    from mcp_optimizer.policy.explaining import explain

    principal = await looked_up
    async with started(settings) as optimizer:
        snapshot = optimizer.snapshot
        found = resolve(snapshot, tool) if server is None else on_server(snapshot, tool, server)
        own, annotations = found.record.name, found.record.definition.details.annotations
        explanation = explain(policy_of(settings), principal, found.server, own, annotations)
    if as_json:
        print_json(_as_json(explanation, principal, found.server, own))
    else:
        _show(explanation, principal, found.server, own)


def _as_json(explanation: Explanation, principal: Principal, server: str, tool: str) -> dict[str, object]:
    decision = explanation.decision
    return {
        "server": server,
        "tool": tool,
        "caller": principal.name,
        "effect": decision.effect.value,
        "because": decision.because,
        "reason": decision.reason,
        "rule": explanation.rule,
        "risk": decision.risk.risk.value,
        "risk_source": decision.risk.source,
        "would_change": list(explanation.changes),
    }


def _show(explanation: Explanation, principal: Principal, server: str, tool: str) -> None:
    from rich.table import Table
    from rich.text import Text

    decision = explanation.decision
    out = console()
    # Text, not markup: names are a server's words.
    out.print(Text(f"{decision.effect.value}: {tool} of {server} for {principal.name}", style="bold"))
    table = Table(box=None, pad_edge=False, show_header=False)
    rows = [("because", decision.because), *((step.about, step.said) for step in explanation.steps)]
    rows += [("reason", decision.reason)] if decision.reason else []
    rows += [("would change it", change) for change in explanation.changes]
    for about, said in rows:
        table.add_row(Text(about), Text(said))
    out.print(table)
