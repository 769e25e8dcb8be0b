"""Mistakes of every class that models make in scripts are told before the first call, and right scripts that come near
them are not refused.

`checked/classes_of_mistakes.txt` holds the mistakes by class, `checked/near_mistakes.txt` the right scripts.
"""

from __future__ import annotations

import ast
import json
import time
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pytest

from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.scripts.call_sites import CallSites
from mcp_optimizer.scripts.checking import ScriptChecker
from mcp_optimizer.scripts.names import Toolbox
from mcp_optimizer.scripts.rehearsal.rehearsal import rehearsed
from mcp_optimizer.scripts.source import read_source
from tests.unit.scripts.test_checking import REAL, TOOLBOX
from tests.unit.scripts.tools import catalog_tool, of_details

HERE = Path(__file__).parent / "checked"
DUMPS = {
    "todoist": "doist__todoist-mcp",
    "mapbox": "mapbox__mcp-server",
    "memory": "modelcontextprotocol__server-memory",
}
LONGEST = 20_000


def _scripts(name: str) -> Iterator[tuple[str, str, str]]:
    """The class, title and text of each script."""
    for block in (HERE / name).read_text(encoding="utf-8").split("### ")[1:]:
        title, _, text = block.partition("\n")
        if REAL.is_dir() or not any(f"{server}." in text for server in DUMPS):
            yield title.partition(":")[0], title, text


def _toolbox() -> Toolbox:
    tools = [
        tool for server, of_server in TOOLBOX.servers.items() if server not in DUMPS for tool in of_server.values()
    ]
    for server, name in DUMPS.items() if REAL.is_dir() else ():
        listed = json.loads((REAL / f"{name}.json").read_text(encoding="utf-8"))["tools"]
        tools += [of_details(server, McpTool.model_validate(one)) for one in listed]
    return Toolbox(tools)


BOX = _toolbox()
WRONG = sorted(_scripts("classes_of_mistakes.txt"), key=itemgetter(0))
CLASSES = {name: list(of_class) for name, of_class in groupby(WRONG, key=itemgetter(0))}
RIGHT = list(_scripts("near_mistakes.txt"))


@pytest.fixture
def checker() -> ScriptChecker:
    return ScriptChecker()


async def _refusals(checker: ScriptChecker, script: str) -> list[str]:
    try:
        source = read_source(script, BOX, LONGEST)
    except InvalidRequest as error:
        return [str(error)]
    return (await checker.check(source.script, BOX)).refusals


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize("of_class", CLASSES)
async def test_every_mistake_of_a_class_is_told_with_its_line(checker: ScriptChecker, of_class: str) -> None:
    for _, title, text in CLASSES[of_class]:
        said = await _refusals(checker, text)
        assert said, title
        assert all(one.startswith("line ") for one in said), (title, said)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
async def test_right_scripts_that_come_near_are_not_refused(checker: ScriptChecker, part: int) -> None:
    assert len(RIGHT) >= 170
    refused = {title: said for _, title, text in RIGHT[part::4] if (said := await _refusals(checker, text))}
    assert refused == {}


def _problems(script: str) -> list[str] | None:
    tree = ast.parse(script)
    found = rehearsed(tree, CallSites(tree, BOX), BOX)
    return None if found is None else [str(one) for one in found]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("kanban.list_boards()[0]", "is a dict there, not a list: it has the keys 'page'"),
        ("s = set()\ns.append(kanban.list_boards())", "a set has no attribute 'append'. Use add."),
        ("for t in ['day', 'year']:\n    kanban.get_throughput(interval=t)", '"year" is not one of "day"'),
        ("o = {'secton': ['done']}\nkanban.list_cards(**o)", "has no argument 'secton'. Did you mean sections?"),
        ("def f(b):\n    return b['nam']\nf(kanban.list_boards()['boards'][0])", "Did you mean 'name'?"),
        (
            "n = {}\nfor b in kanban.list_boards()['boards']:\n    n[b['name']] += 1",
            "nothing is ever put into it",
        ),
        ("for b in kanban.list_boards()['boards']:\n    n = n + 1", "'n' is read before it is given a value"),
        ("ids = {1}\nkanban.list_cards(column_ids=ids)", "a set cannot be given to a tool: write list(...)"),
        ("def f(a):\n    print(a)\nf(1).upper()", "None has no attribute 'upper'"),
        ("async def f(a):\n    print(a)\n(await f(1))['a']", "None cannot be asked for"),
        ("def f():\n    return 1, 2, 3\na, b = f()", "3 values cannot be unpacked into 2"),
        ("x = {'one': 1}\nfor a, b in x:\n    print(a)", "write .items()"),
        ("print(kanban.list_boards()['boards'][0].get('nme'))", "has no key 'nme' there. Did you mean 'name'?"),
    ],
)
def test_what_is_wrong_is_told_with_what_is_right(script: str, said: str) -> None:
    [found] = _problems(script) or [""]
    assert said in found


def test_an_object_that_may_have_other_keys_is_refused_for_misspelt_ones_only() -> None:
    row = {"type": "object", "properties": {"title": {"type": "string"}}, "additionalProperties": True}
    box = Toolbox([catalog_tool("crm", "get", {"type": "object"}, outputSchema=row)])
    for key, is_wrong in (("title", False), ("Title", True), ("tilte", True), ("titles", False), ("owner", False)):
        tree = ast.parse(f"crm.get()[{key!r}]")
        assert bool(rehearsed(tree, CallSites(tree, box), box)) is is_wrong, key


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        "\n".join("    " * depth + f"for a{depth} in kanban.list_boards()['boards']:" for depth in range(18)) + " pass",
        "def f(x):\n    f(x)\n    f([x])\n    return f(x)\nf(kanban.list_boards())",
        "x = []\n" + "x = [x, x]\nx.append(x)\n" * 300,
        "\n".join(f"def f{n}(x): return f{n + 1}(f{n + 1}(f{n + 1}(x)))" for n in range(50)) + "\nf0(1)",
        "x = {}\n" + "\n".join(f"x['k{n}'] = [{n}, x, 'a', None]" for n in range(900)),
        "x = " + "[" * 90 + "]" * 90,
        "kanban.list_boards()\nx = " + " + ".join(["'a'"] * 600),
    ],
)
def test_a_script_that_never_ends_is_gone_through_in_bounded_steps(script: str) -> None:
    started = time.process_time()
    _problems(script)
    assert time.process_time() - started < 10
