"""Makes the tool calls of one script: limits their number, applies the rules, records their outcomes, and packs their
results.

Each is a gateway call on behalf of the script's caller, with the tool's own parameter names, so rules, pins, rates,
deadlines, the cache and the audit apply as to any call. The client gets progress notifications. Called by the run of a
script; knows nothing of workers.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial
from typing import Any

import pydantic_core

from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.catalog.learned_shapes import has_envelope
from mcp_optimizer.catalog.tool_forms import Detail
from mcp_optimizer.compression.validation import SchemaCheck
from mcp_optimizer.domain.caller import Caller, Risk
from mcp_optimizer.domain.extensions import is_input_required
from mcp_optimizer.domain.json_schema import properties_of
from mcp_optimizer.domain.own_tools import ScriptMode
from mcp_optimizer.domain.tools import Definition
from mcp_optimizer.errors import OptimizerError, quoted
from mcp_optimizer.gateway.found_tools import entry
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.gateway.nested_calls import answered
from mcp_optimizer.largejson.raw import RawJson
from mcp_optimizer.limits import Limits
from mcp_optimizer.results.result_texts import NO_JSON, Reading, Text, size_of
from mcp_optimizer.scripts.names import Parameter, Toolbox, parameters_of

# Packs a tool's result into one text for the script; the worker unpacks it. Contains the structured content if the
# tool declares it, otherwise the text, as JSON where it is JSON. The first letter is `j` for JSON or possible JSON,
# `t` for plain text, `r` for JSON in an envelope: the script gets the content of the envelope, as the tool's stub
# describes.

_INLINE = 64 * 1024
"""Characters that are packed directly. Larger results are packed in a thread."""


class TooLarge(Exception):
    """The result has more bytes than a script may receive."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size:,} bytes")


class DeclaredResult(Enum):
    """The kind of result that a tool's output schema declares."""

    NOTHING = "nothing"
    RESULT = "result"
    ENVELOPE = "envelope"


def declared_by(definition: Definition) -> DeclaredResult:
    """The kind of result that a tool declares."""
    if definition.details.output_schema is None:
        return DeclaredResult.NOTHING
    return DeclaredResult.ENVELOPE if has_envelope(definition) else DeclaredResult.RESULT


async def packed(result: Mapping[str, Any], declared: DeclaredResult, most: int) -> str:
    """The packed text for the worker; raises TooLarge."""
    reading = Reading(result)
    size = _size(reading)
    if size > most:
        raise TooLarge(size)
    if size > _INLINE:
        return await asyncio.to_thread(_packed, reading, declared)
    return _packed(reading, declared)


def _size(reading: Reading) -> int:
    structured = reading.structured
    large = len(structured.json) if isinstance(structured, RawJson) else 0
    return max(reading.size, large)


def _packed(reading: Reading, declared: DeclaredResult) -> str:
    if reading.structured is not NO_JSON and (declared is not DeclaredResult.NOTHING or not reading.slots):
        kind = "r" if declared is DeclaredResult.ENVELOPE else "j"
        return f"{kind}{_valid(_plain(reading.structured_text))}"
    texts = [_plain(slot.text) for slot in reading.slots]
    if len(texts) == 1 and texts[0].lstrip(" \t\r\n")[:1] in ("{", "["):
        return f"j{_valid(texts[0])}"
    if not texts and reading.blocks:
        return f"t{_kinds(reading)}"
    return f"t{_valid(chr(10).join(texts))}"


def error_text(result: Mapping[str, Any], longest: int) -> str:
    """The tool's own description of its failure."""
    reading = Reading(result)
    if size_of_all(reading.texts) > 10 * longest:
        text = "".join(_beginning(one, longest) for one in reading.texts[:3])
    else:
        text = "\n".join(map(_plain, reading.texts))
    text = _valid(text.strip()) or "The tool failed and did not say why."
    return text if len(text) <= longest else f"{text[:longest]}…"


