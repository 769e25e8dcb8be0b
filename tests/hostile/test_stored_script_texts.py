"""Stored scripts with hostile names, parameters and descriptions, and more of them than are kept."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from mcp_optimizer import Optimizer
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.scripts.saving import WantedScript

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

SERVER = Path(__file__).parents[1] / "servers" / "giving.py"
NAMES = (
    "../../etc/passwd",
    "/etc/passwd",
    "..",
    "a/b",
    "a\\b",
    "a\0b",
    "a\nb",
    "\x1b[31mred",
    "a\u202eb",
    "\ud800",
    "",
    " ",
    "x" * 1_000_000,
    "a__b",
    "giving__change",
    "run_script",
    "Run-Script",
    "call_tool",
    "find_tool",
    "'; DROP TABLE script; --",
    "<script>",
    "ａ",
)
PARAMETERS = (
    "call:any",
    "giving:any",
    "ToolError:any",
    "class:any",
    "_mo_now:any",
    "__x:any",
    "x y:any",
    "x;import os:any",
    "x\n:any",
    "x" * 1_000_000,
    "x:any=" + "[" * 100_000,
    "x:integer=NaN",
    "x:nonsense",
)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def optimizer(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Optimizer]:
    servers = {"giving": {"command": sys.executable, "args": [str(SERVER)]}}
    place = tmp_path_factory.mktemp("stored") / "catalog.db"
    options: dict[str, Any] = {"database": str(place), "encoder": "none", "limits": {"stored_scripts": 30}}
    async with Optimizer.from_config(servers, scripts="read", **options) as optimizer:
        yield optimizer


async def save(optimizer: Optimizer, name: str, source: str = "giving.changes()", **more: Any) -> None:
    assert optimizer.parts.stored_scripts is not None
    wanted = WantedScript(name, source, more.pop("description", "A script"), **more)
    await optimizer.parts.stored_scripts.save(wanted, replaces=True)


async def refused(optimizer: Optimizer, name: str, source: str = "giving.changes()", **more: Any) -> None:
    with pytest.raises(InvalidRequest) as error:
        await save(optimizer, name, source, **more)
    said = str(error.value)
    assert len(said) < 2_000
    assert "\0" not in said
    assert "\x1b" not in said


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
async def test_no_hostile_name_is_kept(optimizer: Optimizer, name: str) -> None:
    await refused(optimizer, name)


@pytest.mark.parametrize("parameter", PARAMETERS, ids=range(len(PARAMETERS)))
async def test_no_hostile_parameter_is_kept(optimizer: Optimizer, parameter: str) -> None:
    name = parameter.partition(":")[0][:50]
    await refused(optimizer, "kept", f"print({name if name.isidentifier() else 1})", parameters=(parameter,))


@pytest.mark.parametrize("text", ["", "a\nb", "a\0", "\x1b[2J", "a\u202eb", "a\u200bb", "\ud800", "x" * 1_000_000])
async def test_no_hostile_description_or_source_is_kept(optimizer: Optimizer, text: str) -> None:
    await refused(optimizer, "kept", description=text)
    if "\n" not in text:
        await refused(optimizer, "kept", f"'{text}'" if text else "")


async def test_a_script_named_like_a_tool_takes_nothing_over(optimizer: Optimizer) -> None:
    await save(optimizer, "changes", "'of the script'")
    runner = optimizer.parts.scripts
    assert runner is not None
    result = await runner.run("[giving.changes(), call('giving__changes'), call('giving.changes')]", Caller(key="eve"))
    assert "of the script" not in result["content"][0]["text"]
    assert result["content"][0]["text"].count("changes") == 3
    called = await optimizer.gateway.call("changes", {}, "giving")
    assert "of the script" not in str(called)
    assert "of the script" in str(await optimizer.gateway.call("changes", {}, "scripts"))


async def test_no_more_scripts_are_kept_than_the_limit_says(optimizer: Optimizer) -> None:
    stored = optimizer.parts.stored_scripts
    assert stored is not None
    for number in range(30 - len(await stored.all())):
        await save(optimizer, f"many-{number}", "'x'")
    for number in range(10):
        with pytest.raises(InvalidRequest, match=r"limits\.stored_scripts"):
            await save(optimizer, f"more-{number}", "'x'")
    assert len(await stored.all()) == 30
