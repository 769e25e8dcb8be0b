"""Builds the wheel as for a release, installs it into a fresh virtual environment, and tries it there.

`make wheel-check` runs it; RELEASING.md says when. Stops with an error at the first problem. The built files stay in
dist/, to be published.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
KEPT = "mcp_optimizer_gateway/_package.py"
"""The copy that the build adds."""

LIBRARY = """
import asyncio
from mcp_optimizer import Optimizer

async def main():
    async with Optimizer.from_config(demo=True, database="none") as optimizer:
        found = await optimizer.find("move a card to another column")
        assert found.tools, "nothing was found"
        assert found.token_metrics.savings_percentage > 90, found.token_metrics

asyncio.run(main())
"""

OVER_STDIO = """
import asyncio, sys
from mcp import Client, StdioServerParameters

async def main():
    command = StdioServerParameters(command=sys.argv[1], args=["serve", "--demo", "--database", "none"])
    async with Client(command) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert "find_tool" in names, names
        reply = await client.call_tool("find_tool", {"tool_description": "list the tables of the database"})
        assert not reply.is_error, reply

asyncio.run(main())
"""


def run(*command: object, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a command and return its output; if it fails, the whole check fails."""
    print("$", *(str(part) if "\n" not in str(part) else "..." for part in command), flush=True)
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=env, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}\nfailed with exit code {done.returncode}")
    return done.stdout


def build() -> Path:
    """Build the wheel from the source distribution, which shows that both are complete."""
    for old in DIST.glob("*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--outdir", DIST, cwd=ROOT)
    (wheel,) = DIST.glob("*.whl")
    return wheel


def check_contents(wheel: Path) -> None:
    """Check that the wheel has every file of the packages that is under version control, and nothing else."""
    tracked = run("git", "ls-files", "src", cwd=ROOT).splitlines()
    wanted = {KEPT, *(str(Path(name).relative_to("src")) for name in tracked)}
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    if missing := wanted - names:
        sys.exit(f"missing in the wheel: {sorted(missing)}")
    if foreign := names - wanted:
        sys.exit(f"in the wheel but not under version control: {sorted(foreign)}")
    print(f"{wheel.name}: {len(names)} files, {wheel.stat().st_size / 1e6:.1f} MB")


def try_it(wheel: Path, folder: Path) -> None:
    """Do what a new user does first, without access to this checkout."""
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    python, program = programs / "python", programs / "mcp-optimizer"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MCP_OPTIMIZER_"))}
    env |= {"XDG_DATA_HOME": str(folder / "data"), "XDG_CONFIG_HOME": str(folder / "config")}
    run(python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel, cwd=folder, env=env)
    version = wheel.name.split("-")[1]
    assert version in run(program, "--version", cwd=folder, env=env), "the program reports another version"
    run(program, "init", "mcp.json", cwd=folder, env=env)
    assert (folder / "mcp.json").exists(), "init wrote no mcp.json"
    assert "saved" in run(program, "demo", cwd=folder, env=env), "the demo reports no savings"
    found = json.loads(run(program, "find", "move a card", "--demo", "--json", cwd=folder, env=env))
    assert found["tools"], "find found nothing"
    assert run(program, "call", "list_tables", "{}", "--demo", cwd=folder, env=env), "call printed nothing"
    run(python, "-c", LIBRARY, cwd=folder, env=env)
    run(python, "-c", OVER_STDIO, program, cwd=folder, env=env)


def main() -> None:
    wheel = build()
    check_contents(wheel)
    with tempfile.TemporaryDirectory() as folder:
        try_it(wheel, Path(folder))
    print(f"{wheel.name} works; publish the files in {DIST}")


if __name__ == "__main__":
    main()
