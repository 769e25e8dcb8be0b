"""Pages that a model reads have no more whitespace than the part of the result that it saw first."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_optimizer.domain.caller import LOCAL
from mcp_optimizer.results.pages import without_blanks
from mcp_optimizer.results.pipeline import RESULT_META_KEY
from mcp_optimizer.results.reader import PAGE_META_KEY
from tests.unit.results.test_limits import COUNTER, Gate, gate

ROWS = [{"id": number, "name": f"row {number}", "note": "two  blanks", "tags": ["a", "b"]} for number in range(200)]


async def pages(gate: Gate, text: str, *, for_model: bool) -> list[str]:
    cut = await gate.pass_through({"content": [{"type": "text", "text": text}]})
    found: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page: dict[str, Any] = await gate.results.read(
            cut["_meta"][RESULT_META_KEY]["resultId"], LOCAL, offset=offset, for_model=for_model
        )
        found.append(page["content"][0]["text"])
        offset = page["_meta"][PAGE_META_KEY].get("nextOffset")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("value", [ROWS, {"total": 200, "rows": ROWS}, {str(row["id"]): row for row in ROWS}])
async def test_pages_for_a_model_cost_no_more_a_row_than_compact_json_and_are_the_same_value(value: Any) -> None:
    text = json.dumps(value, indent=2)
    async with gate(max_tokens=1_000) as kept:
        plain, compact = await pages(kept, text, for_model=False), await pages(kept, text, for_model=True)
    assert "".join(plain) == text
    assert json.loads("".join(compact)) == value
    assert len(compact) < len(plain)
    small = COUNTER.count_tokens(json.dumps(value, separators=(",", ":")))
    assert sum(map(COUNTER.count_tokens, compact)) < 1.05 * small


async def test_lines_of_json_stay_lines() -> None:
    text = "".join(f"{json.dumps(row)}\n" for row in ROWS)
    async with gate(max_tokens=1_000) as kept:
        compact = "".join(await pages(kept, text, for_model=True))
    assert [json.loads(line) for line in compact.splitlines()] == ROWS


@pytest.mark.parametrize(
    "piece", [b"one,two words,3\n", b"  a line\n", b'{"open": [\n', b"| a | b |\n", b'"a  b", 2\n', b""]
)
def test_what_is_no_row_of_json_stays_as_it_is(piece: bytes) -> None:
    assert without_blanks(piece) == piece


def test_a_deeply_nested_row_stays_as_it_is() -> None:
    piece = b"[" * 100_000 + b" " + b"]" * 100_000
    assert without_blanks(piece) == piece
