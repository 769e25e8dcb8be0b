"""Scripts cost nothing where they are off, and say what to install where they are on and cannot run."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_optimizer import Optimizer
from mcp_optimizer.domain.own_tools import ScriptMode, own_tools
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.token_counter import VOCABULARIES, TokenCounter

LOADED = """
import asyncio, json, sys
from mcp_optimizer import Optimizer
async def main():
    async with Optimizer.from_config({}, database="none", encoder="none", scripts=sys.argv[1]) as optimizer:
        optimizer.mcp_server()
        if sys.argv[1] != "off":
            await optimizer.run_script("1")
    found = [name for name in sys.modules if "monty" in name or name.startswith("mcp_optimizer.scripts")]
    print(json.dumps(sorted(found)))
asyncio.run(main())
"""


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(("mode", "is_loaded"), [("off", False), ("read", True)])
def test_nothing_of_scripts_is_loaded_while_they_are_off(mode: str, is_loaded: bool) -> None:
    done = subprocess.run([sys.executable, "-c", LOADED, mode], capture_output=True, text=True, check=True)
    assert bool(json.loads(done.stdout)) == is_loaded


def test_without_the_extra_the_user_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pydantic_monty" else find(name))
    with pytest.raises(ConfigurationError, match=r"pip install 'mcp-optimizer-gateway\[scripts\]'"):
        Optimizer.from_config({}, database="none", encoder="none", scripts="read")


@pytest.mark.parametrize("mode", [ScriptMode.READ, ScriptMode.WRITE])
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("encoding", VOCABULARIES)
def test_our_own_tools_cost_at_most_610_tokens_with_scripts(mode: ScriptMode, split: bool, encoding: str) -> None:
    tools = own_tools(split_calls=split, scripts=mode)
    assert TokenCounter(encoding).count_tokens(json.dumps(tools, separators=(",", ":"))) <= 610