def size_of_all(texts: list[Text]) -> int:
    return sum(map(size_of, texts))


def _beginning(text: Text, size: int) -> str:
    return text[:size] if isinstance(text, str) else text.beginning(size)


def _plain(text: Text) -> str:
    return text if isinstance(text, str) else text.parsed()


def _valid(text: str) -> str:
    """The text without unpaired surrogates, which cannot be encoded."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _kinds(reading: Reading) -> str:
    kinds = [str(block.get("type", "?"))[:40] for block in reading.blocks if isinstance(block, Mapping)]
    return f"[{', '.join(kinds[:10])}: not text]"


_MOST_NAMED = 9


class CallFailed(Exception):
    """A call failed. Raised in the script as ToolError with this text, so the script can handle it."""


def as_given(item: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """One element of the list for `parallel`: an object of arguments, or a single argument."""
    return ((), item) if isinstance(item, dict) else ((item,), {})


def arguments_of(tool: CatalogTool, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments under the tool's own names, without each None that means "not given". Raises CallFailed."""
    known: Sequence[Parameter] = parameters_of(tool)
    own = {parameter.python: parameter.own for parameter in known}
    names = set(own.values())
    first = args[0] if len(args) == 1 and not kwargs else None
    if isinstance(first, dict) and (not known or first.keys() <= names | own.keys()):
        args, kwargs = [], first
    if len(args) > len(known):
        raise CallFailed(f"{tool.record.name} takes {len(known)} arguments, not {len(args)}: {_few(own)}.")
    arguments = {name if name in names else own.get(name, name): value for name, value in kwargs.items()}
    for parameter, value in zip(known, args, strict=False):
        if parameter.own in arguments:
            raise CallFailed(f"{tool.record.name} got {quoted(parameter.python)} twice.")
        arguments[parameter.own] = value
    if None in arguments.values():
        return _without_nothing(arguments, tool.record.definition, known)
    return arguments


def _without_nothing(
    arguments: Mapping[str, Any], definition: Definition, known: Sequence[Parameter]
) -> dict[str, Any]:
    optional = {parameter.own for parameter in known if not parameter.is_required}
    return {
        name: value
        for name, value in arguments.items()
        if value is not None or name not in optional or _takes_null(definition, name)
    }


@lru_cache(maxsize=1_024)
def _takes_null(definition: Definition, name: str) -> bool:
    """Whether a parameter may be null, as far as its schema shows; some tools give null a meaning of its own."""
    schema = definition.details.input_schema
    of_one = {**schema, "properties": {name: properties_of(schema)[name]}, "required": []}
    return SchemaCheck(of_one).admits({name: None})


def _few(names: Mapping[str, str]) -> str:
    return ", ".join(list(names)[:_MOST_NAMED]) or "none"


_FOUND = 10
"""Tools that `find` returns."""

_NOT_ARGUMENTS = "These are no arguments of a call."


class TooManyInnerCalls(Exception):
    """The script has used up its calls and ends."""


class CallOutcome(Enum):
    """The outcome of a call."""

    BEGUN = "was not finished"
    DONE = "done"
    FAILED = "failed"


@dataclass
class CallNote:
    """The record of one call."""

    name: str
    changes: bool
    outcome: CallOutcome = CallOutcome.BEGUN

    def done(self) -> None:
        """The tool returned a result."""
        self.outcome = CallOutcome.DONE

    def failed(self) -> None:
        """The call failed, or its result reports an error."""
        self.outcome = CallOutcome.FAILED


