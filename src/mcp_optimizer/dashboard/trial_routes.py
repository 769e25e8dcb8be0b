"""Trying tools on the dashboard: a call by a person, through the gateway, with the rules that hold for that person.

Built by the composition root; `guard` lets only those call who may manage. A trial is in the audit, but not in the
history: it is not use by a model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.dashboard.fields import named
from mcp_optimizer.dashboard.forms import form_of, sent_parts
from mcp_optimizer.dashboard.guard import Guard
from mcp_optimizer.dashboard.html import Child, Html
from mcp_optimizer.dashboard.parts import message_page
from mcp_optimizer.dashboard.trial_fields import RAW, RAW_FORM, TrialForm, WrongEntries
from mcp_optimizer.dashboard.trial_form import form_for
from mcp_optimizer.dashboard.trial_pages import (
    Trial,
    TrialOutcome,
    more_page,
    outcome_part,
    question_part,
    trial_page,
    trial_section,
    wrong_part,
)
from mcp_optimizer.dashboard.trial_values import arguments_of, entered_for, readable_json
from mcp_optimizer.dashboard.visitor import visitor_of
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.principal import Risk
from mcp_optimizer.errors import InvalidArguments, OptimizerError, TooManyCalls
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.largejson.raw import has_large, plain
from mcp_optimizer.results.pipeline import RESULT_META_KEY
from mcp_optimizer.results.reader import PAGE_META_KEY
from mcp_optimizer.results.reading import Reading

PATH = "/tools"
MORE = "/results"
_LARGEST = 2_000_000
"""Bytes of a form with arguments."""
_MOST_OTHERS = 20


@dataclass(frozen=True)
class TrialSources:
    """The parts that trying a tool uses."""

    gateway: Gateway
    can_switch: bool
    """Tools can be turned off here."""
    version: str


class TrialRoutes:
    """Makes forms, makes calls, and shows what came of them."""

    def __init__(self, sources: TrialSources, guard: Guard) -> None:
        self._sources = sources
        self._guard = guard

    def routes(self) -> list[Route]:
        return [
            Route(f"{PATH}/{{server}}/{{tool:path}}", self._guard.action(self._call), methods=["POST"]),
            Route(f"{MORE}/{{rest:path}}", self._guard.private(self._more), methods=["GET"]),
        ]

    def section(self, tool: CatalogTool, request: Request) -> Html | None:
        """The form, on the page of the tool, for those who may call it here."""
        if not visitor_of(request).can_manage:
            return None
        return trial_section(self._trial(tool, is_raw=request.query_params.get("as") == "json"))

    def _trial(self, tool: CatalogTool, *, is_raw: bool = False) -> Trial:
        form = RAW_FORM if is_raw else form_for(tool.record.details.input_schema)
        return Trial(tool.server, tool.record.name, form, can_switch=self._sources.can_switch)

    async def _call(self, request: Request) -> Response:
        server, *rest = sent_parts(request, PATH)
        snapshot = self._sources.gateway.snapshot
        position = snapshot.names.position(server, "/".join(rest))
        tool = snapshot.tools[position] if position is not None else None
        if tool is None:
            text = f"No running server called {named(server)} has this tool."
            return self._message("No such tool", text, 404, request)
        fields = await form_of(request, _LARGEST)
        if fields is None:
            return self._message("Too large", "The form is larger than a tool's arguments may be here.", 413, request)
        # In a thread: schemas and arguments may be large.
        trial = await asyncio.to_thread(self._trial, tool, is_raw=fields.get("as") == "json")
        try:
            arguments = await asyncio.to_thread(arguments_of, trial.form, fields)
        except WrongEntries as wrong:
            again = replace(trial, entered=fields, problems=wrong.problems)
            return self._page(request, again, None, 400)
        trial = await asyncio.to_thread(_filled, trial, arguments)
        caller = _caller(request)
        risk = self._sources.gateway.permissions.views.decide(caller, tool).risk.risk
        if risk is Risk.DESTRUCTIVE and fields.get("sure") != "yes":
            return self._page(request, trial, question_part(trial, readable_json(arguments)))
        try:
            result = await self._sources.gateway.call(tool.record.name, arguments, tool.server, caller)
            outcome = await asyncio.to_thread(outcome_of, result)
        except InvalidArguments as error:
            told = "The arguments do not fit the tool's schema:\n" + "\n".join(error.problems)
            return self._page(request, trial, wrong_part(told), 400)
        except OptimizerError as error:
            return self._page(request, trial, wrong_part(str(error)), 502)
        return self._page(request, trial, outcome_part(outcome))

    async def _more(self, request: Request) -> Response:
        """`/results/ID`: the rest of a result, for whoever made the call."""
        [result_id, *_] = sent_parts(request, MORE)
        offset = request.query_params.get("offset", "0")
        caller = _caller(request)
        try:
            begin = int(offset) if offset.isdecimal() and len(offset) < 16 else 0
            self._sources.gateway.permissions.take_turn(caller)
            found = await self._sources.gateway.results.read(result_id, caller, offset=begin)
            outcome = await asyncio.to_thread(outcome_of, found)
        except TooManyCalls as error:
            return self._message("Not now", str(error), 429, request)
        except OptimizerError as error:
            return self._message("There is no more", str(error), 404, request)
        return HTMLResponse(more_page(outcome, self._sources.version, visitor_of(request)))

    def _page(self, request: Request, trial: Trial, body: Child, status: int = 200) -> Response:
        page = trial_page(trial, body, self._sources.version, visitor_of(request))
        return HTMLResponse(page, status_code=status)

    def _message(self, title: str, text: str, status: int, request: Request) -> Response:
        page = message_page(title, text, version=self._sources.version, visitor=visitor_of(request))
        return HTMLResponse(page, status_code=status)


def _caller(request: Request) -> Caller:
    """Nobody else reads what is kept for this one."""
    principal = visitor_of(request).principal
    return Caller("dashboard", f"dashboard {principal.id}", principal=principal)


def _filled(trial: Trial, arguments: Mapping[str, Any]) -> Trial:
    """The form as it was sent; as JSON, if its fields cannot show it."""
    fields: TrialForm = trial.form
    entered = entered_for(fields, arguments)
    if entered is None:
        return replace(trial, form=RAW_FORM, entered={RAW: readable_json(arguments)})
    return replace(trial, entered=entered)


def outcome_of(result: dict[str, Any]) -> TrialOutcome:
    """What a person sees of a result."""
    result = plain(result) if has_large(result) else result
    meta = _object(result.get("_meta"))
    tokens, performance, data = (_object(meta.get(part)) for part in ("tokens", "performance", "data"))
    cut = _object(meta.get(RESULT_META_KEY)) or _object(meta.get(PAGE_META_KEY))
    reading = Reading(result)
    more = ""
    if (result_id := cut.get("resultId")) and (begin := cut.get("nextOffset")) is not None:
        more = f"{MORE}/{quote(str(result_id), safe='')}?offset={begin}"
    return TrialOutcome(
        [str(text) for text in reading.texts],
        bool(result.get("isError")),
        tokens.get("estimated"),
        performance.get("executionTimeMs"),
        bool(performance.get("cachedResult")),
        data.get("rowCount"),
        more,
        cut.get("fullTokens"),
        _others(reading.blocks),
    )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _others(blocks: list[Any]) -> list[str]:
    """Pictures, sounds and other data, in words."""
    found = []
    for block in blocks[:_MOST_OTHERS]:
        said = _object(block)
        held = said if "data" in said else _object(said.get("resource"))
        if isinstance(body := held.get("data", held.get("blob")), str):
            kind = named(str(held.get("mimeType", said.get("type", "data"))), 80)
            found.append(f"{kind}, about {len(body) * 3 // 4:,} bytes, which this page does not show.")
    return found
