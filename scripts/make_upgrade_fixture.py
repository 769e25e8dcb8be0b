"""Writes what a user of this version has: a database, settings and a server file, for tests/golden/upgrade/VERSION.

    python scripts/make_upgrade_fixture.py

Run once for each release, by RELEASING.md; tests/e2e/test_upgrades.py then holds that every later version goes on with
it. Used as a person would use it: searches, calls, a key, a secret.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mcp_optimizer import __version__

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "tests" / "golden" / "upgrade"
# Protects nothing but the secret of these files.
FIXTURE_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
SERVERS = """{
  // Written by a person, with a comment.
  "mcpServers": {
    "shop": {
      "command": "${FIXTURE_PYTHON}",
      "args": ["-m", "mcp_optimizer_demo.sql"],
      "description": "The orders of the shop",
      "env": {"SHOP_TOKEN": "${secret:shop_token}"}
    }
  }
}
"""
SETTINGS = """max_tokens = 5000
find_tokens = 350

[[rules]]
effect = "deny"
tool = "getForeignKeys"
reason = "Not in this team."
"""


def variables(home: Path) -> dict[str, str]:
    """The environment of the person whose files these are."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MCP_OPTIMIZER_", "XDG_"))}
    places = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "XDG_DATA_HOME": str(home / "data")}
    return kept | places | {"MCP_OPTIMIZER_SECRET_KEY": FIXTURE_KEY, "FIXTURE_PYTHON": sys.executable}


def run(home: Path, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mcp_optimizer_gateway", *words],
        env=variables(home),
        cwd=home,
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def write(home: Path) -> None:
    config = home / "config" / "mcp-optimizer"
    config.mkdir(parents=True)
    (config / "mcp.json").write_text(SERVERS, encoding="utf-8")
    (config / "settings.toml").write_text(SETTINGS, encoding="utf-8")
    for words, given in (
        (("secret", "set", "shop_token"), "hunter2\n"),
        (("find", "which tables are there", "--json"), ""),
        (("call", "listTables", "{}", "--json"), ""),
        (("key", "create", "--name", "ci", "--risk", "read"), ""),
    ):
        done = run(home, *words, given=given)
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}: {done.stdout}{done.stderr}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write(home)
        to = KEPT / __version__
        shutil.rmtree(to, ignore_errors=True)
        for name in (
            "config/mcp-optimizer/mcp.json",
            "config/mcp-optimizer/settings.toml",
            "data/mcp-optimizer/catalog.db",
        ):
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(home / name, to / name)
        print(*(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes" for path in to.rglob("*.*")), sep="\n")


if __name__ == "__main__":
    main()
