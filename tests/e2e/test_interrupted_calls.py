"""A server that dies in the middle of a call: what only reads is called again, what may change something is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, WriteServers
from tests.e2e.running import over_stdio, until_found

SERVER = ROOT / "tests" / "servers" / "faltering.py"

pytestmark = pytest.mark.slow


async def test_a_call_that_only_reads_is_made_again_and_no_other(write_servers: WriteServers, tmp_path: Path) -> None:
    config = write_servers({"clock": {"command": sys.executable, "args": [str(SERVER), str(tmp_path)]}})
    async with over_stdio(config) as client:
        await until_found(client, "look at the clock", "look")
        read = await client.call_tool("call_tool", {"tool_name": "look", "parameters": {}})
        assert not read.is_error, read
        changed = await client.call_tool("call_tool", {"tool_name": "change", "parameters": {}})
        assert changed.is_error
        assert "Whether the call took effect is not known" in str(changed.content)
    assert (tmp_path / "look").read_text() == "called\n" * 2
    assert (tmp_path / "change").read_text() == "called\n"
