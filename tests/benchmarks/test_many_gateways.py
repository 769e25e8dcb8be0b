"""What the long run over three gateways calls a problem, and what it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.many_gateways.ledger import (
    BALANCER,
    DATABASE,
    Fault,
    Harm,
    Ledger,
    Outcome,
    Rest,
    Seen,
    judged,
    problems,
)
from benchmarks.many_gateways.run import gateways_of
from benchmarks.soak import result

KILL = Fault(Harm.KILLED, 100, 100.2, "gateway-1")
AWAY = Fault(Harm.DATABASE, 200, 206, what="stopped")
PAUSE = Fault(Harm.PAUSED, 300, 312, "gateway-2")


def ledger(*seen: Seen, **more: object) -> Ledger:
    made = Ledger(seen=list(seen), faults=[KILL, AWAY, PAUSE], gateways={"q1": "gateway-1", "q2": "gateway-2"})
    made.answered, made.executed["n1"] = ["n1"], 1
    for name, value in more.items():
        setattr(made, name, value)
    return made


def seen(name: str, began: float, ended: float, outcome: Outcome = Outcome.ANSWERED, kind: str = "call") -> Seen:
    return Seen(name, kind, began, ended, outcome)


FINE = {
    "in flight on the killed gateway": seen("q1", 99, 100.1, Outcome.REFUSED),
    "closed in silence when a gateway died": seen("q9", 99, 100.1, Outcome.BROKEN),
    "waited for the paused gateway": seen("q2", 301, 312.5),
    "told of the database": seen("q2", 203, 204, Outcome.TOLD, "read the rest"),
    "waited two seconds": seen("q1", 10, 12),
}
BAD = {
    "on another gateway": (seen("q2", 99, 100.1, Outcome.REFUSED), "were lost"),
    "refused by HAProxy when a gateway died": (seen("q9", 99, 100.1, Outcome.REFUSED), "were lost"),
    "later than the kill": (seen("q1", 101, 102, Outcome.BROKEN), "were lost"),
    "waited at another gateway": (seen("q1", 301, 303.5), "waited over 2 s"),
    "waited": (seen("q1", 10, 12.1), "waited over 2 s"),
    "told of the database for no reason": (seen("q2", 100, 101, Outcome.TOLD, "read the rest"), "without a reason"),
    "a call told of an error": (seen("q2", 203, 204, Outcome.TOLD), "without a reason"),
}


@pytest.mark.parametrize("name", FINE)
def test_what_has_its_reason_is_no_problem(name: str) -> None:
    assert problems(ledger(FINE[name]), {}) == []


@pytest.mark.parametrize("name", BAD)
def test_what_has_none_is_one(name: str) -> None:
    one, said = BAD[name]
    [problem] = problems(ledger(one), {})
    assert said in problem


def test_time_in_line_for_a_processor_is_no_wait() -> None:
    made = ledger(seen("q1", 10, 13))
    for at in range(20):
        made.queued.add(BALANCER, at, 0.5)
    assert problems(made, {}) == []
    made.seen = [seen("q1", 10, 16)]
    assert len(judged(made).late) == 1


def test_a_rest_is_lost_unless_only_a_killed_gateway_had_it_while_the_database_was_away() -> None:
    lost = Rest("r1", 50, "q1", is_lost=True)
    assert [text for text in problems(ledger(rests=[lost]), {}) if "rests" in text]
    away = Fault(Harm.DATABASE, 95, 120, what="stopped")
    held = Rest("r2", 99, "q1", is_lost=True)
    made = ledger(rests=[held], faults=[KILL, away])
    assert (judged(made).held_in_memory, problems(made, {})) == ([held], [])
    elsewhere = Rest("r3", 99, "q2", is_lost=True)
    assert judged(ledger(rests=[elsewhere], faults=[KILL, away])).lost_rests == [elsewhere]


def test_a_rest_is_not_lost_without_a_reason_if_the_database_had_no_processor_when_its_gateway_was_killed() -> None:
    told = Seen("q7", "read the rest", 110, 111, Outcome.TOLD)
    held = Rest("r2", 99.5, "q1", is_lost=True, told=["q7"])
    made = ledger(told, rests=[held])
    assert len(problems(made, {})) == 2
    for at in range(90, 120):
        made.queued.add(DATABASE, at, 0.6 if at < 101 else 0)
    assert problems(made, {}) == []


def test_twice_never_stale_wrong_and_growth_are_problems() -> None:
    for change in ({"answered": ["n1", "n2"]}, {"wrong": ["x"]}, {"stale": [seen("q1", 1, 2)]}):
        assert len(problems(ledger(**change), {})) == 1
    made = ledger()
    made.executed["n1"] = 2
    assert problems(made, {"gateway-1": "10 to 20 MB"}) == ["1 calls happened twice", "gateway-1 grew: 10 to 20 MB"]
    assert problems(ledger(faults=[]), {}) == ["no gateway was killed"]


def test_the_gateway_of_a_request_is_read_from_the_log(tmp_path: Path) -> None:
    log = tmp_path / "haproxy.log"
    when, rest = "127.0.0.1:4 [17/Nov/2026:03:46:56.123] clients", '0/0/0/1/1 200 9 - - ---- 1/1/0/0/0 0/0 {%s} "POST"'
    names = {"q1": "gateway-1", "q2": "gateway-2-unchecked", "q3": "<NOSRV>"}
    log.write_text("".join(f"{when} gateways/{gateway} {rest % name}\n" for name, gateway in names.items()) + "other\n")
    assert gateways_of(log) == {"q1": "gateway-1", "q2": "gateway-2", "q3": "<NOSRV>"}


def test_each_long_run_writes_its_own_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result, "RESULT", tmp_path / "soak.md")
    result.write_part("B", "run b", "old")
    result.write_part("A", "run a", "text a\n\n- x")
    result.write_part("B", "run b", "new")
    assert result.RESULT.read_text() == "# Soak\n\n## A\n\n`run a`\n\ntext a\n\n- x\n\n## B\n\n`run b`\n\nnew\n"