@dataclass(frozen=True)
class AllowedTools:
    """The tools that a script may call, in addition to the limits of its caller."""

    mode: ScriptMode
    named: frozenset[tuple[str, str]] = frozenset()
    """The tools that the request allows to change something."""

    def refusal(self, spelling: str, tool: CatalogTool, risk: Risk) -> str | None:
        """Why a tool may not be called; None if it may."""
        if risk is Risk.READ:
            return None
        if self.mode is not ScriptMode.WRITE:
            return f"{spelling} counts as {risk}, and scripts may only read here. Use call_tool for it."
        if tool.key in self.named:
            return None
        return f"{spelling} counts as {risk}. If that is wanted, run the script with may_change: [{spelling!r}]."


class InnerCalls:
    """The calls of one script."""

    def __init__(
        self,
        gateway: Gateway,
        toolbox: Toolbox,
        caller: Caller,
        allowed: AllowedTools,
        limits: Limits,
        told: Callable[[str], Awaitable[None]],
    ) -> None:
        self._gateway = gateway
        self._toolbox = toolbox
        self._caller = caller
        self._allowed = allowed
        self._limits = limits
        self._told = told
        self._at_once = asyncio.Semaphore(limits.script_parallel)
        self._asked = 0
        self.notes: list[CallNote] = []
        self.tokens = 0
        """Tokens of the results. None of these results goes to the model."""

    async def call(self, name: str, given: str) -> str:
        """Makes one call; returns its result for the worker. `given`: JSON of positional and keyword arguments."""
        self._count(1)
        self._refuse_size(name, given)
        match pydantic_core.from_json(given):
            case [list(args), dict(kwargs)]:
                tool = await self._tool(name)
                return await self._made(tool, arguments_of(tool, args, kwargs))
        raise CallFailed(_NOT_ARGUMENTS)

    async def parallel(self, name: str, given: str) -> str:
        """Makes one call per element of a list of arguments and returns the list of results for the worker. Every call
        is made, even if another fails.
        """
        self._refuse_size(name, given)
        items = pydantic_core.from_json(given)
        if not isinstance(items, list):
            raise CallFailed(_NOT_ARGUMENTS)
        self._count(len(items))
        tool = await self._tool(name)
        room = self._limits.script_result_bytes

        async def one(item: Any) -> str:
            nonlocal room
            text = await self._made(tool, arguments_of(tool, *as_given(item)))
            room -= len(text)
            # Dropped at once rather than held until the other calls end: together the results may exceed the memory.
            return text if room >= 0 else ""

        made = await asyncio.gather(*map(one, items), return_exceptions=True)
        failed = [(number, error) for number, error in enumerate(made) if isinstance(error, BaseException)]
        for _, error in failed:
            if not isinstance(error, CallFailed):
                raise error
        if failed:
            number, error = failed[0]
            raise CallFailed(f"{len(failed)} of {len(made)} calls failed. Number {number}: {error}")
        texts = [text for text in made if isinstance(text, str)]
        if room < 0:
            raise CallFailed(f"The results of {name[:100]} are larger than a script receives at a time.")
        return pydantic_core.to_json(texts).decode()

    async def find(self, text: str, _given: str) -> str:
        """The tools that match a text, as the script would spell them."""
        self._count(1)
        try:
            wanted = text[: self._limits.query]
            found = await self._gateway.search(wanted, "", _FOUND, Detail.SIGNATURE, self._caller)
        except OptimizerError as error:
            raise CallFailed(str(error)) from None
        tools = [{**entry(hit.tool), "name": self._toolbox.spelling(hit.tool)} for hit in found.tools]
        return f"j{pydantic_core.to_json(tools).decode()}"

    def _count(self, number: int) -> None:
        self._asked += number
        if self._asked > self._limits.script_calls:
            raise TooManyInnerCalls(f"A script makes at most {self._limits.script_calls:,} calls.")

    def _refuse_size(self, name: str, given: str) -> None:
        if len(given) > self._limits.script_argument_bytes or len(name) > self._limits.identifier:
            raise CallFailed(
                f"The arguments of {quoted(name[:100])} have more than {self._limits.script_argument_bytes:,} bytes."
            )

    async def _tool(self, name: str) -> CatalogTool:
        """The tool that a name means, in the spelling of scripts or any spelling that call_tool accepts."""
        if (tool := self._toolbox.named(name)) is None:
            try:
                tool = await self._gateway.permissions.resolve(self._gateway.snapshot, name, None, self._caller)
            except OptimizerError as error:
                raise CallFailed(str(error)) from None
        if self._gateway.built_in.has(tool.server):
            raise CallFailed("A script cannot call stored scripts.")
        spelling = self._toolbox.spelling(tool)
        risk = self._gateway.permissions.views.decide(self._caller, tool).risk.risk
        if (refusal := self._allowed.refusal(spelling, tool, risk)) is not None:
            raise CallFailed(refusal)
        return tool

    async def _made(self, tool: CatalogTool, arguments: Mapping[str, Any]) -> str:
        async with self._at_once:
            risk = self._gateway.permissions.views.decide(self._caller, tool).risk.risk
            note = CallNote(self._toolbox.spelling(tool), risk is not Risk.READ)
            self.notes.append(note)
            try:
                result = await answered(partial(self._once, tool, arguments), self._caller)
            except OptimizerError as error:
                note.failed()
                raise CallFailed(f"{note.name}: {_bounded(str(error), self._limits.error_text)}") from None
            return await self._received(result, tool, note)

    async def _once(self, tool: CatalogTool, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        # The server may have changed the tool since the script began, so the gateway checks its risk class again.
        most = self._allowed.mode.most if tool.key in self._allowed.named else Risk.READ
        return await self._gateway.call(tool.record.name, arguments, tool.server, caller, most=most, whole=True)

    async def _received(self, result: Mapping[str, Any], tool: CatalogTool, note: CallNote) -> str:
        self.tokens += _tokens(result)
        if result.get("isError") or is_input_required(result):
            note.failed()
            raise CallFailed(f"{note.name}: {error_text(result, self._limits.error_text)}")
        note.done()
        await self._told(note.name)
        try:
            return await packed(result, declared_by(tool.record.definition), self._limits.script_result_bytes)
        except TooLarge as error:
            raise CallFailed(
                f"{note.name}: the call was made, and its result has {error}; a script receives at most "
                f"{self._limits.script_result_bytes:,}. Ask for less at a time."
            ) from None

    @property
    def changes(self) -> int:
        """How many calls changed something."""
        return sum(note.changes and note.outcome is CallOutcome.DONE for note in self.notes)

    def summary(self) -> str:
        """Lists the calls that were made, so that the model can decide how to continue."""
        if not self.notes:
            return "No tool was called."
        made = Counter(note.name for note in self.notes)
        were = "1 call was" if len(self.notes) == 1 else f"{len(self.notes)} calls were"
        said = [f"{were} made: {_named(made)}."]
        changed = Counter(note.name for note in self.notes if note.changes and note.outcome is CallOutcome.DONE)
        if changed:
            said.append(f"{changed.total()} of them changed something: {_named(changed)}. Do not repeat these.")
        unsure = Counter(note.name for note in self.notes if note.changes and note.outcome is not CallOutcome.DONE)
        if unsure:
            said.append(f"Unsure, because they failed or were not finished: {_named(unsure)}. Look before you repeat.")
        if not changed and not unsure:
            said.append("Nothing was changed.")
        return " ".join(said)


def _named(counts: Mapping[str, int], most: int = 10) -> str:
    said = [name if count == 1 else f"{name} ({count} times)" for name, count in list(counts.items())[:most]]
    return ", ".join(said) + (f" and {len(counts) - most} more" if len(counts) > most else "")


def _bounded(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"


def _tokens(result: Mapping[str, Any]) -> int:
    meta = result.get("_meta")
    tokens = meta.get("tokens") if isinstance(meta, Mapping) else None
    counted = tokens.get("estimated") if isinstance(tokens, Mapping) else None
    return counted if isinstance(counted, int) else 0
