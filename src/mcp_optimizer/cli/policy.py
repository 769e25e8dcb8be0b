"""`policy test`: explains whether a caller may call a tool, and which rule says so. Calls nothing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from mcp_optimizer.cli.command_gateway import FreshFlag, Inquiry, run, started
from mcp_optimizer.cli.command_options import CommandGroup, JsonFlag, with_settings
from mcp_optimizer.cli.terminal import console, print_json
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.domain.caller import ANYONE, LOCAL_PRINCIPAL, Principal, Risk
from mcp_optimizer.errors import ConfigurationError, listed, quoted
from mcp_optimizer.runtime.patterns import regex

if TYPE_CHECKING:
    from mcp_optimizer.access.policy.explaining import Explanation

_PATTERN = regex(r"[*?\[]")
"""Signs of a pattern, which can match several callers."""


def register(app: typer.Typer) -> None:
    group = CommandGroup(no_args_is_help=True, help="See what callers may do.")
    group.command("test")(policy_test)
    app.add_typer(group, name="policy")


@with_settings()
def policy_test(
    tool: Annotated[str, typer.Argument(help="The tool's name, or server__tool.")],
    *,
    settings: Settings,
    flags: frozenset[str],
    server: Annotated[str | None, typer.Option(help="The server, if several have the tool.")] = None,
    caller: Annotated[
        str, typer.Option(help="The caller's name, such as key:ci, or ci if only one matches. Default: local.")
    ] = "",
    caller_servers: Annotated[
        str | None, typer.Option(help="The servers that the caller's key permits, comma-separated. Default: all.")
    ] = None,
    caller_risk: Annotated[
        Risk | None, typer.Option(help="The worst class of tools that the caller's key permits. Default: any.")
    ] = None,
    caller_groups: Annotated[
        str | None, typer.Option(help="The groups that the caller's token names, comma-separated. Default: none.")
    ] = None,
    fresh: FreshFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Explain whether a caller may call a tool: its risk class, the rule that decides, and what would change that."""
    asked = _Asked(caller, caller_servers, caller_risk, caller_groups)
    _test(Inquiry(settings, flags, fresh), tool, server, asked, as_json)


@dataclass(frozen=True)
class _Asked:
    """The caller in question: its name as given, and the rights of its key."""

    name: str
    servers: str | None
    risk: Risk | None
    groups: str | None

    @property
    def is_imagined(self) -> bool:
        return (self.servers, self.risk, self.groups) != (None, None, None)


async def _caller(settings: Settings, asked: _Asked) -> Principal:
    """The stored key of this name, or an imagined caller with the given limits."""
    from mcp_optimizer.access.policy.explaining import imagined

    keys = await _keys(settings) if asked.name else {}
    name = _name_in_rules(settings, asked, keys) if asked.name else LOCAL_PRINCIPAL.name
    if not asked.is_imagined and name in keys:
        return keys[name]
    if asked.groups and name.startswith("key:"):
        raise ConfigurationError(f"{quoted(name)} has a key, and keys have no groups: only tokens name groups.")
    permitted = None if asked.servers is None else frozenset(_listed_in(asked.servers))
    return imagined(name, permitted, asked.risk or Risk.DESTRUCTIVE, frozenset(_listed_in(asked.groups or "")))


def _listed_in(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


async def _keys(settings: Settings) -> dict[str, Principal]:
    """Callers with a key, by name and by the key's name; of several keys, the newest."""
    place = settings.database_place
    if place is None:
        return {}
    from mcp_optimizer.access.callers.keys import opened_keys

    async with opened_keys(place) as keys:
        found = await keys.all()
    # A key of a person is found by its own name too; rules know only the person's.
    return {name: key.principal for key in found for name in (key.principal.name, f"key:{key.name}")}


def _name_in_rules(settings: Settings, asked: _Asked, keys: Collection[str]) -> str:
    """The name that rules use for a caller. A mistyped name would match no rule, which would look like permission."""
    given = asked.name
    named = (rule.caller for rule in settings.rules if not _PATTERN.search(rule.caller))
    known = list(dict.fromkeys([LOCAL_PRINCIPAL.name, ANYONE.name, *keys, *named]))
    kind, colon, own = given.partition(":")
    is_of_issuer = colon and own and kind in [issuer.name for issuer in settings.token_issuers]
    if given in known or is_of_issuer or (kind == "key" and own and asked.is_imagined):
        return given
    meant = [name for name in known if name.partition(":")[2] == given]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise ConfigurationError(f"{quoted(given)} may be {listed(meant)}. Say which.")
    forms = ["key:NAME", *(f"{issuer.name}:NAME" for issuer in settings.token_issuers)]
    raise ConfigurationError(
        f"There is no caller {quoted(given)}. Known: {listed(list(map(quoted, known)))}. Rules name callers as "
        f"{' or '.join(forms)}; for a key that does not exist yet, give its rights with --caller-risk or "
        "--caller-servers."
    )


def _test(inquiry: Inquiry, tool: str, server: str | None, asked: _Asked, as_json: bool) -> None:
    from mcp_optimizer.access.policy.explaining import explain
    from mcp_optimizer.app.control.command_requests import ResolveRequest
    from mcp_optimizer.app.part_options import policy_of

    principal = run(_caller(inquiry.settings, asked))
    meant = inquiry.answer(ResolveRequest(tool=tool, server=server), started)
    where = meant["server"], meant["tool"]
    explanation = explain(policy_of(inquiry.settings), principal, *where, meant["annotations"])
    if as_json:
        print_json(_as_json(explanation, principal, *where, asked.name))
    else:
        _show(explanation, principal, *where, asked.name)


def _as_json(explanation: Explanation, principal: Principal, server: str, tool: str, given: str) -> dict[str, object]:
    decision = explanation.decision
    return {
        "server": server,
        "tool": tool,
        "caller": principal.name,
        "caller_given": given,
        "groups": sorted(principal.groups),
        "effect": decision.effect.value,
        "because": decision.because,
        "reason": decision.reason,
        "rule": explanation.rule,
        "risk": decision.risk.risk.value,
        "risk_source": decision.risk.source,
        "would_change": list(explanation.changes),
    }


def _show(explanation: Explanation, principal: Principal, server: str, tool: str, given: str) -> None:
    from rich.table import Table
    from rich.text import Text

    decision = explanation.decision
    out = console()
    # Text, not markup: the names come from servers.
    out.print(Text(f"{decision.effect.value}: {tool} of {server} for {principal.name}", style="bold"))
    table = Table(box=None, pad_edge=False, show_header=False)
    rows = [("caller", f"{given} is {principal.name}")] if given not in ("", principal.name) else []
    rows += [("because", decision.because), *((step.about, step.said) for step in explanation.steps)]
    rows += [("reason", decision.reason)] if decision.reason else []
    rows += [("would change it", change) for change in explanation.changes]
    for about, said in rows:
        table.add_row(Text(about), Text(said))
    out.print(table)
