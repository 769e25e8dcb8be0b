"""No code sets another object's attributes: a part gets everything that it needs through its constructor."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from tests.contract.sources import FILES, PACKAGE, nodes_of, tree_of

EXCEPTIONS = {
    (
        "mcp_optimizer/db/database.py",
        "connection.isolation_level",
    ): "how sqlite3 is told to begin no transactions by itself",
    (
        "mcp_optimizer/runtime/logs.py",
        "ours.propagate",
    ): "how a logger of the standard library is told to keep its messages",
}
"""Libraries whose interface is an attribute. Shorten this list; do not add to it."""

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Scope = Function | ast.Module


def set_from_outside(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and target of every assignment to an attribute of an object that other code may already hold."""
    yield from _in_scope(tree, tree)


def _in_scope(scope: Scope, node: ast.AST) -> Iterator[tuple[int, str]]:
    for child in ast.iter_child_nodes(node):
        for target in _targets(child):
            if not _is_own(target.value, scope):
                yield target.lineno, ast.unparse(target)
        if isinstance(child, ast.Call) and _sets_attribute(child) and not _is_own(child.args[0], scope):
            yield child.lineno, ast.unparse(child)
        yield from _in_scope(child if isinstance(child, Function) else scope, child)


def _sets_attribute(call: ast.Call) -> bool:
    match call.func:
        case ast.Name("setattr") | ast.Attribute(ast.Name("object"), "__setattr__"):
            return True
    return False


def _targets(node: ast.AST) -> Iterator[ast.Attribute]:
    waiting: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        waiting += node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor):
        waiting.append(node.target)
    elif isinstance(node, ast.With | ast.AsyncWith):
        waiting += [item.optional_vars for item in node.items if item.optional_vars is not None]
    while waiting:
        target = waiting.pop()
        if isinstance(target, ast.Tuple | ast.List):
            waiting += target.elts
        elif isinstance(target, ast.Starred):
            waiting.append(target.value)
        elif isinstance(target, ast.Attribute):
            yield target


def _is_own(owner: ast.expr, scope: Scope) -> bool:
    """Whether this is `self`, `cls`, or an object that the function itself made and has not shared."""
    return isinstance(owner, ast.Name) and (owner.id in ("self", "cls") or owner.id in _made_in(scope))


def _made_in(scope: Scope) -> set[str]:
    """Names that are bound once, to a new object: an instance, a function or a class."""
    made: dict[str, int] = {}
    for node in _nodes(scope):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            made[node.name] = made.get(node.name, 0) + 1
        elif isinstance(node, ast.Assign):
            for name in (target.id for target in node.targets if isinstance(target, ast.Name)):
                # In `known = kept[key] = New()`, the new object belongs to `kept` too.
                is_new = len(node.targets) == 1 and _constructs(node.value)
                made[name] = made.get(name, 0) + (1 if is_new else 2)
    return {name for name, times in made.items() if times == 1}


def _nodes(scope: Scope) -> Iterator[ast.AST]:
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def _constructs(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return False
    name = ast.unparse(value.func).rpartition(".")[2]
    return name.lstrip("_")[:1].isupper() or name == "__new__"


@cache
def found() -> dict[tuple[str, str], int]:
    """The line of each file and target."""
    return {
        (path.relative_to(PACKAGE.parent).as_posix(), target): line
        for path in FILES
        if any(map(sets_anything, nodes_of(path)))
        for line, target in set_from_outside(tree_of(path))
    }


def sets_anything(node: ast.AST) -> bool:
    """Whether this may set an attribute from outside. To find the scope of each node of a file takes much longer."""
    if isinstance(node, ast.Attribute):
        is_of_itself = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        return not isinstance(node.ctx, ast.Load) and not is_of_itself
    return isinstance(node, ast.Call) and _sets_attribute(node)


def test_no_attribute_is_set_from_outside() -> None:
    wrong = {place: line for place, line in found().items() if place not in EXCEPTIONS}
    assert wrong == {}, "give it to the constructor, or give the class a method that says what happens"


def test_every_exception_is_still_needed() -> None:
    assert set(EXCEPTIONS) <= found().keys()


@pytest.mark.parametrize(
    "source",
    [
        "def wire(pool, relay):\n    pool.listener = relay.on_state",
        "def wire(app):\n    app.relay.server_info = dict",
        "class A:\n    def __init__(self, other):\n        other.changed = self",
        "class A:\n    def go(self):\n        self._pool.listener = None",
        "def count(flight):\n    flight.waiting += 1",
        "def count(a, b):\n    a.x, (b.y, *b.z) = 1, (2, 3)",
        "def keep(kept):\n    one = kept[0] = New()\n    one.used = True",
        "def keep(one):\n    one = one or New()\n    one.used = True",
        "def find(found):\n    one = found.get(1)\n    one.used = True",
        "def clear(one):\n    del one.used",
        "def set_it(one):\n    setattr(one, 'used', True)",
        "def loop(one):\n    for one.item in range(3):\n        pass",
        "def opened(one):\n    with open('x') as one.file:\n        pass",
        "def outer():\n    one = New()\n    def inner(one):\n        one.used = True\n    return inner, one",
    ],
)
def test_setting_an_attribute_of_a_shared_object_is_found(source: str) -> None:
    tree = ast.parse(source)
    assert any(map(sets_anything, ast.walk(tree)))
    assert list(set_from_outside(tree))


@pytest.mark.parametrize(
    "source",
    [
        "class A:\n    def __init__(self):\n        self.x = 1",
        "class A:\n    @classmethod\n    def made(cls):\n        one = cls.__new__(cls)\n        one.x = 1",
        "def start():\n    late = threading.Timer(1, stop)\n    late.daemon = True",
        "def wrap(command):\n    def run():\n        pass\n    run.__signature__ = 1\n    return run",
        "class A:\n    pass\nA.serializer = 1",
    ],
)
def test_setting_an_attribute_of_a_new_object_is_allowed(source: str) -> None:
    assert not list(set_from_outside(ast.parse(source)))
