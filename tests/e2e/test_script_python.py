"""Ordinary Python, as models write it, means in a script what it means anywhere; what does not work is told, with what
to write in its place.
"""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from mcp_optimizer import Optimizer
from mcp_optimizer.errors import InvalidRequest

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

SERVER = Path(__file__).parents[1] / "servers" / "giving.py"

ORDINARY = [
    text.partition("\n")[2].rstrip()
    for text in (Path(__file__).parent / "ordinary_python.txt").read_text(encoding="utf-8").split("### ")[1:]
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def optimizer() -> AsyncIterator[Optimizer]:
    servers = {"mcpServers": {"giving": {"command": sys.executable, "args": [str(SERVER)]}}}
    async with Optimizer.from_config(servers, database="none", encoder="none", scripts="write") as made:
        yield made


def text(result: dict[str, Any]) -> str:
    [block] = result["content"]
    return str(block["text"])


CALLS = "giving.changes()\n"
"""What calls nothing is not checked."""


@pytest.mark.parametrize("script", ORDINARY)
async def test_ordinary_python_means_what_it_means_anywhere(optimizer: Optimizer, script: str, tmp_path: Path) -> None:
    (tmp_path / "ordinary.py").write_text(script, encoding="utf-8")
    meant = io.StringIO()
    with contextlib.redirect_stdout(meant):
        runpy.run_path(str(tmp_path / "ordinary.py"), run_name="__main__")
    assert text(await optimizer.run_script(CALLS + script)) == meant.getvalue().rstrip("\n")


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("sorted([2, 1], key=lambda n: giving.taken(text='x', count=n)['count'])", "[1,2]"),
        ("max([1, 3, 2], key=lambda n: giving.taken(text='x', count=-n)['count'])", "1"),
        ("min([], key=lambda n: giving.taken(text='x', count=n)['count'], default=7)", "7"),
        ("list(map(lambda n: giving.taken(text='x', count=n)['count'], [1, 2]))", "[1,2]"),
        ("[n for n in filter(lambda n: call('taken', text='x', count=n)['count'] > 1, [1, 2])]", "[2]"),
        ("def count(n):\n    return giving.taken(text='x', count=n)['count']\nsorted([2, 1], key=count)", "[1,2]"),
        ("giving.changes()\nreturn 5", "5"),
        ("import datetime\ngiving.changes()\n[datetime.date(2026, 1, 2), {1}]", '["2026-01-02",[1]]'),
        ("import asyncio\nawait asyncio.sleep(0.001)\nlen(giving.changes())", "1"),
    ],
)
async def test_tools_are_called_wherever_python_calls_a_function(optimizer: Optimizer, script: str, shown: str) -> None:
    assert text(await optimizer.run_script(script)) == shown


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import os\nprint(os.environ['HOME'])", "no environment variables"),
        ("import os\nos.getenv('HOME')", "no environment variables"),
        ("open('x')", "Scripts have no files"),
        ("import requests", "no network: call a tool"),
        ("from operator import itemgetter", "Use a lambda"),
        ("from concurrent.futures import ThreadPoolExecutor", "use parallel(name"),
        ("import asyncio\nasyncio.create_task(giving.changes())", "use parallel(name"),
        ("class Mine(Exception):\n    pass", "Raise ValueError"),
        ("def rows():\n    yield 1", "Collect a list"),
        ("help(giving)", "detail='python'"),
        ("import giving", "is there without an import"),
        ("from giving import changes", "is there without an import"),
        ("giving['changes']()", "giving.tool(name=...)"),
        ("getattr(giving, 'changes')()", "giving.tool(name=...)"),
    ],
)
async def test_what_does_not_work_is_told_with_what_to_write_before_anything_is_called(
    optimizer: Optimizer, script: str, said: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await optimizer.run_script(CALLS + script)
    assert said in str(caught.value)
    assert "line " in str(caught.value)
    assert "othing was called" in str(caught.value)


async def test_the_environment_and_files_are_refused_when_the_script_runs_too(optimizer: Optimizer) -> None:
    tried = "import os\ntry:\n    os.environ\nexcept PermissionError as error:\n    print(error)"
    said = text(await optimizer.run_script(tried))
    assert said == "A script has no environment variables: write the value into it."
    said = text(await optimizer.run_script("from pathlib import Path\nPath('a').read_text()"))
    assert said.startswith("line 2: PermissionError: A script cannot do that. Scripts have no files")
