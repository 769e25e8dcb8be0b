"""Reads a configuration file's text: JSON (with comments), TOML or YAML.

Called by every module that has such a text; knows nothing of files or of a text's purpose. Hostile texts are refused:
too long, nested too deeply, or YAML whose aliases would fill the memory.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from typing import Any, NoReturn

from mcp_optimizer.config.textfiles import yaml_text
from mcp_optimizer.config.textfiles.json_text import repeated_keys, strict
from mcp_optimizer.config.textfiles.kinds import BOM, LARGEST, FileKind, UnreadableText, place
from mcp_optimizer.runtime.patterns import regex

# The standard library's parser takes time quadratic in the number of a key's parts.
_ENDLESS_KEY = regex(r"""(?:(?:(?<![\w-])[\w-]++|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){30}""")

__all__ = ["UnreadableText", "duplicate_keys", "parsed"]


def parsed(text: str, kind: FileKind) -> Any:
    """The document in the text. Raises UnreadableText, which says where the text is wrong."""
    if len(text) > LARGEST[kind]:
        raise UnreadableText(f"It is longer than {LARGEST[kind]:,} characters")
    try:
        if kind is FileKind.JSON:
            return _json(text)
        if kind is FileKind.TOML:
            return _toml(text)
        return yaml_text.loaded(text.removeprefix(BOM))
    except RecursionError:
        raise UnreadableText("It is nested too deeply") from None


def duplicate_keys(text: str) -> list[str]:
    """Keys that occur more than once in an object of a JSON text, each with its path and lines."""
    found: list[bool] = []

    def noted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found.extend(count > 1 for count in Counter(key for key, _ in pairs).values() if count > 1)
        return dict(pairs)

    readable = strict(text)
    _decoded(readable, noted)
    return repeated_keys(readable) if found else []


def _json(text: str) -> Any:
    return _decoded(strict(text), None)


def _decoded(text: str, hook: Any) -> Any:
    try:
        return json.loads(text, object_pairs_hook=hook, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise UnreadableText(f"{error.msg.removesuffix(' at')} at line {error.lineno}, column {error.colno}") from None
    except UnreadableText:
        raise
    except RecursionError:
        raise UnreadableText("It is nested too deeply") from None
    except ValueError:
        raise UnreadableText("A number has too many digits") from None


def _refuse_constant(name: str) -> NoReturn:
    raise UnreadableText(f"{name} is not a JSON value")


def _toml(text: str) -> Any:
    if endless := _ENDLESS_KEY.search(text):
        raise UnreadableText(f"A key has too many parts {place(text, endless.start())}")
    try:
        return tomllib.loads(text.removeprefix(BOM))
    except tomllib.TOMLDecodeError as error:
        raise UnreadableText(str(error).replace("(at", "at").rstrip(")")) from None
    except ValueError:
        # From a number or a date that Python cannot represent.
        raise UnreadableText("A number or a date is out of range") from None
