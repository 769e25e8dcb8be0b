"""What a script's own text tells for certain is told before it runs; what is not certain passes."""

from __future__ import annotations

import ast
import time

import pytest

from mcp_optimizer.scripts.attributes import attribute_problems
from mcp_optimizer.scripts.own_values import OwnValues
from mcp_optimizer.scripts.syntax import bound_names


def own(script: str) -> tuple[OwnValues, list[ast.AST]]:
    nodes = list(ast.walk(ast.parse(script)))
    return OwnValues(nodes, bound_names(nodes)), nodes


def problems(script: str) -> list[tuple[int, str]]:
    values, nodes = own(script)
    return [*values.problems(nodes), *attribute_problems(nodes, lambda _node: False)]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("x = []\nx.push(1)", "list has no attribute 'push'"),
        ("x = {}\nx.has_key(1)", "dict has no attribute 'has_key'"),
        ("f'{1}'.contains('a')", "str has no attribute 'contains'"),
        ("y = call('a')\ny.includes('a')", "Use `x in text`"),
        ("y = call('a')\ny.lengths", "nothing has an attribute 'lengths'"),
        ("def f(a):\n    print(a)\nf(1).upper()", "f() returns None"),
        ("async def f(a):\n    print(a)\n(await f(1))['a']", "f() returns None"),
        ("x = call('a')\ny = x.sort()\ny[0]", "Use sorted"),
        ("def f():\n    return 1, 2, 3\na, b = f()", "3 values cannot be unpacked into 2"),
        ("x = {'one': 1}\nfor a, b in x:\n    print(a)", "write x.items()"),
    ],
)
def test_what_must_fail_is_told(script: str, said: str) -> None:
    found = problems(script)
    assert found
    assert said in found[0][1]


@pytest.mark.parametrize(
    "script",
    [
        "x = []\nx = call('a')\nx.push(1)".replace("push", "keys"),
        "x = None\nfor y in call('a'):\n    x = y\nx['a']",
        "def f(a):\n    return a\nf(1).upper()",
        "def f(a):\n    if a:\n        return 1, 2\n    return 1, 2, 3\na, b = f(1)",
        "def f():\n    raise ValueError\nf().upper()",
        "def f(x):\n    x = {}\n    return x\nx = f(1)\nx.count(1)",
        "class Box:\n    def sort(self):\n        return [1]\ny = Box().sort()\ny[0]",
        "class Box:\n    def __init__(self):\n        self.things = []\nBox().things",
        "from collections import namedtuple\nP = namedtuple('P', 'wide high')\nP(1, 2).wide",
        "hasattr(call('a'), 'pushed') and call('a').pushed",
        "x = {'ab': 1}\nfor a, b in x:\n    print(a)",
        "x = {'one': 1}\nx.clear()\nfor a, b in x:\n    print(a)",
        "a, *b = (1, 2, 3)",
    ],
)
def test_what_may_be_right_passes(script: str) -> None:
    assert problems(script) == []


def resolved(script: str) -> object:
    values, nodes = own(script)
    [given] = [node for node in nodes if isinstance(node, ast.keyword) and node.arg == "x"]
    found = values.resolved(given.value)
    try:
        return None if found is None else ast.literal_eval(found)
    except ValueError:
        return "unknown"


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("A = 'open'\ntool(x=A)", "open"),
        ("a = {'lat': 1}\nb = [a, a]\ntool(x=b)", [{"lat": 1}, {"lat": 1}]),
        ("a = {'lat': 1}\na['lat'] = 2\ntool(x=a)", "unknown"),
        ("a = {'lat': 1}\na.update(y=1)\ntool(x=a)", "unknown"),
        ("a = {'lat': 1}\nchange(a)\ntool(x=a)", "unknown"),
        ("a = 'x'\na = 'y'\ntool(x=a)", "unknown"),
        ("for a in [1]:\n    tool(x=a)", "unknown"),
    ],
)
def test_constants_stand_for_what_they_are(script: str, value: object) -> None:
    assert resolved(script) == value


def test_constants_inside_each_other_do_not_explode() -> None:
    lines = ["a0 = [1, 2]", *(f"a{n} = [{', '.join([f'a{n - 1}'] * 40)}]" for n in range(1, 8)), "tool(x=a7)"]
    assert resolved("\n".join(lines)) is None


def test_a_long_script_is_read_in_time_that_grows_with_its_length() -> None:
    def seconds(count: int) -> float:
        lines = [f"def f{n}():\n    return f{max(n - 1, 0)}(), 1\nx{n} = f{n}()\na, b = x{n}" for n in range(count)]
        begun = time.process_time()
        problems("\n".join(lines))
        return time.process_time() - begun

    small = min(seconds(200) for _ in range(3))
    assert min(seconds(2_000) for _ in range(2)) < 60 * small
