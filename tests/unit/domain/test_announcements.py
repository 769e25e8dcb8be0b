"""Announcements among gateways: bounded, versioned, and ignored unless they are exactly as expected."""

from __future__ import annotations

import json

import pytest

from mcp_optimizer.domain.gateways import LONGEST, Announcement, ChangeKind, read_announcement


def test_what_one_gateway_says_another_reads() -> None:
    said = Announcement("me", ChangeKind.WRITTEN, ("a", "b"))
    assert read_announcement(said.written()) == said


@pytest.mark.parametrize("names", [["n" * LONGEST], [f"server-{number}" for number in range(1_000)], ["\ud800" * 900]])
def test_too_many_or_too_long_names_mean_everything(names: list[str]) -> None:
    body = Announcement("me", ChangeKind.WRITTEN, tuple(names)).written()
    assert len(body) <= LONGEST
    assert read_announcement(body) == Announcement("me", ChangeKind.WRITTEN)


GOOD = {"v": 1, "by": "x", "news": "written", "names": []}


@pytest.mark.parametrize(
    "body",
    [
        None,
        7,
        "",
        "{",
        "[]",
        "[" * 3_000,
        "null",
        *(json.dumps(GOOD | more) for more in (
            {"v": 2}, {"by": 1}, {"news": "reboot"}, {"news": ["written"]}, {"names": None},
            {"names": [1]}, {"names": ["x"] * 201}, {"by": "x" * LONGEST},
        )),
    ],
)  # fmt: skip
def test_anything_else_says_nothing(body: object) -> None:
    assert read_announcement(body) is None
