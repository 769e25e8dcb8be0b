"""The benchmark of scripts checks answers, counts what a model sends and reads, and notices a tool it was not shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.scripts import TASKS, report
from benchmarks.scripts_tasks.measuring import ONE, SELECT, WAYS, Gateway, Outcome, measured, not_shown, same, value_of
from benchmarks.scripts_tasks.model import Spent
from benchmarks.scripts_tasks.world import made_world, missing, server_file

BY_NAME = {task.name: task for task in TASKS}


def test_every_task_has_a_name_and_an_answer_of_its_own() -> None:
    assert len(BY_NAME) == len(TASKS) >= 20
    assert [task.name for task in TASKS if task.answer is None] == []


def test_tasks_with_one_call_are_among_them_so_that_scripts_can_lose() -> None:
    assert len([task for task in TASKS if "(1 call)" in task.name]) >= 5


def test_a_tool_that_is_only_named_was_not_shown() -> None:
    reply = (
        "list_cards [kanban]: Get cards.\n board_id?: int\nget_card(card_id: int) [kanban]: One.\nor: list_boards(…)"
    )
    assert not_shown([reply], ["list_cards", "get_card", "list_boards", "card"]) == ["list_boards", "card"]


def test_answers_are_compared_as_json() -> None:
    assert same([("a", 1)], [["a", 1]])
    assert not same({"a": 1}, {"a": 2})
    assert [value_of(text) for text in ('{"a": 1}', "{'a': None}", "two words")] == [{"a": 1}, {"a": None}, "two words"]


def test_without_the_real_servers_only_the_demo_servers_are_started(tmp_path: Path) -> None:
    with made_world(tmp_path / "world") as world:
        text = server_file(world, None).read_text(encoding="utf-8")
    assert len(missing(None)) == 5
    assert "kanban" in text
    assert "filesystem" not in text


def test_the_report_says_whether_the_aims_are_met() -> None:
    task = BY_NAME["workload"]
    one, script = Outcome(Spent(10, 90, 1), Spent(100, 800, 9)), Outcome(Spent(10, 40, 1), Spent(40, 10, 1))
    found = dict(zip(WAYS, ({task.name: one}, {task.name: one}, {task.name: script}), strict=True))
    text = report(found, [task], ["git"])
    assert "10.0 times fewer tokens in all" in text
    assert "0.10 times the tokens of one by one; aim: none over 1.2: met" in text
    assert "left out: git" in text
    assert "1.2: not met by workload" in report(
        {**found, WAYS[0]: {task.name: script}, WAYS[2]: {task.name: one}}, [task], []
    )


@pytest.mark.slow
async def test_ways_of_a_task_answer_alike_and_a_wrong_answer_is_noticed(tmp_path: Path) -> None:
    right, wrong = BY_NAME["workload"], replace(BY_NAME["blocked cards"], answer="something else")
    gateway = Gateway(tmp_path / "world", None, "none", tmp_path / "log")
    found = {way: await measured(gateway, [right, wrong], way) for way in (ONE, SELECT)}
    for way in (ONE, SELECT):
        assert found[way][right.name].wrong == ""
        assert found[way][right.name].work.calls == 9
        assert "not 'something else'" in found[way][wrong.name].wrong
    assert found[SELECT][right.name].work.tokens < found[ONE][right.name].work.tokens
    assert found[SELECT][right.name].discovery.tokens == found[ONE][right.name].discovery.tokens > 0
