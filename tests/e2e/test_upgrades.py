"""What a user of an earlier version has goes on working: database, settings and server file of each release.

`scripts/make_upgrade_fixture.py` writes them with the version that is released.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import ROOT

VERSIONS = sorted(path for path in (ROOT / "tests" / "golden" / "upgrade").iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def fixture() -> ModuleType:
    spec = importlib.util.spec_from_file_location("upgrading", ROOT / "scripts" / "make_upgrade_fixture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(fixture: ModuleType, home: Path, *words: str) -> Any:
    done = fixture.run(home, *words, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)
def test_files_of_an_earlier_version_go_on_working(version: Path, fixture: ModuleType, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(version, home)
    config, data = home / "config" / "mcp-optimizer", home / "data" / "mcp-optimizer"
    (data / "catalog.db").chmod(0o600)
    before = [(config / name).read_bytes() for name in ("mcp.json", "settings.toml")]

    called = shown(fixture, home, "call", "listTables", "{}")
    assert called["content"][0]["text"]
    refused = fixture.run(home, "call", "getForeignKeys", "{}")
    assert "Not in this team." in refused.stdout + refused.stderr, "a rule of the settings file no longer holds"

    # What only the database knows: a key, a secret that its server was started with, and the history.
    assert "ci" in json.dumps(shown(fixture, home, "key", "list"))
    assert "shop_token" in json.dumps(shown(fixture, home, "secret", "list"))
    assert "listTables" in json.dumps(shown(fixture, home, "report"))
    assert [path.name for path in data.iterdir() if "unusable" in path.name] == []
    assert [(config / name).read_bytes() for name in ("mcp.json", "settings.toml")] == before


def test_there_are_files_of_the_first_version() -> None:
    assert "0.1.0" in {path.name for path in VERSIONS}
