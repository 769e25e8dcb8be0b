"""A recording says who did what and how it ended, keeps no arguments and no results, and costs next to nothing."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.access.audit.audit_file import AuditOptions
from mcp_optimizer.access.audit.recording import digest_of_arguments, digest_of_result, recording, trace_id, used_by
from mcp_optimizer.access.audit.trail import AuditTrail
from mcp_optimizer.domain.audit import AuditEntry
from mcp_optimizer.domain.caller import LOCAL, Caller, Decision, Effect, Principal, Risk, RiskClass
from mcp_optimizer.errors import CallRefused, CallTimeout, InvalidRequest, UpstreamRefusal
from mcp_optimizer.largejson.raw import LargeText
from tests.unit.access.audit.test_trail import Table, trail_of

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
ALICE = Principal("token:x alice", "corp:alice", tenant="acme")
CALLER = Caller(
    "cli\x1b[2J", "k", passed_on={"_meta": {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}}, principal=ALICE
)
ASKED = Decision(Effect.ASK, "rule 2 of the settings", RiskClass(Risk.WRITE, "annotations"))
DENIED = Decision(Effect.DENY, "the key's servers", RiskClass(Risk.DESTRUCTIVE, "name"))


class Collected(AuditTrail):
    """A trail that only collects."""

    def __init__(self, **options: Any) -> None:
        super().__init__(AuditOptions(file=Path("unused"), **options), None)
        self._added: list[AuditEntry] = []
        self.is_on = True

    @property
    def entries(self) -> list[AuditEntry]:
        self.afterwards.finish()
        return self._added

    def add(self, entry: AuditEntry) -> None:
        self.afterwards.finish()
        self._added.append(entry)


def text_result(text: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **more}


def act(
    trail: AuditTrail,
    error: BaseException | None = None,
    result: dict[str, Any] | None = None,
    decision: Decision | None = None,
) -> None:
    with recording(trail, CALLER, "tools/call") as record:
        if decision is not None:
            record.decided(decision)
        if result is not None:
            record.result(result)
        if error is not None:
            raise error


def test_an_entry_says_who_did_what_and_what_allowed_it() -> None:
    trail = Collected()
    with recording(trail, CALLER, "tools/call") as record:
        record.about("github", "create_issue", "d1", {"b": 1, "a": "secret"})
        record.decided(ASKED)
        record.approved_by("corp:alice")
        record.result(text_result("done", _meta={"tokens": {"estimated": 7}}))
    [entry] = trail.entries
    assert (entry.caller, entry.tenant, entry.client) == ("corp:alice", "acme", "cli")
    assert (entry.method, entry.server, entry.tool) == ("tools/call", "github", "create_issue")
    assert (entry.risk, entry.decision, entry.rule) == ("write", "ask", "rule 2 of the settings")
    assert (entry.approved_by, entry.outcome, entry.definition_hash) == ("corp:alice", "ok", "d1")
    assert (entry.arguments_bytes, entry.arguments, entry.result_tokens) == (20, None, 7)
    assert (entry.trace_id, len(entry.session)) == (TRACE, 16)
    assert abs(entry.at_ms / 1_000 - time.time()) < 60
    assert "secret" not in repr(entry)
    assert "done" not in repr(entry)


def test_arguments_are_kept_if_that_is_wanted_and_cut() -> None:
    trail = Collected(arguments=True)
    with recording(trail, CALLER, "tools/call") as record:
        record.about("s", "t", "", {"a": "secret" * 10_000})
    assert trail.entries[0].arguments is not None
    assert len(trail.entries[0].arguments) == 10_000


@pytest.mark.parametrize(
    ("error", "result", "expected"),
    [
        (None, text_result("x"), "ok"),
        (None, text_result("x", isError=True), "tool error"),
        (None, {"resultType": "input_required"}, "input required"),
        (None, None, "ok"),
        (CallTimeout("s", "too slow"), None, "timeout"),
        (UpstreamRefusal("s", -32000, "no"), None, "refused"),
        (InvalidRequest("wrong"), None, "bad request"),
        (asyncio.CancelledError(), None, "cancelled"),
        (ZeroDivisionError(), None, "failed"),
    ],
)
def test_the_outcome_is_that_of_the_call(
    error: BaseException | None, result: dict[str, Any] | None, expected: str
) -> None:
    trail = Collected()
    with suppress(asyncio.CancelledError, Exception):
        act(trail, error, result)
    assert trail.entries[0].outcome == expected


def test_a_refused_call_is_recorded_as_denied_by_a_rule_or_declined_by_a_person() -> None:
    trail = Collected()
    refusal = CallRefused("drop", "db", "rule 1 denies it")
    with pytest.raises(CallRefused):
        act(trail, refusal, decision=DENIED)
    with pytest.raises(CallRefused):
        act(trail, refusal, decision=ASKED)
    assert [(entry.decision, entry.risk, entry.outcome) for entry in trail.entries] == [
        ("deny", "destructive", "denied"),
        ("ask", "write", "declined"),
    ]


def test_a_trail_that_fails_does_not_fail_the_call(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Collected):
        def add(self, entry: AuditEntry) -> None:
            raise ZeroDivisionError

    with recording(Failing(), CALLER, "tools/call") as record:
        answer = record.result(text_result("x"))
    assert answer == text_result("x")
    assert "Cannot record" in caplog.text


def test_without_a_trail_nothing_is_made_of_it() -> None:
    with recording(None, CALLER, "tools/call") as record:
        record.about("s", "t", "", object())
        assert record.result({"content": []}) == {"content": []}


def test_arguments_have_one_hash_in_whatever_order_they_come() -> None:
    one, other = {"a": [1, {"x": 1, "y": 2}], "b": "ü\ud800"}, {"b": "ü\ud800", "a": [1, {"y": 2, "x": 1}]}
    assert digest_of_arguments(one) == digest_of_arguments(other)
    assert digest_of_arguments(one).hash != digest_of_arguments({**one, "b": "u"}).hash
    assert digest_of_arguments({"a": 1}).json == b'{"a":1}'
    for value in ('"\\/\x00\x1f\x7f é\u2028\ud800😀', 10**30, -1, True, None, 1.5, 1e300):
        plain, sorted_too = digest_of_arguments({"a": value}), digest_of_arguments({"a": [value]})
        assert plain.text[5:-1] == sorted_too.text[6:-2], "written alike, whether or not there is anything to sort"


@pytest.mark.parametrize("odd", [object(), {"a": {1, 2}}, {"a": object()}, None])
def test_what_is_no_json_has_no_hash(odd: Any) -> None:
    assert digest_of_arguments(odd).hash == ""


def test_arguments_nested_without_end_have_no_hash() -> None:
    deep: list[Any] = []
    deep.append(deep)
    assert digest_of_arguments({"a": deep}).hash == ""


@pytest.mark.parametrize(
    "result",
    [
        {"content": [{"type": "text", "text": "hello"}]},
        {"contents": [{"uri": "file:///a", "text": "hello"}]},
        {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]},
        {"completion": {"values": ["hello"]}},
        {"content": [{"type": "resource", "resource": {"uri": "x", "text": "hello"}}]},
    ],
)
def test_the_hash_of_a_result_is_that_of_its_texts(result: dict[str, Any]) -> None:
    assert digest_of_result(result) == digest_of_result({**result, "_meta": {"other": 1}})
    other = json.loads(json.dumps(result).replace("hello", "hallo"))
    assert digest_of_result(result) != digest_of_result(other)


def test_of_a_long_result_the_beginning_and_the_length_count() -> None:
    long = "x" * 1_000_000
    assert digest_of_result(text_result(long)) != digest_of_result(text_result(long + "x"))
    assert digest_of_result(text_result(long)) == digest_of_result(text_result(long[:-1] + "y"))
    large = LargeText(memoryview(json.dumps(long).encode()))
    assert digest_of_result({"content": [{"type": "text", "text": large}]})


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"content": 5},
        {"content": [None, 5, {"text": 7}]},
        {"messages": [{"content": 3}]},
        {"completion": {"values": 3}},
    ],
)
def test_a_result_of_the_wrong_shape_still_has_a_hash(odd: dict[str, Any]) -> None:
    assert len(digest_of_result(odd)) == 128


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"name": "greet", "arguments": {"a": "secret"}}, "greet"),
        ({"uri": "db://ada:secret@host/table?token=secret#secret"}, "db://host/table"),
        ({"uri": "postgres:ada:secret@host/table"}, "postgres:host/table"),
        ({"uri": "db://ada:sec/ret@host/table"}, "db://host/table"),
        ({"uri": "db://ada@corp:secret@host/table"}, "db://host/table"),
        ({"uri": "db://ada:sec;re%3Ft@host/table"}, "db://host/table"),
        ({"uri": "db:\\\\ada:secret@host"}, "db:\\\\host"),
        ({"uri": "https:/ada:secret@host/x"}, "https:/host/x"),
        ({"uri": "jdbc:mysql://host/table;password=secret"}, "jdbc:mysql://host/table"),
        ({"uri": "https://host/%3ftoken=secret"}, "https://host/"),
        ({"uri": "https://host/%3Ftoken=secret"}, "https://host/"),
        ({"uri": "https://host/a%23secret"}, "https://host/a"),
        ({"uri": "https://host:80/a?mail=ada@host"}, "https://host:80/a"),
        ({"uri": "file:///a/b%20c"}, "file:///a/b%20c"),
        ({"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"value": "secret"}}, "greet"),
        ({"ref": {"type": "ref/resource", "uri": "file:///{path}"}}, "file:///{path}"),
        ({"uri": 5}, ""),
        ({}, ""),
    ],
)
def test_what_was_used_is_named_without_what_may_be_secret(params: Mapping[str, Any], expected: str) -> None:
    assert used_by(params) == expected


def test_a_resource_with_a_hostile_name_is_named_in_no_time() -> None:
    for uri in ("x:" * 500_000, "x:" + "/" * 500_000, "%3" * 500_000):
        assert used_by({"uri": uri}) == uri


@pytest.mark.parametrize(
    "meta",
    [
        None,
        5,
        {},
        {"traceparent": 5},
        {"traceparent": "x" * 1_000_000},
        {"traceparent": f"00-{'0' * 32}-{'0' * 16}-00"},
    ],
)
def test_a_trace_of_the_wrong_shape_is_none(meta: Any) -> None:
    assert trace_id(Caller(passed_on={"_meta": meta})) == ""


async def test_one_recording_takes_a_small_part_of_a_call(tmp_path: Path) -> None:
    """The target is 50 µs; the fastest of several rounds counts, because other work takes its share of the others."""
    trail = AuditTrail(AuditOptions(file=tmp_path / "audit.jsonl"), None)
    trail.start()
    arguments = {"title": "x" * 200, "labels": ["a", "b"], "body": {"text": "y" * 500, "number": 7}}
    result = text_result("z" * 2_000, _meta={"tokens": {"estimated": 500}})
    taken = []
    for _ in range(20):
        started = time.perf_counter()
        for _ in range(100):
            with recording(trail, CALLER, "tools/call") as record:
                record.about("github", "create_issue", "d" * 64, arguments)
                record.result(result)
        taken.append((time.perf_counter() - started) / 100)
    await trail.stop()
    assert min(taken) < 150e-6


async def test_what_is_recorded_later_stands_before_what_happened_later() -> None:
    table = Table()
    trail = trail_of(table)
    trail.start()
    for number in range(40):
        with recording(trail, LOCAL, f"call {number}"):
            pass
        if number % 10 == 9:
            trail.add(AuditEntry(number, method=f"login {number}"))
            trail.refused(429, f"reason {number}")
    await trail.stop()
    told = [entry.method.partition(" ")[0] for entry in table.entries]
    assert told == [*(["call"] * 10), "login", "http/refused"] * 4
    calls = [entry.method for entry in table.entries if entry.method.startswith("call")]
    assert calls == [f"call {number}" for number in range(40)]
