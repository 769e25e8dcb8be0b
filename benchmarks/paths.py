"""Where benchmarks find their data, their servers and their results."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent

ROOT = _HERE.parent
RESULTS = _HERE / "results"

DATA = ROOT.parent / "shared" / "data"
"""Beside the repository, not part of it."""
DUMPS = DATA / "mcp-tools"
"""The tools/list of hundreds of real servers, one file each."""

ECHO_SERVER = _HERE / "gateway" / "echo_server.py"
REPLAY_SERVER = _HERE / "replay_server.py"
PLAIN_SERVER = ROOT / "tests" / "servers" / "plain.py"
FASTMCP_SEARCH = _HERE / "search" / "fastmcp_bm25.py"
"""Runs in an environment with FastMCP 4, not in ours."""


def alone(checkout: Path) -> list[str]:
    """Options of `serve` for a gateway that no other client shares, which an older checkout has without asking."""
    knows = checkout / "src" / "mcp_optimizer" / "runtime" / "sharing" / "likeness.py"
    return ["--alone"] if knows.exists() and '"--alone"' in knows.read_text() else []
