"""A shown change never has a text of others in it: not in values, comments, or lines of long texts."""

from __future__ import annotations

import pytest

from mcp_optimizer.config.clients.applying import shown_change
from mcp_optimizer.config.textfiles.kinds import FileKind

HIDDEN = "planted"


@pytest.mark.parametrize(
    ("kind", "before", "added"),
    [
        (FileKind.JSON, '{\n/* x\n "planted": 1\n \'planted\' : planted=planted\n pw = planted */\n"a":1%s}', ',"b":2'),
        (FileKind.JSON, '{"a": "x\\"planted\\": y", "b": ["planted"]%s}', ', "c": 1'),
        (FileKind.TOML, 'key = """\nplanted=\nplanted: x\n[planted]\n"""\na = "planted" # planted\n%s', "[b]\n"),
        (FileKind.TOML, "a.b = 'planted'\nc = {d = \"planted\"}\n%s", "[b]\n"),
        (FileKind.YAML, "a: |\n  - planted:\n  planted=\n  planted: z\nc: [planted, {d: planted}]\n%s", "q: 1\n"),
        (FileKind.YAML, "b: planted\na:\n  - planted\n  - {x: planted}\n%s", "q: 1\n"),
    ],
)
def test_texts_of_others_are_hidden_wherever_they_are(kind: FileKind, before: str, added: str) -> None:
    lines = before.count("\n")
    shown = shown_change(before % "", before % added, "file", kind, ["mcp-optimizer"])
    assert shown
    assert HIDDEN not in "\n".join(shown)
    # Also if every line is near the change.
    for at in range(lines):
        parts = (before % "").split("\n")
        changed = "\n".join([*parts[:at], parts[at] + " ", *parts[at + 1 :]])
        assert HIDDEN not in "\n".join(shown_change(before % "", changed, "file", kind, []))


def test_short_numbers_are_values_too() -> None:
    shown = "\n".join(shown_change('{"pin": 123}', '{"pin": 123, "b": 1}', "file", FileKind.JSON, [{"b": 1}]))
    assert '"pin": …' in shown
    assert "123" not in shown
    assert '"b": 1' in shown
