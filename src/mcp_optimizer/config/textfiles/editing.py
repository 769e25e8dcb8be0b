"""Sets and removes one value in a configuration file's text; every other byte stays as it is.

Called by every module that edits a person's file. Each result is parsed and compared with the expected document
before it is returned, so a text that an edit does not understand is refused, never damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcp_optimizer.config.textfiles import json_text, toml_edits, yaml_text
from mcp_optimizer.config.textfiles.kinds import CannotEdit, FileKind, UnreadableText
from mcp_optimizer.config.textfiles.reading import parsed

__all__ = ["CannotEdit", "with_item", "with_value", "without_item", "without_value"]

_EDITS = {FileKind.JSON: json_text, FileKind.TOML: toml_edits, FileKind.YAML: yaml_text}


def with_value(text: str, kind: FileKind, path: Sequence[str], value: Any) -> str:
    """The text with `value` at a path of keys. Missing objects on the path are created."""
    _check(path)
    try:
        expected = _document(text, kind)
        _put(expected, path, value)
        return _checked([_EDITS[kind].with_value(text, path, value)], kind, [expected])
    except RecursionError:
        raise CannotEdit("It is nested too deeply") from None


def without_value(text: str, kind: FileKind, path: Sequence[str]) -> str:
    """The text without the value at a path of keys, and without objects that `with_value` created for it."""
    _check(path)
    try:
        if not _has(_document(text, kind), path):
            return text
        return _checked(_EDITS[kind].without_value(text, path), kind, _without(text, kind, path))
    except RecursionError:
        raise CannotEdit("It is nested too deeply") from None


def with_item(text: str, kind: FileKind, path: Sequence[str], item: Any, *, first: bool = False) -> str:
    """The text with an item at the end of the list at a path, or in TOML with `first` at its start. Not for JSON."""
    _check(path)
    expected = _document(text, kind)
    there = _at(expected, path)
    if there is not None and not isinstance(there, list):
        raise CannotEdit(f'"{".".join(path)}" is not a list')
    _put(expected, path, [item, *(there or [])] if first else [*(there or []), item])
    _has_items(kind)
    if kind is FileKind.TOML:
        return _checked([toml_edits.with_item(text, path, item, first=first)], kind, [expected])
    return _checked([yaml_text.with_item(text, path, item)], kind, [expected])


def without_item(text: str, kind: FileKind, path: Sequence[str], index: int) -> str:
    """The text without one item of the list at a path. Not for JSON."""
    _check(path)
    expected = _document(text, kind)
    there = _at(expected, path)
    if not isinstance(there, list) or not 0 <= index < len(there):
        return text
    _has_items(kind)
    rest = there[:index] + there[index + 1 :]
    _put(expected, path, rest)
    choices = [expected]
    if not rest:
        empty = _document(text, kind)
        _put(empty, path, None)
        choices += [empty, *_without(text, kind, path)]
    edits = toml_edits if kind is FileKind.TOML else yaml_text
    return _checked(edits.without_item(text, path, index), kind, choices)


def _has_items(kind: FileKind) -> None:
    if kind is FileKind.JSON:
        raise CannotEdit(f"Items of lists are not edited in {kind}")


def _check(path: Sequence[str]) -> None:
    if not path or not all(isinstance(key, str) for key in path):
        raise CannotEdit("The path to edit must be one or more keys")


def _document(text: str, kind: FileKind) -> Any:
    """The document, parsed anew on each call. An empty text is an empty object."""
    if kind is FileKind.JSON and not text.lstrip("\ufeff").strip():
        return {}
    document = parsed(text, kind)
    if kind is FileKind.YAML:
        # Aliases share one object, so a change would appear at all of them.
        document = {} if document is None else _unshared(document)
    if not isinstance(document, dict):
        raise CannotEdit("The document is not an object with keys")
    return document


def _unshared(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unshared(item) for key, item in value.items()}
    return [_unshared(item) for item in value] if isinstance(value, list) else value


def _at(document: Any, path: Sequence[str]) -> Any:
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _has(document: Any, path: Sequence[str]) -> bool:
    above = _at(document, path[:-1])
    return isinstance(above, dict) and path[-1] in above


def _put(document: Any, path: Sequence[str], value: Any) -> None:
    for number, key in enumerate(path[:-1]):
        if document.get(key) is None:
            document[key] = {}
        document = document[key]
        if not isinstance(document, dict):
            raise CannotEdit(f'"{".".join(path[: number + 1])}" is not an object, so nothing can be put into it')
    document[path[-1]] = list(value) if isinstance(value, tuple) else value


def _without(text: str, kind: FileKind, path: Sequence[str]) -> list[Any]:
    """The accepted results: without the value; also without objects that this empties, or in YAML null for them."""
    choices = []
    for end in range(len(path), 0, -1):
        document = _document(text, kind)
        above = _at(document, path[: end - 1])
        del above[path[end - 1]]
        choices.append(document)
        if above:
            break
        if end > 1 and kind is FileKind.YAML:
            document = _document(text, kind)
            _at(document, path[: end - 2])[path[end - 2]] = None
            choices.append(document)
    return choices


def _checked(results: Sequence[str], kind: FileKind, choices: Sequence[Any]) -> str:
    for result in results:
        try:
            document = _document(result, kind)
        except (UnreadableText, CannotEdit):
            continue
        if any(_same(document, choice) for choice in choices):
            return result
    raise CannotEdit("This text cannot be edited without other changes; edit it by hand")


def _same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    # Compared by repr, because NaN differs from itself.
    return bool(one == other) or repr(one) == repr(other)
