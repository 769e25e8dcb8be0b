"""Reading of configuration files' texts: positions of errors, and texts that were made to do harm."""

from __future__ import annotations

import time

import pytest

from mcp_optimizer.config.textfiles.kinds import FileKind
from mcp_optimizer.config.textfiles.reading import UnreadableText, duplicate_keys, parsed

LAUGHS = "a0: &a0 [x, x, x]\n" + "".join(
    f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 9)}]\n" for number in range(1, 12)
)


def test_comments_commas_and_marks_do_not_matter() -> None:
    assert parsed('\ufeff{"a": [1, /* , ] */ 2,], // "b": 3\n}', FileKind.JSON) == {"a": [1, 2]}
    assert parsed("\ufeffa = 1", FileKind.TOML) == parsed("\ufeffa: 1", FileKind.YAML) == {"a": 1}


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        (FileKind.JSON, '{\n  "a" 1}', "at line 2, column 7"),
        (FileKind.JSON, '{"a": "b', "Unterminated string starting at line 1, column 7"),
        (FileKind.JSON, "{ /* a\n", "never closed at line 1, column 3"),
        (FileKind.JSON, "[NaN]", "NaN is not a JSON value"),
        (FileKind.JSON, "1" * 5000, "too many digits"),
        (FileKind.JSON, "[" * 100_000, "nested too deeply"),
        (FileKind.JSON, '"' + '\\"' * 500_000, "Unterminated"),
        (FileKind.TOML, "a = 1\nb = ", "at line 2, column 5|at end of document"),
        (FileKind.TOML, "a=" + "[" * 50_000, "nested too deeply"),
        (FileKind.TOML, "x = 1\n" + ".".join(["a"] * 20_000) + " = 1", "too many parts at line 2, column 1"),
        (FileKind.YAML, "a: b\n c: [", "at line 2, column"),
        (FileKind.YAML, LAUGHS, "aliases"),
        (FileKind.YAML, "a: &a [*a]", "contains itself"),
        (FileKind.YAML, "!!python/object/apply:os.system [true]", "constructor"),
        (FileKind.YAML, "a: 1\n---\nb: 2", "at line 2, column 1"),
        (FileKind.YAML, "x" * 3_000_000, "longer than"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(kind: FileKind, text: str, words: str) -> None:
    with pytest.raises(UnreadableText, match=words):
        parsed(text, kind)


def test_keys_that_are_there_twice_are_named_with_their_lines() -> None:
    text = '{\n"s": {"a": {}, // one\n"b": ["a", {"c": 1, "c": 2}],\n"a": {}}\n}'
    assert duplicate_keys(text) == ["s.b.c (lines 3, 3)", "s.a (lines 2, 4)"]
    assert duplicate_keys('{"a": {"b": 1}, "b": {"a": 1}}') == []


@pytest.mark.slow
def test_a_crowd_of_names_that_are_there_twice_is_counted_quickly() -> None:
    names = 30_000
    text = '{"mcpServers": {' + ",\n".join(f'"k{number}": 1, "k{number}": 2' for number in range(names)) + "}}"
    begin = time.process_time()
    found = duplicate_keys(text)
    assert time.process_time() - begin < 5
    assert (len(found), found[-1]) == (names, f"mcpServers.k{names - 1} (lines {names}, {names})")
