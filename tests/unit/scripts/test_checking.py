"""Scripts are checked before anything is called: mistakes are found, and right scripts pass."""

from __future__ import annotations

import builtins
import importlib
import json
import re
import sys
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic_monty import AsyncMonty, MontyError, MontyRuntimeError

from mcp_optimizer.catalog import CatalogTool
from mcp_optimizer.compression.shape_sources import shape_of_value
from mcp_optimizer.compression.shapes import Shape, merged, without_data
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.limits import Limits
from mcp_optimizer.scripts.checking import ScriptChecker
from mcp_optimizer.scripts.driver import PRELUDE
from mcp_optimizer.scripts.interpreter import BUILTINS, IMPORTED, MEMBERS
from mcp_optimizer.scripts.names import MODULES, Toolbox
from mcp_optimizer.scripts.problems import Problem
from mcp_optimizer_demo.kanban.server import KANBAN_TOOLS
from mcp_optimizer_demo.sql.server import SQL_TOOLS
from mcp_optimizer_demo.web.server import WEB_TOOLS
from tests.unit.scripts.tools import catalog_tool, of_details

HERE = Path(__file__).parent
REAL = HERE.parents[3] / "shared" / "data" / "mcp-tools"
DUMPS = {
    "memory": "modelcontextprotocol__server-memory.json",
    "filesystem": "modelcontextprotocol__server-filesystem.json",
    "git": "py__mcp-server-git.json",
}


@dataclass(frozen=True)
class Written:
    """A script of a data file. Of a mistake, its line and a word of what is said about it."""

    title: str
    text: str

    @property
    def needs_dumps(self) -> bool:
        return any(f"{server}." in self.text for server in DUMPS)


def _scripts(name: str) -> list[Written]:
    blocks = (HERE / "checked" / name).read_text(encoding="utf-8").split("### ")[1:]
    return [Written(title, text) for title, _, text in (block.partition("\n") for block in blocks)]


def _tools() -> list[CatalogTool]:
    found = [
        *(("kanban", tool.definition()) for tool in KANBAN_TOOLS),
        *(("sql", tool.definition()) for tool in SQL_TOOLS),
        *(("web", tool.definition()) for tool in WEB_TOOLS),
    ]
    details = [(server, one.model_dump(mode="json", by_alias=True, exclude_none=True)) for server, one in found]
    if REAL.is_dir():
        details += [(server, one) for server, name in DUMPS.items() for one in _dumped(name)]
    return [of_details(server, McpTool.model_validate(one)) for server, one in details]


def _dumped(name: str) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = json.loads((REAL / name).read_text(encoding="utf-8"))["tools"]
    return tools


TOOLBOX = Toolbox(_tools())
RIGHT, MISTAKES = (
    [one for one in _scripts(name) if REAL.is_dir() or not one.needs_dumps] for name in ("right.txt", "mistakes.txt")
)


@pytest.fixture
async def pool() -> AsyncIterator[AsyncMonty]:
    async with AsyncMonty(min_processes=1, max_processes=1) as pool:
        yield pool


class _Checker:
    """Checks scripts, and shows only what is wrong with them."""

    def __init__(self, checker: ScriptChecker) -> None:
        self._checker = checker

    async def check(self, script: str, toolbox: Toolbox, variables: Collection[str] = ()) -> Sequence[Problem]:
        return (await self._checker.check(script, toolbox, variables)).problems


def _checker(limits: Limits | None = None, shape: Shape | None = None) -> _Checker:
    return _Checker(ScriptChecker(limits or Limits(), lambda _tool, _principal: shape))


def _refusal(problems: Sequence[Problem]) -> str:
    return "\n".join(str(one) for one in problems if not one.is_warning)


