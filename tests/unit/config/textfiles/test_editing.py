"""Edits of JSON, TOML and YAML texts: what they change, and that they change nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mcp_optimizer.config.textfiles.editing import CannotEdit, with_item, with_value, without_item, without_value
from mcp_optimizer.config.textfiles.kinds import FileKind
from mcp_optimizer.config.textfiles.reading import UnreadableText, parsed
from tests.unit.config.textfiles.documents import json_texts, paths, toml_texts, values, yaml_texts

ENTRY = {"command": "/bin/x", "args": ["serve", "--config", "a b"], "env": {"A": "1"}}
TEXTS = {FileKind.JSON: json_texts(), FileKind.TOML: toml_texts(), FileKind.YAML: yaml_texts()}


def at(document: Any, path: list[str]) -> Any:
    for key in path:
        document = document[key]
    return document


def is_there(document: Any, path: list[str]) -> bool:
    for key in path:
        if not isinstance(document, dict) or key not in document:
            return False
        document = document[key]
    return True


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(FileKind))
@settings(deadline=None)
@given(data=st.data())
def test_what_was_added_is_removed_byte_for_byte(kind: FileKind, data: st.DataObject) -> None:
    text, path, value = data.draw(TEXTS[kind]), data.draw(paths()), data.draw(values())
    before = parsed(text, kind) if text.strip() else {}
    assume(not is_there(before, path))
    try:
        added = with_value(text, kind, path, value)
    except CannotEdit:
        return
    assert at(parsed(added, kind), path) == value
    assert without_value(added, kind, path) == text


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(FileKind))
@settings(deadline=None)
@given(data=st.data())
def test_an_ordinary_document_can_be_edited(kind: FileKind, data: st.DataObject) -> None:
    text = data.draw(TEXTS[kind])
    added = with_value(text, kind, ["brand new", "mcp-optimizer"], ENTRY)
    assert at(parsed(added, kind), ["brand new", "mcp-optimizer"]) == ENTRY
    assert without_value(added, kind, ["brand new", "mcp-optimizer"]) == text


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(FileKind))
@settings(deadline=None)
@given(data=st.data())
def test_any_value_can_be_replaced_or_removed_and_the_others_stay(kind: FileKind, data: st.DataObject) -> None:
    text, value = data.draw(TEXTS[kind]), data.draw(values())
    document = parsed(text, kind) if text.strip() else {}
    assume(document)
    path = [data.draw(st.sampled_from(sorted(document)))]
    if isinstance(document[path[0]], dict) and document[path[0]]:
        path.append(data.draw(st.sampled_from(sorted(document[path[0]]))))
    others = {key: item for key, item in document.items() if key != path[0]}
    changes: list[Callable[[], str]] = [
        lambda: with_value(text, kind, path, value),
        lambda: without_value(text, kind, path),
    ]
    for change in changes:
        try:
            changed = parsed(change(), kind) or {}
        except CannotEdit:
            continue
        assert {key: item for key, item in changed.items() if key != path[0]} == others


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(FileKind))
@settings(deadline=None)
@given(text=st.text(alphabet="{}[]\":,/*#\n\r\t -|>&*!ab1=.'\\\ufeff", max_size=40), path=paths(), value=values())
def test_no_text_makes_an_edit_fail_in_another_way(kind: FileKind, text: str, path: list[str], value: Any) -> None:
    changes: list[Callable[[], str]] = [
        lambda: with_value(text, kind, path, value),
        lambda: without_value(text, kind, path),
        lambda: with_item(text, kind, path, value),
        lambda: without_item(text, kind, path, 0),
    ]
    for change in changes:
        try:
            parsed(change(), kind)
        except (CannotEdit, UnreadableText):
            continue


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{\r\n\t"a": 1 // one\r\n}', '{\r\n\t"a": 1, // one\r\n\t"s": {\r\n\t\t"x": 1\r\n\t}\r\n}'),
        ('{"a": 1}', '{"a": 1, "s": {"x": 1}}'),
        ('{"a": 1,}', '{"a": 1, "s": {"x": 1},}'),
        ('\ufeff{\n    "a": [\n    ]\n}\n', '\ufeff{\n    "a": [\n    ],\n    "s": {\n        "x": 1\n    }\n}\n'),
    ],
)
def test_json_is_written_in_the_file_s_own_manner(text: str, expected: str) -> None:
    assert with_value(text, FileKind.JSON, ["s"], {"x": 1}) == expected
    assert without_value(expected, FileKind.JSON, ["s"]) == text


def test_what_follows_an_object_that_was_created_stays() -> None:
    added = with_value("", FileKind.JSON, ["a"], 1) + "// later"
    assert without_value(added, FileKind.JSON, ["a"]) == "{}\n// later"


def test_comments_stay_when_a_member_between_others_is_removed() -> None:
    text = '{\n  "a": 1, // one\n  "b": 2, // two\n  "c": 3 // three\n}'
    assert without_value(text, FileKind.JSON, ["b"]) == '{\n  "a": 1, // one // two\n  "c": 3 // three\n}'
    assert parsed(without_value('{"a": 1, // one\n "b": 2}', FileKind.JSON, ["b"]), FileKind.JSON) == {"a": 1}


def test_a_table_of_toml_goes_with_its_tables_and_comes_as_one_block() -> None:
    text = '# top\nmodel = "x" # m\n\n[servers.a]\nurl = "u"\n\n[servers.a.env]\nK = "v"\n\n# about b\n[servers.b]\n'
    assert without_value(text, FileKind.TOML, ["servers", "a"]) == '# top\nmodel = "x" # m\n\n# about b\n[servers.b]\n'
    tight = 'x = 1\n[servers.a]\nurl = "u"\n[servers.b]\n'
    assert without_value(tight, FileKind.TOML, ["servers", "a"]) == "x = 1\n[servers.b]\n"
    assert with_value(text, FileKind.TOML, ["servers", "a"], {"url": "w"}) == (
        '# top\nmodel = "x" # m\n\n[servers.a]\nurl = "w"\n\n# about b\n[servers.b]\n'
    )


def test_items_of_a_yaml_list_come_and_go() -> None:
    text = "name: x\nmcpServers:\n  - name: a # first\n    command: b\n\n# end\n"
    added = with_item(text, FileKind.YAML, ["mcpServers"], {"name": "c"})
    assert added == "name: x\nmcpServers:\n  - name: a # first\n    command: b\n  - name: c\n\n# end\n"
    assert without_item(added, FileKind.YAML, ["mcpServers"], 1) == text
    assert parsed(without_item(added, FileKind.YAML, ["mcpServers"], 0), FileKind.YAML) == {
        "name": "x",
        "mcpServers": [{"name": "c"}],
    }


@pytest.mark.parametrize(
    ("kind", "text", "path", "words"),
    [
        (FileKind.JSON, '{"s": {"a": 1, "a": 2}}', ["s", "a"], '"a" is there more than once'),
        (FileKind.JSON, '{"s": []}', ["s", "a"], '"s" is not an object'),
        (FileKind.JSON, "[]", ["s"], "not an object"),
        (FileKind.JSON, "{\r}", ["s"], "carriage return"),
        (FileKind.TOML, "s = { a = 1 }", ["s", "b"], "inline table"),
        (FileKind.YAML, "s: {a: 1}", ["s", "b"], "braces"),
        (FileKind.YAML, "a: &x {b: 1}\ns: *x", ["s"], "alias"),
    ],
)
def test_what_cannot_be_edited_safely_is_refused_with_the_reason(
    kind: FileKind, text: str, path: list[str], words: str
) -> None:
    with pytest.raises(CannotEdit, match=words):
        with_value(text, kind, path, 1)


def test_a_value_that_the_kind_cannot_hold_is_refused() -> None:
    for kind, value in ((FileKind.JSON, float("nan")), (FileKind.TOML, None), (FileKind.YAML, object())):
        with pytest.raises(CannotEdit):
            with_value("", kind, ["a"], value)


@pytest.mark.slow
def test_a_large_file_is_edited_quickly() -> None:
    text = json.dumps({"history": {str(number): "x" * 50 for number in range(20_000)}, "mcpServers": {}}, indent=2)
    added = with_value(text, FileKind.JSON, ["mcpServers", "a"], ENTRY)
    assert without_value(added, FileKind.JSON, ["mcpServers", "a"]) == text


def test_a_mapping_that_an_alias_repeats_is_not_changed_in_two_places() -> None:
    with pytest.raises(CannotEdit):
        with_value("servers: &all\n  a: 1\nothers: *all\n", FileKind.YAML, ("servers", "b"), 2)
