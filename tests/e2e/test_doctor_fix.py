"""`doctor --fix`: corrects the server file, keeps everything else in it, and asks first."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest

from tests.conftest import PLAIN_SERVER
from tests.e2e.running import command

FILE = """\
{
  // Mine.
  "mcpServers": {
    "far": { "url": "localhost:%(port)d/mcp", "type": "htpp" }, // over there
    "gateway": { "command": "mcp-optimizer", "args": ["serve", "--config", "%(path)s"] },
    "near": { "command": "%(python)s", "args": ["%(server)s", "near"], "env": {"KEY": "k"} },
  },
}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mcp.json"
    path.write_text(FILE % {"port": 9, "path": path, "python": sys.executable, "server": PLAIN_SERVER})
    path.chmod(0o644)
    return path


async def test_the_file_is_corrected_and_only_there(file: Path) -> None:
    before = file.read_text()
    done = await command("doctor", "--fix", "--yes", "--json", "--config", file, "--database", "none", cold=True)
    after = file.read_text()
    assert '"url": "http://localhost:9/mcp", "type": "http" }, // over there' in after
    assert "gateway" not in after
    assert [line for line in before.splitlines() if "near" in line or "Mine" in line] == [
        line for line in after.splitlines() if "near" in line or "Mine" in line
    ]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(done.json["fixed"]) == 4
    rows = {row["name"]: row for row in done.json["servers"]}
    assert rows["near"]["status"] == "running"
    assert rows["far"]["failure"] == "unreachable"


async def test_without_an_answer_nothing_is_changed(file: Path) -> None:
    before = file.read_bytes()
    done = await command("doctor", "--fix", "--config", file, "--database", "none")
    assert done.code == 2
    assert "far: put http:// in front of" in done.err
    assert "--yes" in done.err
    assert file.read_bytes() == before
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


async def test_a_plain_doctor_says_what_could_be_corrected_and_changes_nothing(file: Path) -> None:
    before = file.read_bytes()
    done = await command("doctor", "--config", file, "--database", "none")
    assert "Can be corrected with `mcp-optimizer doctor --fix`:" in done.out
    assert "gateway: remove the entry" in done.out
    assert file.read_bytes() == before


async def test_where_there_is_nothing_to_correct_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"near": {"command": sys.executable, "args": [str(PLAIN_SERVER), "n"]}}}))
    before = path.stat()
    done = await command("doctor", "--fix", "--yes", "--json", "--config", path, "--database", "none")
    assert done.code == 0
    assert not {"fixed", "fixable"} & done.json.keys()
    assert path.stat().st_mtime_ns == before.st_mtime_ns


async def test_keys_of_an_entry_with_a_mistake_are_kept_from_others_too(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"far": {"url": "localhost:9/mcp", "headers": {"Authorization": "k"}}}}')
    path.chmod(0o644)
    await command("doctor", "--fix", "--yes", "--config", path, "--database", "none")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