class TestTheLists:
    @pytest.mark.slow
    async def test_no_right_script_is_refused_or_doubted(self) -> None:
        checker = _checker()
        alarms = {one.title: found for one in RIGHT if (found := await checker.check(one.text, TOOLBOX))}
        assert alarms == {}
        assert len(RIGHT) >= (60 if REAL.is_dir() else 55)

    async def test_nine_of_ten_mistakes_are_found_with_line_and_right_spelling(self) -> None:
        checker, missed = _checker(), {}
        for one in MISTAKES:
            line, _, word = one.title.partition(" | ")
            found = await checker.check(one.text, TOOLBOX)
            if not any(problem.line == int(line) and word in problem.message for problem in found):
                missed[one.text] = [str(problem) for problem in found]
        assert len(MISTAKES) >= (60 if REAL.is_dir() else 56)
        assert len(missed) <= 0.1 * len(MISTAKES), missed


ANY_OBJECT: dict[str, Any] = {"type": "object", "properties": {"id": {"type": "integer"}}}


class TestWhatIsChecked:
    async def test_all_problems_are_told_at_once_and_refuse_the_script(self) -> None:
        script = 'r = kanban.list_boards(pages=3)\nprint(r["boards"][0]["nam"])\nkanban.list_board()'
        text = _refusal(await _checker().check(script, TOOLBOX))
        assert text.splitlines() == [
            "line 1: kanban.list_boards has no argument 'pages'. Did you mean page?",
            "line 2: the result of kanban.list_boards has no key 'nam' there. Did you mean 'name'?",
            "line 3: kanban has no tool 'list_board'. Did you mean list_boards?",
        ]

    async def test_nothing_of_the_script_runs(self) -> None:
        assert await _checker().check("kanban.list_boards()\nwhile True: pass", TOOLBOX) == ()
        assert await _checker().check("while True: pass\nkanban.list_boards()", TOOLBOX) == ()

    async def test_what_was_only_seen_in_results_is_doubted_and_not_refused(self) -> None:
        rows = {"rows": [{"id": number, "owner": "Ann"} for number in range(3)], "total": 3}
        shape = without_data(merged(shape_of_value(rows), shape_of_value(rows)))
        toolbox = Toolbox([catalog_tool("crm", "list", ANY_OBJECT)])
        checker = _checker(shape=shape)
        found = await checker.check('r = crm.list()\nprint(r["rows"][0]["ownr"], r["count"])', toolbox)
        assert _refusal(found) == ""
        assert str(found[0]) == "line 2: the result of crm.list has no key 'ownr' there. Did you mean 'owner'?"
        assert await checker.check('print(crm.list()["rows"][0]["owner"]["name"], crm.list()["total"])', toolbox) == ()

    async def test_variables_that_a_script_is_given_are_known(self) -> None:
        script = "print(kanban.get_board(board_id=board)['name'], _limit)"
        assert await _checker().check(script, TOOLBOX, ["board", "_limit"]) == ()
        assert "'board' is not defined" in _refusal(await _checker().check(script, TOOLBOX, ["_limit"]))

    async def test_a_server_whose_name_begins_with_an_underscore_is_known(self) -> None:
        toolbox = Toolbox([catalog_tool("3d", "list", ANY_OBJECT)])
        assert await _checker().check("print(_3d.list(id=3))", toolbox) == ()
        assert "no argument 'name'" in _refusal(await _checker().check("_3d.list(name=3)", toolbox))

    async def test_a_name_that_the_script_gives_to_something_else_is_no_server(self) -> None:
        script = "def show(kanban):\n    return kanban.count(1)\nprint(sql.listTables())"
        assert await _checker().check(script, TOOLBOX) == ()

    @pytest.mark.parametrize(
        ("script", "said"),
        [
            ("async def a(b):\n    async with b: pass", "async context managers"),
            ("try:\n    pass\nexcept* ValueError:\n    pass", "exception groups"),
            ("class A:\n    @property\n    def b(self): return 1", "method decorators"),
        ],
    )
    async def test_python_that_the_interpreter_lacks_is_named(self, script: str, said: str) -> None:
        found = _refusal(await _checker().check(f"kanban.list_boards()\n{script}", TOOLBOX))
        assert said in found

    async def test_an_import_that_is_tried_is_no_mistake(self) -> None:
        script = "try:\n    import numpy\nexcept ImportError:\n    numpy = None\nprint(kanban.list_boards()['total'])"
        assert await _checker().check(script, TOOLBOX) == ()


