"""What clients are told to start is never a bare name, which another package may own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from mcp_optimizer import __version__
from mcp_optimizer.cli.client_environment import this_program
from mcp_optimizer.config.clients.connecting import is_temporary
from mcp_optimizer.config.serverfile.recognised_servers import is_gateway
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport


def program(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o700)
    return path


def recognised(words: list[str]) -> bool:
    spec = ServerSpec(name="x", transport=Transport.STDIO, command=words[0], args=(*words[1:], "serve"))
    return is_gateway(spec)


def test_an_installed_program_is_named_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python, ours = program(tmp_path / "bin", "python"), program(tmp_path / "bin", "mcp-optimizer-gateway")
    program(tmp_path / "bin", "mcp-optimizer")
    monkeypatch.setattr(sys, "executable", str(python))
    assert this_program() == [str(ours)]
    assert recognised(this_program())


def test_the_other_packages_command_is_never_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = program(tmp_path / "bin", "python")
    program(tmp_path / "bin", "mcp-optimizer")
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert this_program() == [str(python), "-P", "-m", "mcp_optimizer_gateway"]
    assert recognised(this_program())


def test_a_copy_of_uvx_is_named_by_package_and_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ".cache" / "uv" / "archive-v0" / "x" / "bin"
    python, _ = program(folder, "python"), program(folder, "mcp-optimizer-gateway")
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", os.devnull)
    assert is_temporary(this_program()[0]), "without uvx there is nothing better than its path"
    uvx = program(tmp_path / "local", "uvx")
    monkeypatch.setenv("PATH", str(tmp_path / "local"))
    assert this_program() == [str(uvx), f"mcp-optimizer-gateway@{__version__}"]
    assert recognised(this_program())
