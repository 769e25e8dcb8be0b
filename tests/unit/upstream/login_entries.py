"""Entries of servers with a login, for tests of how they are read; no secret may show in a problem."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mcp_optimizer.config.serverfile.parser import parse_server_file
from mcp_optimizer.config.serverfile.spec import AuthSpec, ServerSpec

URL = {"url": "https://example.com/mcp"}
SECRET = "pl4nted-s3cret"
KEY = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----"
ACCOUNT = {"type": "client_credentials", "client_id": "gateway", "issuer": "https://login.example.com"}


def one(entry: dict[str, Any], folder: Path = Path("/home/ada"), **environment: str) -> ServerSpec:
    (found,) = parse_server_file(json.dumps({"mcpServers": {"it": entry}}), folder / "mcp.json", environment)
    return found


def auth(entry: dict[str, Any], folder: Path = Path("/home/ada"), **environment: str) -> AuthSpec:
    found = one({**URL, **entry}, folder, **environment)
    assert not found.problem
    return found.auth


def problem(entry: dict[str, Any], folder: Path = Path("/home/ada"), **environment: str) -> str:
    found = one({**URL, **entry}, folder, **environment)
    assert SECRET not in found.problem
    assert SECRET not in repr(found)
    return found.problem
