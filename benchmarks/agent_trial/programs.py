"""The servers from npm and PyPI that the trial's world runs, at fixed versions, and how to install them.

Installing takes minutes, so one folder of programs serves many worlds. Called by `world`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

NPM = {
    "npm": [
        "@modelcontextprotocol/server-filesystem@2026.8.31",
        "@modelcontextprotocol/server-memory@2026.8.31",
        "@playwright/mcp@0.0.83",
    ],
    "npm-more": [
        "@modelcontextprotocol/server-everything@2026.8.31",
        "@modelcontextprotocol/server-sequential-thinking@2026.8.31",
        "@kazuph/mcp-taskmanager@1.1.1",
        "zod@4.6.7",
    ],
}
"""Folder: the npm packages installed in it. zod is fixed too, because servers write their schemas with it."""

PYPI = {
    "py": ["mcp-server-git==2026.10.19", "mcp-server-time==2026.10.19"],
    "py1": ["mcp<2", "mcp-server-sqlite==2025.4.25", "mcp-server-calculator==0.2.1", "arxiv-mcp-server==0.8.2"],
    "office": ["excel-mcp-server==2.2.2"],
    "duck": ["mcp<2", "mcp-server-duckdb==1.1.0"],
}
"""Virtual environment: the packages installed in it. Some servers need version 1 of `mcp`, some version 2."""


def install(folder: Path) -> None:
    """Install whatever this folder does not have yet."""
    for name, packages in NPM.items():
        target = folder / name
        if not (target / "node_modules").exists():
            target.mkdir(parents=True, exist_ok=True)
            subprocess.run(["npm", "init", "-y"], cwd=target, check=True, stdout=subprocess.DEVNULL)
            subprocess.run(["npm", "install", "--silent", *packages], cwd=target, check=True)
    for name, packages in PYPI.items():
        target = folder / name
        if not target.exists():
            subprocess.run([sys.executable, "-m", "venv", str(target)], check=True)
            subprocess.run([str(target / "bin" / "pip"), "install", "-q", *packages], check=True)