class TestWhatNothingDefines:
    @pytest.mark.parametrize(
        ("script", "said"),
        [
            ("print(jira.list())", "'jira' is not defined: no variable, and no server. The servers:"),
            ("found = 1\nprint(fuond)", "line 2: 'fuond' is not defined. Did you mean found?"),
            ("list_boards()", "'list_boards' is not defined. Did you mean kanban.list_boards?"),
            ("d = defaultdict(list)", "'defaultdict' is not defined"),
            ("csv.reader([])", "'csv' is not imported. Write: import csv"),
            ("print(callable(1))", "'callable' is not defined. Use hasattr()"),
            ("from math import mean", "math has no 'mean' in scripts."),
            ("asyncio.create_task(1)", "asyncio has no 'create_task' in scripts. For many calls at once"),
            ("import datetime\ndatetime.now()", "line 2: datetime has no 'now' in scripts."),
            ("n = 0\ndef f():\n    n += 1\nf()", "line 3: 'n' is read before it is given a value: write `global n`"),
            ("def f(a, b): pass\nf(1)", "line 2: f() needs the argument 'b'."),
            ("def f(a): pass\nf(1, 2)", "line 2: f() takes 1 arguments, not 2."),
            ("def f(a, *, limit=1): pass\nf(1, limt=2)", "f() has no argument 'limt'. Did you mean limit?"),
            ("parallel('kanban.list_boards')", "parallel() takes a tool and a list"),
        ],
    )
    async def test_is_told(self, script: str, said: str) -> None:
        assert said in _refusal(await _checker().check(script, TOOLBOX))

    @pytest.mark.parametrize(
        "script",
        [
            "from datetime import datetime\nprint(datetime.now())",
            "import datetime as dt\nprint(dt.datetime.now(), json.dumps(1), math.pi)",
            "try:\n    import datetime\n    datetime = json.loads('1')\nexcept ImportError: pass\ndatetime.now",
            "try:\n    asyncio.create_task(1)\nexcept AttributeError: pass",
            "n = 0\ndef f():\n    global n\n    n += 1\nf()",
            "def f():\n    n = 0\n    def g():\n        nonlocal n\n        n += 1\n    g()\nf()",
            "def f(n):\n    n += 1\nf(1)",
            "def f(a, b=1, *c, d, e=2, **f): pass\nf(1, 2, 3, d=4, g=5)\nf(*[1], d=1)\nf(**{'a': 1, 'd': 2})",
            "f = (lambda a: a) if len('a') else (lambda: 1)\nf()",
            "class A:\n    def b(self, c): return c\nA().b(1)",
            "parallel(name='kanban.list_boards', items=[{}])",
            "match kanban.list_boards():\n    case {'boards': [first, *rest], **more}: print(first, rest, more)",
            "print([a for a in [1] if (b := a)], b, __name__)",
            "def f():\n    return later\nlater = 1\nf()",
        ],
    )
    async def test_and_what_something_defines_is_not(self, script: str) -> None:
        assert await _checker().check(script, TOOLBOX) == ()


