"""What is special about a client is in its row or module: no other room asks which client it has."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

import pytest

from mcp_optimizer.config.known_clients.habits import HABITS
from mcp_optimizer.config.known_clients.table import CLIENTS
from tests.contract import sources
from tests.contract.sources import PACKAGE, nodes_of

FACTS = PACKAGE / "config" / "known_clients"
FILES = [path for path in sources.FILES if not path.is_relative_to(FACTS)]

NAMES = {*CLIENTS, *(client.title for client in CLIENTS.values()), *HABITS}
WORDS = {"cursor", "continue"}
"""Names that mean something else, too, such as the key of the next page. They count where they are compared with a
client."""


def named(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Where a text of a file is the name of a client."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value
            if name in NAMES - WORDS:
                yield node.lineno, name
        elif isinstance(node, ast.Compare) and "client" in ast.unparse(node):
            parts = [part for side in (node.left, *node.comparators) for part in ast.walk(side)]
            words = {part.value for part in parts if isinstance(part, ast.Constant) and part.value in WORDS}
            yield from ((node.lineno, str(word)) for word in words)


def test_no_other_room_names_a_client() -> None:
    assert [
        f"{path.relative_to(PACKAGE)}:{line} names {name!r}" for path in FILES for line, name in named(nodes_of(path))
    ] == []


@pytest.mark.parametrize(
    "text",
    [
        'if client.name == "codex": pass',
        'if one.client in ("opencode", "zed"): pass',
        'match client:\n    case "vibe": pass',
        '_URL_KEYS = {"gemini": "httpUrl"}',
        'is_asking = name.startswith("claude")',
        'if "continue" == client.name: pass',
        'if file.client.name in ("cursor", other): pass',
        'title = "VS Code"',
    ],
)
def test_every_way_to_name_one_is_seen(text: str) -> None:
    assert list(named(ast.walk(ast.parse(text))))
    assert not list(named(ast.walk(ast.parse('cursor = page["cursor"]\nkey = "continue token"\n"""As codex does."""'))))
