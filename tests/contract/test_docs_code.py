"""Every code block of the documentation is what it says it is: commands have these options, and the rest can be read.

What a block does is shown elsewhere: `tests/e2e/test_examples.py` runs those of the Python API.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest
import typer.main
import yaml
from typer.exceptions import TyperException

from mcp_optimizer.cli import program
from mcp_optimizer.config.textfiles.kinds import FileKind
from mcp_optimizer.config.textfiles.reading import parsed
from tests.conftest import ROOT

PAGES = [
    ROOT / "README.md",
    *(ROOT / name for name in ("CONTRIBUTING.md", "RELEASING.md", "SECURITY.md", "examples/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
OURS = ("mcp-optimizer", "mcp-optimizer-gateway")
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_PROMPTS = re.compile(r"^\$ ")


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in _BLOCK.finditer(text):
            inside = re.sub(rf"^{match[1]}", "", match[3], flags=re.MULTILINE)
            yield Block(str(page.relative_to(ROOT)), text.count("\n", 0, match.start()) + 1, match[2], inside)


BLOCKS = list(blocks())


def of(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages]


def commands(block: Block) -> Iterator[list[str]]:
    """Our commands in a block, without what comes before and after them in their line."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(_PROMPTS.sub("", line.strip()), comments=True)
        for number, word in enumerate(words):
            if word.rpartition("/")[2] in OURS and (number == 0 or words[number - 1] not in ("install", "upgrade")):
                following = words[number + 1 :]
                ends = (at for at, one in enumerate(following) if one in ("|", ">", "&&", "||", ";", "&", "2>"))
                yield following[: next(ends, len(following))]
                break


@cache
def command_line() -> Any:
    """All commands; loading them takes a while."""
    return typer.main.get_command(program())


def wrong(words: list[str]) -> str:
    """Why the command line would refuse these words, or nothing."""
    command = command_line()
    rest = list(words)
    while hasattr(command, "commands"):
        if not rest or rest[0].startswith("-"):
            return "" if rest in ([], ["--version"], ["--help"]) else f"no command, but {rest}"
        name = rest.pop(0)
        if name not in command.commands:
            return f"there is no command {name}"
        command = command.commands[name]
    try:
        # Reads and checks the words; nothing is carried out.
        command.make_context(words[0], rest)
    except TyperException as problem:
        return str(getattr(problem, "message", "")) or repr(problem)
    return ""


def test_commands_with_wrong_options_would_be_found() -> None:
    assert wrong(["connect", "cursor", "--nonsense"])
    assert wrong(["nonsense"])
    assert wrong(["key", "create"])
    assert wrong(["connect", "cursor", "--dry-run"]) == ""


@pytest.mark.parametrize("block", of("sh", "console"), ids=lambda block: block.name)
def test_every_command_of_the_documentation_exists_with_its_options(block: Block) -> None:
    assert [f"{' '.join(words)}: {problem}" for words in commands(block) if (problem := wrong(words))] == []


@pytest.mark.parametrize("block", of("json", "jsonc", "toml", "yaml", "python"), ids=lambda block: block.name)
def test_every_other_block_can_be_read(block: Block) -> None:
    match block.language:
        case "json" | "jsonc":
            try:
                json.loads(block.text)
            except ValueError:
                # With comments.
                assert parsed(block.text, FileKind.JSON) is not None
        case "toml":
            tomllib.loads(block.text)
        case "yaml":
            assert yaml.safe_load(block.text)
        case _:
            compile(block.text, block.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_there_are_blocks_of_every_kind() -> None:
    assert len(of("sh")) > 40
    assert len(of("json")) > 25
    assert len(of("python")) > 15
