"""The rules page: the rules, the decisions of each, and why a call would be refused. Changes nothing.

Built by the composition root; `guard` decides who may see it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from mcp_optimizer.access.policy.explaining import Explanation, Survey, explain, imagined, survey
from mcp_optimizer.access.policy.policy import SOURCES, Policy
from mcp_optimizer.catalog import Snapshot
from mcp_optimizer.dashboard.guard import Guard
from mcp_optimizer.dashboard.html import Child, Html, el, number
from mcp_optimizer.dashboard.login_pages import facts
from mcp_optimizer.dashboard.page_parts import (
    frame,
    marked,
    named,
    page_number,
    pager,
    section,
    state_mark,
    table,
    text_field,
    tool_href,
    word,
)
from mcp_optimizer.dashboard.visitor import Visitor, visitor_of
from mcp_optimizer.domain.caller import ANYONE, HOLDER, LOCAL_PRINCIPAL, Principal, Risk, RiskClass, Rule
from mcp_optimizer.errors import CatalogError, OptimizerError
from mcp_optimizer.gateway.resolving import meant

if TYPE_CHECKING:
    from mcp_optimizer.db.credentials import StoredKeys
    from mcp_optimizer.domain.credentials import ApiKey

PATH = "/rules"
PAGE_OF_RULES = 200
LONGEST_ASKED = 300


@dataclass(frozen=True)
class RuleQuestion:
    """A question from the form: may a caller call a tool?"""

    caller: str = ""
    tool: str = ""
    server: str = ""
    groups: str = ""
    """Separated by commas."""


@dataclass(frozen=True)
class RuleAnswer:
    """The answer of the rules to the question."""

    server: str
    tool: str
    explanation: Explanation


@dataclass(frozen=True)
class RulesPage:
    """All rules, and their effect on one caller."""

    version: str
    visitor: Visitor
    rules: Sequence[Rule]
    survey: Survey
    caller: str
    """The caller for whom decisions were counted."""
    leaves_out: int = 0
    """Tools that were not counted."""
    asked: RuleQuestion = RuleQuestion()
    answered: RuleAnswer | None = None
    problem: str = ""
    number: int = 1


def rules_page(values: RulesPage) -> str:
    lead = "The first rule of the settings file that matches a call decides; where none does, the call is allowed."
    return frame(
        "Rules",
        el("h1", "Rules"),
        el("p", lead, class_="lead"),
        section("May a caller call a tool?", _question(values), _answer(values)),
        _rules(values),
        _risks(values.survey),
        current=PATH,
        version=values.version,
        visitor=values.visitor,
    )


def _question(values: RulesPage) -> Html:
    asked = values.asked
    return el(
        "form",
        text_field("Caller", "caller", asked.caller or values.caller, "Such as key:ci, local or corp:alice.",
                   maxlength=LONGEST_ASKED),
        text_field("Groups", "groups", asked.groups, "Those that the caller's token names, with commas.",
                   maxlength=LONGEST_ASKED),
        text_field("Tool", "tool", asked.tool, "Its name, or server__tool.", maxlength=LONGEST_ASKED),
        text_field("Server", "server", asked.server, "Only if several have the tool.", maxlength=LONGEST_ASKED),
        el("p", el("button", "Explain", class_="main")),
        action=PATH, method="get", class_="fields",
    )  # fmt: skip


def _answer(values: RulesPage) -> Child:
    if values.problem:
        return el("p", marked(values.problem), class_="bad", role="status")
    if values.answered is None:
        return None
    found = values.answered
    decision = found.explanation.decision
    told: list[tuple[str, Child]] = [("Because", decision.because)]
    told += [(step.about.capitalize(), step.said) for step in found.explanation.steps]
    told += [("Reason", decision.reason)] if decision.reason else []
    told += [("Would change it", change) for change in found.explanation.changes]
    link = el("a", named(found.tool), href=tool_href(found.server, found.tool))
    verdict = el(
        "p", state_mark(decision.effect.value), " ", link, f" of {named(found.server)} for {named(values.caller)}"
    )
    return el("div", verdict, facts([(about, named(str(said), 1_000)) for about, said in told]), class_="answer")


def _rules(values: RulesPage) -> Html:
    counted = values.survey
    note = f"Tools that each decides are counted for {named(values.caller)}; ask about another caller above."
    if values.leaves_out:
        note += f" {values.leaves_out:,} tools of this large catalog are left out."
    begin = (values.number - 1) * PAGE_OF_RULES
    rows: list[tuple[Child, ...]] = [
        (
            str(begin + at + 1),
            state_mark(rule.effect.value),
            _pattern(rule.server),
            _pattern(rule.tool),
            word(rule.risk.value) if rule.risk else _any(),
            _pattern(rule.caller),
            _pattern(rule.group) if rule.group else _any(),
            number(counted.by_rule.get(begin + at, 0)),
            named(rule.reason, 300),
        )
        for at, rule in enumerate(values.rules[begin : begin + PAGE_OF_RULES])
    ]
    titles = ("rule", "effect", "server", "tool", "class", "caller", "group", "#tools", "reason")
    shown = table(titles, rows, "Rules", "stack rules") if rows else el("p", "There are no rules.", class_="empty")
    rest = (
        f"No rule matches {number(counted.by_rule.get(None, 0))} of {number(counted.tools)} tools, so they are allowed"
    )
    rest += f"; the caller's own key rules out {number(counted.by_limits)}." if counted.by_limits else "."
    last = max(1, -(-len(values.rules) // PAGE_OF_RULES))
    asked = {"caller": values.asked.caller, "groups": values.asked.groups}
    pages = pager(PATH, asked, values.number, last, "Pages of rules")
    return section("All rules", shown, el("p", rest, class_="note after"), pages, note=note)


def _pattern(text: str) -> Child:
    return _any() if text == "*" else el("code", named(text))


def _any() -> Html:
    return el("span", "any", class_="note")


def _risks(found: Survey) -> Html:
    sources = list(SOURCES)
    rows = [
        (risk.value, *(_or_dash(found.risks.get(RiskClass(risk, source), 0)) for source in sources)) for risk in Risk
    ]
    titles = ("class", "#your setting", "#annotations", "#name", "#default")
    note = "What tools may do at worst, and what says so. Where nothing does, a tool counts as one that writes."
    return section("Classes of tools", table(titles, rows, "Tools by class and source", "stack"), note=note)


def _or_dash(count: int) -> str:
    return number(count) if count else "–"


_MOST_COUNTED = 20_000
"""Tools that are counted. More would push the decisions of real calls out of the cache."""

_KEY_PREFIX, _HOLDER_PREFIX = "key:", f"{HOLDER}:"


@dataclass(frozen=True)
class RuleSources:
    """The parts that the rules page reads."""

    policy: Policy
    snapshot: Callable[[], Snapshot]
    keys: Callable[[], Awaitable[StoredKeys | None]]
    version: str


class RuleRoutes:
    """Responds with the rules page."""

    def __init__(self, sources: RuleSources, guard: Guard) -> None:
        self._sources = sources
        self._guard = guard

    def routes(self) -> list[Route]:
        return [Route(PATH, self._guard.private(self._rules), methods=["GET"])]

    async def _rules(self, request: Request) -> Response:
        given = request.query_params
        named_fields = ("caller", "tool", "server", "groups")
        caller, tool, server, groups = (given.get(name, "").strip()[:LONGEST_ASKED] for name in named_fields)
        asked = RuleQuestion(caller, tool, server, groups)
        principal = await self._principal(caller)
        if groups:
            told = frozenset(part.strip() for part in groups.split(",") if part.strip())
            principal = replace(principal, groups=told)
        page = await asyncio.to_thread(self._page, asked, principal, given.get("page", "1"), visitor_of(request))
        return HTMLResponse(page)

    async def _principal(self, name: str) -> Principal:
        """A known caller as it is; an unknown one as if it had a token without limits."""
        known = {"": LOCAL_PRINCIPAL, LOCAL_PRINCIPAL.name: LOCAL_PRINCIPAL, ANYONE.name: ANYONE}
        if name in known:
            return known[name]
        try:
            key = await self._key(name)
        except CatalogError:
            key = None
        return key.principal if key is not None else imagined(name, None, Risk.DESTRUCTIVE)

    async def _key(self, name: str) -> ApiKey | None:
        """The valid key that a caller's name means; of a person's keys, the newest."""
        if not name.startswith((_KEY_PREFIX, _HOLDER_PREFIX)) or (stored := await self._sources.keys()) is None:
            return None
        now_ms = time.time_ns() // 1_000_000
        if name.startswith(_KEY_PREFIX):
            return await stored.living_named(name.removeprefix(_KEY_PREFIX), now_ms)
        return await stored.living_of(name.removeprefix(_HOLDER_PREFIX), now_ms)

    def _page(self, asked: RuleQuestion, principal: Principal, wanted: str, visitor: Visitor) -> str:
        sources, snapshot = self._sources, self._sources.snapshot()
        running = snapshot.running
        records = (tool.record for tool in islice(running, _MOST_COUNTED))
        counted = survey(sources.policy, principal, ((one.server, one.name, one.hints) for one in records))
        answered, problem = self._answered(asked, principal, snapshot)
        rules = sources.policy.rulebook.rules
        last = max(1, -(-len(rules) // PAGE_OF_RULES))
        return rules_page(
            RulesPage(
                sources.version,
                visitor,
                rules,
                counted,
                principal.name,
                max(0, len(running) - _MOST_COUNTED),
                asked,
                answered,
                problem,
                page_number(wanted, last),
            )
        )

    def _answered(self, asked: RuleQuestion, principal: Principal, snapshot: Snapshot) -> tuple[RuleAnswer | None, str]:
        if not asked.tool:
            return None, ""
        try:
            tool = meant(snapshot, asked.tool, asked.server or None)
        except OptimizerError as error:
            return None, str(error)
        record = tool.record
        explanation = explain(self._sources.policy, principal, record.server, record.name, record.hints)
        return RuleAnswer(record.server, record.name, explanation), ""
