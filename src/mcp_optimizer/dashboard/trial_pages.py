"""Trying a tool on the dashboard: its form, the call through the gateway, and the result.

Built by the composition root; `guard` admits only visitors who may manage, and their own rules apply. A trial is
recorded in the audit but not in the history, because it is no use by a model.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.dashboard.guard import Guard, form_of, sent_parts
from mcp_optimizer.dashboard.html import Child, Html, el, number
from mcp_optimizer.dashboard.page_parts import (
    button,
    figure,
    frame,
    hidden,
    message_page,
    named,
    section,
    server_page_href,
    text_area,
    tool_href,
)
from mcp_optimizer.dashboard.trial_form import (
    RAW,
    RAW_FORM,
    Control,
    FormField,
    InvalidEntries,
    TrialForm,
    arguments_of,
    entered_for,
    form_for,
    readable_json,
)
from mcp_optimizer.dashboard.visitor import Visitor, visitor_of
from mcp_optimizer.domain.caller import Caller, Risk
from mcp_optimizer.errors import InvalidArguments, OptimizerError, TooManyCalls
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.largejson.raw import has_large, plain
from mcp_optimizer.results.pipeline import RESULT_META_KEY
from mcp_optimizer.results.reader import PAGE_META_KEY
from mcp_optimizer.results.result_texts import Reading

MOST_SHOWN = 200_000
"""Characters of a result on one page."""

_NOT_SENT = "– not sent –"
_LONGEST_LABEL = 100
_FIRST, _FEW = 5, 3
"""Fields that are shown at once, and the number of further fields that does not justify a click."""


@dataclass(frozen=True)
class Trial:
    """A tool, and the form to try it, possibly with entered values."""

    server: str
    tool: str
    form: TrialForm
    entered: Mapping[str, str] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    """The mistakes in entered values, by field."""
    can_switch: bool = False
    """The tool can be turned off on the dashboard."""


@dataclass(frozen=True)
class TrialOutcome:
    """The outcome of a call."""

    texts: Sequence[str] = ()
    is_error: bool = False
    tokens: int | None = None
    milliseconds: int | None = None
    is_cached: bool = False
    rows: int | None = None
    more: str = ""
    """The address of the rest, if the result was cut."""
    full_tokens: int | None = None
    others: Sequence[str] = ()
    """Content that cannot be shown as text."""


def trial_section(trial: Trial) -> Html:
    """The section on the page of the tool."""
    off = None
    if trial.can_switch:
        action, about = server_page_href(trial.server, "disable"), f"{named(trial.tool)} of {named(trial.server)}"
        off = button("Turn this tool off", about, action, hidden("tool", trial.tool))
    note = "The call is made as you, by the rules that hold for you, and recorded in the audit."
    return section(
        "Try it", _form(trial), el("div", off, class_="actions after") if off else None, note=note, id_="try"
    )


def _form(trial: Trial) -> Html:
    href = tool_href(trial.server, trial.tool)
    fields = [_raw(trial)] if trial.form.is_raw else _fields(trial)
    other = (
        el("a", "Enter them in fields", href=f"{href}#try")
        if trial.form.is_raw
        else el("a", "Enter them as JSON", href=f"{href}?as=json#try")
    )
    nothing = el("p", "It takes no arguments.", class_="note") if not fields else None
    return el(
        "form",
        nothing,
        fields,
        hidden("as", "json") if trial.form.is_raw else None,
        el("p", el("button", "Call the tool", class_="main"), other, class_="actions"),
        action=href,
        method="post",
        class_="trial",
    )


def _fields(trial: Trial) -> list[Html]:
    """The first fields; the others appear on a click, unless one of them has a value."""
    every = trial.form.fields
    first = max(_FIRST, sum(one.is_required for one in every))
    shown, rest = every[:first], every[first:]
    if len(rest) < _FEW:
        return [_field(one, trial) for one in every]
    is_used = any(trial.entered.get(one.key) or one.key in trial.problems for one in rest)
    summary = el("summary", f"{len(rest)} more arguments, none of them required")
    folded = el("details", summary, [_field(one, trial) for one in rest], open=is_used)
    return [*(_field(one, trial) for one in shown), folded]


def _raw(trial: Trial) -> Html:
    area = text_area(RAW, trial.entered.get(RAW, "{}"), rows=8, class_="code", **_about(RAW, "", trial))
    return el("p", el("label", "Arguments, as a JSON object", for_=RAW), area, _wrong(RAW, trial))


def _field(one: FormField, trial: Trial) -> Html:
    required = el("span", " required", class_="mark") if one.is_required else None
    kind = None if one.control in (Control.TEXT, Control.CHOICE) else el("span", f" {_told(one)}", class_="note")
    note = el("span", one.description, class_="note about", id=f"{one.key}-note") if one.description else None
    label = el("label", el("strong", named(one.name)), kind, required, for_=one.key)
    return el("p", label, note, _control(one, trial), _wrong(one.key, trial))


def _told(one: FormField) -> str:
    if one.control is Control.LINES and one.item is not Control.TEXT:
        return f"{one.control}, each a {one.item}"
    return str(one.control)


def _wrong(key: str, trial: Trial) -> Html | None:
    problem = trial.problems.get(key)
    return el("span", problem, class_="bad", id=f"{key}-wrong", role="alert") if problem else None


def _about(key: str, description: str, trial: Trial) -> dict[str, object]:
    """Attributes that describe a control to screen readers."""
    wrong = f"{key}-wrong" if key in trial.problems else ""
    described = " ".join(part for part in (f"{key}-note" if description else "", wrong) if part)
    return {"aria_describedby": described or None, "aria_invalid": "true" if wrong else None}


def _control(one: FormField, trial: Trial) -> Html:
    value, about = trial.entered.get(one.key, ""), _about(one.key, one.description, trial)
    if one.control in (Control.CHOICE, Control.BOOLEAN):
        return _choice(one, value, about)
    rows = {Control.JSON: 4, Control.LINES: 3, Control.TEXT: 1}.get(one.control)
    is_code = one.control is Control.JSON
    shown: dict[str, object] = {"placeholder": one.default or None, **about}
    if rows is not None:
        return text_area(one.key, value, rows=rows, class_="code" if is_code else None, **shown)
    mode = "numeric" if one.control is Control.INTEGER else "decimal"
    return el("input", id=one.key, name=one.key, type="text", inputmode=mode, value=value, autocomplete="off",
              required=one.is_required, **shown)  # fmt: skip


def _choice(one: FormField, value: str, about: Mapping[str, object]) -> Html:
    texts = ("true", "false") if one.control is Control.BOOLEAN else one.choices
    default = f" (default: {_label(one.default)})" if one.default else ""
    none = el("option", f"{_NOT_SENT}{default}", value="") if not one.is_required else None
    chosen = value or (one.default if one.is_required else "")
    options = [el("option", _label(text), value=text, selected=text == chosen) for text in texts]
    return el("select", none, options, id=one.key, name=one.key, **about)


def _label(text: str) -> str:
    """A choice for people: texts without quotes, unless they would read as another value."""
    value = json.loads(text)
    is_clear = isinstance(value, str) and value and value not in ("true", "false", "null") and not value[0].isdigit()
    return named(value if is_clear else text, _LONGEST_LABEL)


# Results.


def trial_page(trial: Trial, body: Child, version: str, visitor: Visitor) -> str:
    """The page after a call, with the form to try again."""
    href = tool_href(trial.server, trial.tool)
    return frame(
        trial.tool,
        el("h1", named(trial.tool)),
        el("p", "of ", el("a", named(trial.server), href=server_page_href(trial.server)), " · ",
           el("a", "its definition", href=href), class_="lead"),
        body,
        trial_section(trial),
        version=version,
        visitor=visitor,
    )  # fmt: skip


def wrong_part(problem: str) -> Html:
    """The message about a call that was not made or failed."""
    return el("div", el("p", el("strong", "It did not work.")), el("pre", problem, tabindex="0"),
              class_="notice bad", role="alert")  # fmt: skip


def question_part(trial: Trial, arguments: str) -> Html:
    """Asks before calling a tool that may destroy something. Shows exactly what is sent."""
    yes = button("Yes, call it", named(trial.tool), tool_href(trial.server, trial.tool), hidden("as", "json"),
                 hidden(RAW, arguments), hidden("sure", "yes"), is_main=True)  # fmt: skip
    return el(
        "div",
        el("p", el("strong", "This tool may change or delete data permanently."), " Call it with these arguments?"),
        el("pre", el("code", arguments), tabindex="0"),
        el("div", yes, el("a", "No", href=tool_href(trial.server, trial.tool), class_="button"), class_="actions"),
        class_="notice asks",
        role="alert",
    )


def outcome_part(outcome: TrialOutcome) -> Html:
    """The result of the tool, and its cost for a model."""
    figures = []
    if outcome.tokens is not None:
        whole = f"cut from {number(outcome.full_tokens)}" if outcome.full_tokens else "for a model to read"
        figures.append(figure("Tokens", number(outcome.tokens), whole))
    if outcome.milliseconds is not None:
        note = "from the cache" if outcome.is_cached else "until the server answered"
        figures.append(figure("Took", f"{number(outcome.milliseconds)} ms", note))
    if outcome.rows is not None:
        figures.append(figure("Rows", number(outcome.rows), "of the table in it"))
    title = "The tool reported an error" if outcome.is_error else "Result"
    more = el("p", el("a", "Read on", href=outcome.more, class_="button"), class_="actions") if outcome.more else None
    return section(
        title,
        el("dl", figures, class_="figures") if figures else None,
        [_text(text, outcome.is_error) for text in outcome.texts],
        [el("p", other, class_="note") for other in outcome.others],
        None if outcome.texts or outcome.others else el("p", "It returned nothing.", class_="empty"),
        more,
        css="outcome",
        id_="result",
    )


def _text(text: str, is_error: bool) -> Html:
    shown = text[:MOST_SHOWN]
    rest = len(text) - len(shown)
    cut = el("p", f"{rest:,} more characters are not shown here.", class_="note") if rest else None
    return el("div", el("pre", shown, tabindex="0", class_="bad" if is_error else None), cut)


def more_page(outcome: TrialOutcome, version: str, visitor: Visitor) -> str:
    """The next part of a result that was cut."""
    return frame("More of a result", el("h1", "More of a result"), outcome_part(outcome), version=version,
                 visitor=visitor)  # fmt: skip


PATH = "/tools"
MORE = "/results"
_LARGEST = 2_000_000
"""Bytes of a form with arguments."""
_MOST_OTHERS = 20


@dataclass(frozen=True)
class TrialSources:
    """The parts that trying a tool needs."""

    gateway: Gateway
    can_switch: bool
    """Tools can be turned off on the dashboard."""
    version: str


class TrialRoutes:
    """Makes forms and calls, and shows the results."""

    def __init__(self, sources: TrialSources, guard: Guard) -> None:
        self._sources = sources
        self._guard = guard

    def routes(self) -> list[Route]:
        return [
            Route(f"{PATH}/{{server}}/{{tool:path}}", self._guard.action(self._call), methods=["POST"]),
            Route(f"{MORE}/{{rest:path}}", self._guard.private(self._more), methods=["GET"]),
        ]

    def section(self, tool: CatalogTool, request: Request) -> Html | None:
        """The form on the page of the tool, for visitors who may call it."""
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
        except InvalidEntries as wrong:
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
        """`/results/ID`: the rest of a result, for the visitor who made the call."""
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
    """A caller for this visitor's principal only, so that no other caller can read its kept results."""
    principal = visitor_of(request).principal
    return Caller("dashboard", f"dashboard {principal.id}", principal=principal)


def _filled(trial: Trial, arguments: Mapping[str, Any]) -> Trial:
    """The form with the arguments that were sent; as JSON, if its fields cannot show them."""
    fields: TrialForm = trial.form
    entered = entered_for(fields, arguments)
    if entered is None:
        return replace(trial, form=RAW_FORM, entered={RAW: readable_json(arguments)})
    return replace(trial, entered=entered)


def outcome_of(result: dict[str, Any]) -> TrialOutcome:
    """The parts of a result that a person sees."""
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
    """Images, audio and other data, in words."""
    found = []
    for block in blocks[:_MOST_OTHERS]:
        said = _object(block)
        held = said if "data" in said else _object(said.get("resource"))
        if isinstance(body := held.get("data", held.get("blob")), str):
            kind = named(str(held.get("mimeType", said.get("type", "data"))), 80)
            found.append(f"{kind}, about {len(body) * 3 // 4:,} bytes, which this page does not show.")
    return found
