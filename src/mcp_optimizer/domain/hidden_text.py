"""Finds characters that are invisible to people but read by models; removes or shows them. Pure.

Hidden are zero-width characters, direction controls, tag characters, soft hyphens, fillers and variation selectors. Not
hidden, because they change what is seen: joiners after a letter of a script that needs them (Arabic, Indic scripts and
others) and between two emoji, one selector after an emoji or a keycap, and the tags of the three flags that have them.
Values that a program compares are never changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN_TEXT = 1
"""Increase this when other characters are removed; stored forms of definitions are then made again."""

_EMOJI = "\u203c\u2049\u2100-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_JOINED = (
    "\u0620-\u08ff\u0900-\u0dff\u0f00-\u0fff\u1000-\u109f\u1780-\u17b3\u17b6-\u17ff\u1820-\u18aa"
    "\ua840-\ua877\ufb50-\ufdff\ufe70-\ufefe"
)
"""Scripts in which a joiner, or its absence, changes how letters look."""

_SUSPECTS = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_SUSPECT = re.compile(f"[{_SUSPECTS}]")

_FLAGS = tuple(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in name) + "\U000e007f"
    for name in ("gbeng", "gbsct", "gbwls")
)
_SEEN = re.compile(
    f"{'|'.join(_FLAGS)}"
    f"|(?<=[{_JOINED}])[\u200c\u200d]"
    f"|(?<=[\u1820-\u18aa])[\u180b-\u180d\u180f]"
    f"|(?<=[#*0-9\u00a9\u00ae{_EMOJI}])[\ufe0e\ufe0f]"
    f"|(?:(?<=[{_EMOJI}])|(?<=[{_EMOJI}]\ufe0f))\u200d(?=[{_EMOJI}])"
    f"|(?P<hidden>[{_SUSPECTS}])"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

_VALUES = frozenset(
    "enum const default pattern format type required dependentRequired $ref $id $schema $anchor $dynamicRef "
    "$dynamicAnchor contentEncoding contentMediaType".split()
)
"""Keywords whose values programs compare; a change would change the schema."""
_NAMED = frozenset("properties patternProperties $defs definitions dependentSchemas dependencies".split())
"""Keywords whose members have names of their own: a property may be called `default`."""
_UNTOUCHED = frozenset({"name", "_meta", "icons"})
"""Fields of a tool that are not text for a model."""


def has_hidden(text: str) -> bool:
    """Whether a text has hidden characters. Almost free for the many texts that have none."""
    return not text.isascii() and any(_is_hidden(found) for found in _suspicious(text))


def without_hidden(text: str) -> str:
    """The text as a person would see it."""
    if text.isascii() or _SUSPECT.search(text) is None:
        return text
    return _SEEN.sub(lambda found: "" if _is_hidden(found) else found.group(), text)


def with_hidden_shown(text: str) -> str:
    r"""The text with every hidden or control character written as \u{...}; newlines and tabs stay."""
    shown = _SEEN.sub(lambda found: _written(found.group()) if _is_hidden(found) else found.group(), text)
    return _CONTROL.sub(lambda found: _written(found.group()), shown)


def tool_without_hidden(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's definition with all texts as a person would see them; names and values stay unchanged."""
    return {key: value if key in _UNTOUCHED else _seen(value) for key, value in tool.items()}


def _seen(value: Any) -> Any:
    if isinstance(value, str):
        return without_hidden(value)
    if isinstance(value, list):
        return [_seen(item) for item in value]
    if isinstance(value, dict):
        return {key: _member(key, item) for key, item in value.items()}
    return value


def _member(key: str, value: Any) -> Any:
    if key in _NAMED and isinstance(value, dict):
        return {name: _seen(item) for name, item in value.items()}
    return value if key in _VALUES else _seen(value)


def _suspicious(text: str) -> list[re.Match[str]]:
    return list(_SEEN.finditer(text)) if _SUSPECT.search(text) else []


def _is_hidden(found: re.Match[str]) -> bool:
    # The last alternative of the expression: none of the visible cases before it matched.
    return found.lastgroup == "hidden"


def _written(text: str) -> str:
    return "".join(f"\\u{{{ord(letter):x}}}" for letter in text)
