"""The examples do what they claim, and so does every snippet on the page about the Python API."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
from pathlib import Path

import pytest

import mcp_optimizer
from tests.conftest import ROOT

EXAMPLES = ROOT / "examples"
LONGEST = 60
"""Maximum lines of an example, so that a newcomer can read it in one go."""

PROGRAMS = {
    "library.py": ["Best of", "listTables", "% saved", "order_items", "Refused: Unknown tool 'list_tabels'"],
    "agent_loop.py": ["The prompt carries 4 tools", "-> find_tool", "-> call_tool", "Alba table"],
    "own_server/main.py": [
        "tea: running",
        "brewing_instructions",
        "The Tea House: 70 degrees",
        "Refused: Unknown tool",
    ],
}
"""What each example prints, in this order."""

PAGE = (ROOT / "docs" / "python-api.md").read_text(encoding="utf-8")
SECTIONS = {
    heading.replace("\\", ""): re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for heading, text in re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
}


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give servers enough time to start, even on a busy machine."""
    monkeypatch.setenv("MCP_OPTIMIZER_WAIT", "60")


async def run(program: Path, cwd: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(program), cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, err.decode()
    return out.decode()


@pytest.mark.parametrize("name", PROGRAMS)
async def test_an_example_runs_from_any_folder_and_prints_what_it_promises(name: str, tmp_path: Path) -> None:
    out = await run(EXAMPLES / name, tmp_path)
    at = 0
    for expected in PROGRAMS[name]:
        assert expected in out[at:], out
        at = out.index(expected, at)


def test_every_example_is_short_and_run_here() -> None:
    programs = {path for path in EXAMPLES.rglob("*.py") if "__main__" in path.read_text(encoding="utf-8")}
    servers = {EXAMPLES / "own_server" / "server.py"}
    assert programs - servers == {EXAMPLES / name for name in PROGRAMS}
    long = {path.name: count for path in programs if (count := len(path.read_text().splitlines())) > LONGEST}
    assert long == {}


def test_the_page_about_the_python_api_has_every_public_name_with_a_snippet() -> None:
    assert sorted(SECTIONS) == sorted(mcp_optimizer.__all__)
    assert [name for name, snippets in SECTIONS.items() if not snippets] == []


@pytest.mark.parametrize("name", SECTIONS)
async def test_the_snippets_of_the_python_api_run(name: str) -> None:
    for number, snippet in enumerate(SECTIONS[name]):
        where = f"docs/python-api.md, {name}, snippet {number + 1}"
        done = eval(compile(snippet, where, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), {})  # noqa: S307
        if inspect.isawaitable(done):
            await done
