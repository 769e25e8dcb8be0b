"""What a script gets from tools and gives to them, with a real server that gives any result."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from mcp_optimizer import Optimizer
from mcp_optimizer.catalog.tool_forms import Detail
from mcp_optimizer.errors import InvalidRequest

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

SERVER = Path(__file__).parents[1] / "servers" / "giving.py"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def optimizer() -> AsyncIterator[Optimizer]:
    giving = {"command": sys.executable, "args": [str(SERVER)]}
    servers = {"mcpServers": {"giving": giving, "learned": giving, "other": giving}}
    async with Optimizer.from_config(servers, database="none", encoder="none", scripts="write") as made:
        yield made


def text(result: dict[str, Any]) -> str:
    [block] = result["content"]
    return str(block["text"])


async def value_of(optimizer: Optimizer, script: str) -> Any:
    result = await optimizer.run_script(script)
    assert not result["isError"], text(result)
    return json.loads(text(result))


@pytest.mark.parametrize("inside", [[1, 2], {"a": 1}, 7, None, "plain", {"result": 1}])
async def test_a_declared_envelope_is_taken_off_as_the_stub_says(optimizer: Optimizer, inside: Any) -> None:
    assert await value_of(optimizer, f"[giving.wrapped(result={inside!r})]") == [inside]


async def test_a_text_in_a_declared_envelope_is_read_as_any_text(optimizer: Optimizer) -> None:
    assert await value_of(optimizer, """giving.wrapped(result='{"a": [1]}')["a"]""") == [1]
    assert await value_of(optimizer, """[giving.wrapped(result='{not JSON')]""") == ["{not JSON"]


async def test_the_stub_of_an_envelope_and_the_value_of_a_script_agree(optimizer: Optimizer) -> None:
    for number in range(3):
        await optimizer.gateway.call("learned__wrapped", {"result": {"total": number, "cards": []}})
    found = await optimizer.gateway.search("learned wrapped", detail=Detail.PYTHON)
    assert "-> {total, cards[]}" in found.text
    assert await value_of(optimizer, """list(learned.wrapped(result={"total": 1, "cards": []}))""") == [
        "total",
        "cards",
    ]


async def test_an_object_with_a_result_that_nobody_declared_stays_as_it_is(optimizer: Optimizer) -> None:
    given = {"content": [{"type": "text", "text": json.dumps({"result": {"name": "x"}})}]}
    for _ in range(3):
        await optimizer.gateway.call("learned__give", {"result": given})
    found = await optimizer.gateway.search("learned give", detail=Detail.PYTHON)
    assert "-> {result: {name}}" in found.text
    assert await value_of(optimizer, f"giving.give(result={given!r})") == {"result": {"name": "x"}}


async def test_none_for_an_optional_argument_leaves_it_out(optimizer: Optimizer) -> None:
    script = 'giving.taken(text="x", count=None, note=None, kind=None)'
    assert await value_of(optimizer, script) == {"text": "x", "note": None}
    assert await value_of(optimizer, 'call("giving__taken", **{"text": "x", "count": None})') == {"text": "x"}
    assert await value_of(optimizer, 'parallel("giving.taken", [{"text": "x", "kind": None}])') == [{"text": "x"}]


async def test_none_for_an_argument_that_is_needed_is_refused(optimizer: Optimizer) -> None:
    with pytest.raises(InvalidRequest, match="argument 'text': takes a str, not None"):
        await optimizer.run_script("missing = {}.get('text')\ngiving.taken(text=missing)")
    result = await optimizer.run_script("import json\nmissing = json.loads('null')\ngiving.taken(text=missing)")
    assert result["isError"]
    assert "text" in text(result)


LEARNT = """
rows = learned.give(result={"content": [{"type": "text", "text": '{"rows": [{"owner": "Ann"}]}'}]})["rows"]
print(len(rows))
rows[0]["ownr"]
"""


async def test_a_script_that_fails_shows_what_was_learned_about_its_line(optimizer: Optimizer) -> None:
    rows = json.dumps({"rows": [{"owner": "Ann"}, {"owner": "Bob"}]})
    for _ in range(3):
        await optimizer.gateway.call("other__give", {"result": {"content": [{"type": "text", "text": rows}]}})
    said = text(await optimizer.run_script(LEARNT.replace("learned.", "other.")))
    assert said.split("\n")[:2] == [
        "line 4: KeyError: ownr",
        "In earlier results, the result of other.give has no key 'ownr' there. Did you mean 'owner'? (line 4)",
    ]
    fine = text(await optimizer.run_script(LEARNT.replace("learned.", "other.").replace("ownr", "owner")))
    assert fine == "1\nAnn"
