"""A gateway that enters the SDK past its `__init__` can use all of it: every module of ours, and every name of its."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOADED = """
import importlib, pkgutil, sys
import mcp_optimizer
from mcp_optimizer.cli import SDK
from mcp_optimizer.runtime.lazy import load_later

load_later(*SDK, "sqlalchemy.ext.asyncio")
for module in pkgutil.walk_packages(mcp_optimizer.__path__, "mcp_optimizer."):
    if not any(part in module.name for part in ("__main__", ".demo", ".migrations")):
        importlib.import_module(module.name)
assert "mcp.server.mcpserver" not in sys.modules, "the SDK is entered by its front door"

from mcp import Client
from mcp.server import MCPServer, Server
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
import mcp.client.client, mcp.server.lowlevel, mcp.server.mcpserver.server, sqlalchemy.ext.asyncio.engine

assert Client is mcp.client.client.Client
assert Server is mcp.server.lowlevel.Server
assert MCPServer is mcp.server.mcpserver.server.MCPServer
assert AsyncEngine is sqlalchemy.ext.asyncio.engine.AsyncEngine
print("all")
"""


@pytest.mark.process
def test_everything_of_ours_loads_without_the_front_door_and_whoever_wants_it_gets_the_same_names() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", LOADED], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("all\n", "")
