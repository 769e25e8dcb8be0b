"""python -m tests.conformance.foreign_extensions: skills and apps through the gateway, with parts of other hands.

Servers: FastMCP's skills provider (PyPI) and an apps server of the extension's authors (npm). Clients: FastMCP's, and
the official inspector, which checks each skill's entry and the digests of its files. The server's page is rendered in
Chromium and calls its tool. With `--if-possible`, prints the reason and succeeds where a part is not available.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.conformance.__main__ import free_port, running
from tests.conformance.suite import FOLDER, NotAvailable, get_node
from tests.e2e.app_host import shown
from tests.e2e.browsers import CHROMIUM
from tests.e2e.raw_clients import MODERN, http_client
from tests.waiting import until

FASTMCP, EXT_APPS, INSPECTOR = "4.2.0", "2.0.3", "2.12.0"
_SECONDS = 300
_PYPI, _NPM = FOLDER / "fastmcp", FOLDER / "extensions"

SKILL = "---\nname: expense-report\ndescription: File an expense report.\n---\n\nUse references/form.md.\n"
SERVER = """
import sys
from pathlib import Path
from fastmcp import FastMCP
from fastmcp.skills.provider import SkillsDirectoryProvider
server = FastMCP("skills")
server.add_provider(SkillsDirectoryProvider(roots=Path(sys.argv[1])))
server.run(show_banner=False)
"""
CLIENT = """
import asyncio, json, sys
from fastmcp import Client
from fastmcp.skills import SkillsClientExtension
async def main():
    async with Client(sys.argv[1], extensions=[SkillsClientExtension()]) as client:
        found = {}
        for skill in await client.list_skills():
            assert (await client.get_skill(skill.uri)).resources == skill.resources
            found[skill.uri] = sorted(str(path) for path in (await client.read_skill(skill.uri)).files)
        print(json.dumps(found))
asyncio.run(main())
"""


def run(command: Sequence[str | Path], *, is_install: bool = False) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if done.returncode and is_install:
        raise NotAvailable(f"{Path(command[0]).name} could not install: {' '.join(done.stderr.split())[-300:]}")
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command[:6]))} failed: {done.stdout[-1_000:]}{done.stderr[-2_000:]}")
    return done.stdout


def get_fastmcp() -> Path:
    """A Python that has FastMCP."""
    python = _PYPI / "bin" / "python"
    if not (done := _PYPI / f"installed-{FASTMCP}").exists():
        run([sys.executable, "-m", "venv", "--clear", _PYPI], is_install=True)
        pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1")
        # Its dependencies are those of the release before: 4.2.0 wants a certifi that not every index has.
        run([*pip, "fastmcp-slim[server]>=4.1,<4.2"], is_install=True)
        run([*pip, "--no-deps", f"fastmcp-slim=={FASTMCP}"], is_install=True)
        done.touch()
    return python


def get_npm() -> tuple[str, Path]:
    """Node, and the folder of packages with the inspector and the apps server."""
    node, npm, packages = get_node(), shutil.which("npm"), _NPM / "node_modules" / "@modelcontextprotocol"
    if npm is None:
        raise NotAvailable("npm is not installed")
    if not (done := _NPM / f"installed-{INSPECTOR}-{EXT_APPS}").exists():
        _NPM.mkdir(parents=True, exist_ok=True)
        quiet = ("--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund", "--fetch-retries=1")
        wanted = (
            f"@modelcontextprotocol/inspector@{INSPECTOR}",
            f"@modelcontextprotocol/server-basic-vanillajs@{EXT_APPS}",
        )
        run([npm, "install", "--prefix", _NPM, *quiet, *wanted], is_install=True)
        done.touch()
    return node, packages


@contextlib.contextmanager
def gateway(folder: Path, servers: dict[str, Any]) -> Iterator[str]:
    config, port = folder / "mcp.json", free_port()
    config.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    options = ["--config", str(config), "--http", f"127.0.0.1:{port}", "--database", "none", "--encoder", "none"]
    command = [sys.executable, "-m", "mcp_optimizer", "serve", *options]
    with running(command, f"http://127.0.0.1:{port}/ready"):
        yield f"http://127.0.0.1:{port}/mcp"


def check_skills(python: Path, url: str) -> None:
    """FastMCP's client reads the same skill of two servers, with its digests, by the URIs of the gateway."""
    found = json.loads(run([python, "-c", CLIENT, url]))
    assert list(found) == [f"{server}+skill://expense-report/SKILL.md" for server in ("acme", "zeta")], found
    for files in found.values():
        assert len(files) == 3, files


def check_inspector(inspector: Sequence[str], url: str) -> None:
    """The inspector finds no error in entries and digests, and the app of a tool."""
    ask = [*inspector, "--cli", url, "--transport", "http"]
    verified = [json.loads(line) for line in run([*ask, "--method", "skills/list", "--verify"]).splitlines() if line]
    outcomes = [(one["uri"], one["outcome"], len(one["files"])) for one in verified if "outcome" in one]
    assert [outcome for _, outcome, _ in outcomes] == ["verified", "verified"], verified
    for uri, _, files in outcomes:
        assert files == 3
        got = json.loads(run([*ask, "--method", "skills/get", "--uri", uri]))
        assert got["skill"]["uri"] == uri
    app = run([*ask, "--advertise-apps", "--method", "tools/call", "--tool-name", "get-time", "--app-info"])
    assert json.loads(app)["hasApp"], app


async def check_page(url: str) -> None:
    """The page of the apps server shows the result of its tool, and calls it again when its button is pressed."""
    async with http_client(url, MODERN) as client, shown(client, "get-time") as (frame, calls, problems):
        button = frame.get_by_role("button", name="Get Server Time")
        await button.wait_for(timeout=20_000)
        before = await frame.locator("body").inner_text()
        await button.click()

        async def is_another() -> bool:
            return bool(await frame.locator("body").inner_text() != before)

        await until(is_another, timeout=20)
        assert calls == ["get-time"], calls
        assert not problems, problems


def main() -> int:
    try:
        python, (node, packages) = get_fastmcp(), get_npm()
    except NotAvailable as problem:
        print(f"parts of other hands: not run, because {problem}")
        return 0 if "--if-possible" in sys.argv else 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        skill = folder / "skills" / "expense-report"
        (skill / "references").mkdir(parents=True)
        (skill / "SKILL.md").write_text(SKILL, encoding="utf-8")
        (skill / "references" / "form.md").write_text("Date, amount, purpose.\n", encoding="utf-8")
        (skill / "logo.png").write_bytes(b"\x89PNG\x00\xff")
        (folder / "server.py").write_text(SERVER, encoding="utf-8")
        provider = {"command": str(python), "args": [str(folder / "server.py"), str(folder / "skills")]}
        apps = [str(packages / "server-basic-vanillajs" / "dist" / "index.js"), "--stdio"]
        inspector = [node, str(packages / "inspector" / "clients" / "launcher" / "build" / "index.js")]
        servers = {"acme": provider, "zeta": provider, "basic": {"command": node, "args": apps}}
        with gateway(folder, servers) as url:
            check_skills(python, url)
            print(f"FastMCP {FASTMCP}: its provider's skills, twice, through the gateway to its client")
            check_inspector(inspector, url)
            print(f"inspector {INSPECTOR}: every entry and digest verified; the app of a tool found")
            if CHROMIUM:
                asyncio.run(check_page(url))
                print(f"server-basic-vanillajs {EXT_APPS}: its page in Chromium called its tool")
            else:
                print("no chromium: the page was not rendered")
    return 0


if __name__ == "__main__":
    sys.exit(main())