class TestHostileScripts:
    @pytest.mark.cases_in_check(3)
    @pytest.mark.parametrize(
        "script",
        [
            "",
            "\0",
            "\ud800",
            "(" * 5_000,
            "x = " + "-" * 15_000 + "1",
            "f" + "(f" * 80 + ")" * 80,
            "kanban.list_boards(" + "a=" * 900,
            "kanban." + "a" * 15_000 + "()",
            'kanban.get_board(board_id="' + "x" * 15_000 + '")',
            "kanban.list_boards()\n" + "x = y = z = [[]] * 9 ** 9 ** 9\n" * 300,
            "kanban.list_boards()\n" + "\n".join(f"v{n} = v{n - 1} if v{n - 1} else [v{n - 1}]" for n in range(1, 300)),
            "kanban.list_boards()\nx = " + " + ".join(["'a'"] * 3_000),
        ],
    )
    async def test_are_answered_with_few_words(self, script: str) -> None:
        found = await _checker().check(script, TOOLBOX)
        assert len(found) <= 10
        assert all(len(problem.message) < 400 and problem.message.isprintable() for problem in found)

    async def test_longer_ones_than_are_run_are_not_read(self) -> None:
        limits = Limits(script_characters=500)
        assert await _checker(limits).check("kanban.nothing()\n" * 100, TOOLBOX) == ()

    async def test_schemas_that_try_to_break_out_do_not(self) -> None:
        evil = '"})\nimport os\nx = ("'
        schema = {"type": "object", "properties": {evil: {"enum": [evil, "b"]}, "self": {}, "class": {}}}
        tool = catalog_tool("crm", evil, schema, outputSchema={"type": "object", "properties": {evil: {}, "ok": {}}})
        toolbox = Toolbox([tool])
        [name] = toolbox.servers["crm"]
        assert await _checker().check(f"crm.{name}(self=1, class_=2)['ok']", toolbox) == ()
        assert "no key" in _refusal(await _checker().check(f"crm.{name}()['no']", toolbox))


@pytest.mark.process
class TestWhatTheInterpreterHas:
    """The lists in `interpreter` hold for the interpreter that is installed."""

    async def test_modules_can_be_imported_and_no_others(self, pool: AsyncMonty) -> None:
        async with pool.checkout() as session:
            for module in sorted(MODULES):
                await session.feed_run(f"import {module}")
        for module in sorted(sys.stdlib_module_names - MODULES - {"__future__"}):
            async with pool.checkout() as session:
                with pytest.raises(MontyRuntimeError):
                    await session.feed_run(f"import {module}")

    async def test_the_names_are_those_that_it_knows(self, pool: AsyncMonty) -> None:
        for name in sorted(set(dir(builtins)) - {"None", "True", "False", "__debug__"}):
            async with pool.checkout() as session:
                assert await _succeeds(session, name) == (name in BUILTINS), name

    async def test_the_members_of_modules_are_those_that_it_knows(self, pool: AsyncMonty) -> None:
        assert MEMBERS.keys() == MODULES
        for module, listed in MEMBERS.items():
            has = set(listed.split())
            for name in sorted(has | {name for name in dir(importlib.import_module(module)) if name[0] != "_"}):
                async with pool.checkout() as session:
                    assert await _succeeds(session, f"import {module}\n{module}.{name}") == (name in has), (
                        module,
                        name,
                    )

    @pytest.mark.parametrize(
        "script",
        [
            "async def f(b):\n    async with b: pass",
            "async def f(b):\n    async for c in b: pass",
            "async def f(b):\n    return [c async for c in b]",
            "async def f(b):\n    return {c: 1 async for c in b}",
            "def f():\n    yield 1",
            "def f():\n    yield from []",
            "try: pass\nexcept* ValueError: pass",
            "class A(ValueError): pass",
            "class A(metaclass=type): pass",
            "class A:\n    @property\n    def b(self): return 1",
            "from math import *",
        ],
    )
    async def test_syntax_that_is_refused_is_what_it_lacks(self, pool: AsyncMonty, script: str) -> None:
        async with pool.checkout() as session:
            with pytest.raises(MontyRuntimeError, match=r"NotImplementedError.*support"):
                await session.feed_run(script)
        assert "scripts do not support" in _refusal(await _checker().check(script, TOOLBOX))

    async def test_modules_that_need_no_import_are_those_of_the_prelude(self) -> None:
        assert f"import {', '.join(sorted(IMPORTED))}" in re.sub(
            r"(?m)^import (.*)$", lambda line: f"import {', '.join(sorted(line[1].split(', ')))}", PRELUDE
        )


async def _succeeds(session: Any, code: str) -> bool:
    try:
        await session.feed_run(code)
    except MontyError:
        return False
    return True
