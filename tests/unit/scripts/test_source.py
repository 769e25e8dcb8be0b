"""How a script is read: the tools it names, where calls run side by side, and what is refused before anything runs."""

from __future__ import annotations

import pytest

from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.scripts.names import Toolbox
from mcp_optimizer.scripts.source import ScriptSource, read_source
from tests.unit.scripts.test_names import tool

TOOLBOX = Toolbox([tool("kanban", "list_cards"), tool("kanban", "get_card"), tool("sql", "query")])


def read(script: str) -> ScriptSource:
    return read_source(script, TOOLBOX, 20_000)


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("x = kanban.get_card(1)", "x = kanban.get_card(1)"),
        ("kanban.get_card(1)", "_mo_shown((kanban.get_card(1)), _mo_limit)"),
        ("x = 1\n(x,\n x)", "x = 1\n_mo_shown(((x,\n x)), _mo_limit)"),
        ("1, 2", "_mo_shown((1, 2), _mo_limit)"),
        ("return 5", "_mo_shown((5), _mo_limit)"),
        ("x = await kanban.get_card(1)", "x = await _mo_settled(kanban.get_card(1))"),
        (
            "async def f(n):\n    return kanban.get_card(n)['a']",
            "async def f(n):\n    return (await _mo_later(\"kanban.get_card\")(n))['a']",
        ),
        (
            "async def f(n):\n    return await kanban.get_card(n)",
            'async def f(n):\n    return await _mo_settled(_mo_later("kanban.get_card")(n))',
        ),
        ("def f(n):\n    return kanban.get_card(n)", "def f(n):\n    return kanban.get_card(n)"),
        (
            "x = await asyncio.gather(kanban.get_card(1), call('a'))",
            "x = await _mo_settled(_mo_gather(_mo_later(\"kanban.get_card\")(1), _mo_call_later('a')))",
        ),
        (
            "t = [kanban.get_card(n) for n in y]\nz = await asyncio.gather(*t)",
            't = [_mo_later("kanban.get_card")(n) for n in y]\nz = await _mo_settled(_mo_gather(*t))',
        ),
        (
            "t = []\nfor n in y:\n    t.append(kanban.get_card(n))\nz = await gather(*t)",
            't = []\nfor n in y:\n    t.append(_mo_later("kanban.get_card")(n))\nz = await _mo_settled(_mo_gather(*t))',
        ),
        ("x = parallel(kanban.get_card, y)", 'x = parallel("kanban.get_card", y)'),
        ("é = 'ü'; x = await é", "é = 'ü'; x = await _mo_settled(é)"),
        ("```python\nx = 1\n```", "\nx = 1\n"),
        ("    x = 1\n    y = 2", "x = 1\ny = 2"),
        ("x = 1\r\ny = 2\r", "x = 1\ny = 2\n"),
    ],
)
def test_a_script_is_changed_only_within_its_lines(script: str, code: str) -> None:
    assert read(script).code == code


def test_the_tools_that_a_script_names_are_known_with_their_lines() -> None:
    found = read("f = kanban.list_cards\ncall('sql.query')\nparallel('sql__query', [])\ncall(x)").mentions
    assert [(one.line, one.tool.record.name) for one in found] == [(1, "list_cards"), (2, "query"), (3, "query")]


def test_a_variable_may_have_the_name_of_a_server_if_it_is_only_that() -> None:
    source = read("sql = 'select 1'\nprint(sql.strip())")
    assert source.mentions == ()
    assert source.servers == {}


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("x = 1\nkanban.list_card()", r"line 2: kanban has no tool 'list_card'\. Similar: list_cards"),
        ("sql = 'x'\nsql.query(sql)", r"line 2: 'sql' is a server, and the script also uses it as a variable"),
        ("def f(kanban):\n    return kanban.get_card(1)", "line 2: 'kanban' is a server"),
        ("x = = 1", r"line 1: invalid syntax\. Nothing was called\."),
        ("x = 1\n  y = 2", "line 2: unexpected indent"),
        ("#" * 20_001, r"The script has 20,001 characters; at most 20,000 are run\."),
        ("\0", "null bytes|cannot be read"),
        ("-" * 3_000 + "1", "nested too deeply"),
    ],
)
def test_what_cannot_be_run_is_refused_with_its_line(script: str, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        read(script)
