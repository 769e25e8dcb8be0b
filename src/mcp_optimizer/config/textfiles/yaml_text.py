"""YAML texts: read as documents and as nodes with positions, and edited where mappings have one key per line. Used by
`reading` and `editing`; the only module that uses the YAML library.

An alias counts each time it is used, so a small text cannot become a huge document.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mcp_optimizer.config.textfiles.kinds import BOM, CannotEdit, UnreadableText, line_end
from mcp_optimizer.runtime.patterns import regex

# YAML texts as documents, and as nodes with positions. The only module that uses the YAML library. An alias counts
# each time it is used, so a small text cannot become a huge document.

_MOST_NODES = 200_000
_DEEPEST = 100
"""Maximum levels of a document. The library's composer is recursive, and crashes the process if there are too many."""
Node = Any
"""A node of the YAML library, which does not define types."""


def loaded(text: str) -> Any:
    import yaml

    node = composed(text)
    if node is None:
        return None
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        raise _unreadable(error) from None
    except (ValueError, TypeError, OverflowError):
        raise UnreadableText("A number, a date or a key is not usable") from None
    finally:
        loader.dispose()


def composed(text: str) -> Node | None:
    """The root node of a text, or None for an empty text."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _refuse_depth(text, loader)
        node = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        raise _unreadable(error) from None
    except yaml.YAMLError as error:
        raise UnreadableText(str(error).splitlines()[0]) from None
    except (ValueError, UnicodeError):
        raise UnreadableText("It contains characters that YAML does not allow") from None
    if node is not None:
        _measure(node, {}, set())
    return node


def _refuse_depth(text: str, loader: Any) -> None:
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _DEEPEST:
            raise UnreadableText("It is nested too deeply")


def children(node: Node) -> list[Node]:
    if isinstance(node.value, str):
        return []
    return [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]


def is_mapping(node: Node) -> bool:
    return bool(node.id == "mapping")


def is_list(node: Node) -> bool:
    return bool(node.id == "sequence")


def _measure(node: Node, sizes: dict[int, int], above: set[int]) -> int:
    """The number of nodes that a node stands for, with aliases followed."""
    if id(node) in above:
        raise UnreadableText("An alias contains itself")
    if id(node) not in sizes:
        above.add(id(node))
        sizes[id(node)] = 1 + sum(_measure(child, sizes, above) for child in children(node))
        above.discard(id(node))
    if sizes[id(node)] > _MOST_NODES:
        raise UnreadableText(f"With its aliases it has more than {_MOST_NODES:,} values")
    return sizes[id(node)]


def _unreadable(error: Any) -> UnreadableText:
    mark = error.problem_mark or error.context_mark
    where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return UnreadableText(f"{error.problem or error.context}{where}")


def dumped(value: Any, indentation: int) -> str:
    """A value as lines of YAML, without the final line ending."""
    import yaml

    try:
        text = yaml.safe_dump(
            value,
            default_flow_style=False,
            sort_keys=False,
            allow_unicode=True,
            width=1_000_000,
            indent=max(2, min(indentation, 9)),
        )
    except (yaml.YAMLError, UnicodeError):
        raise CannotEdit("The new value cannot be written as YAML") from None
    return str(text).rstrip("\n")


# Sets and removes values in the text of a YAML file whose mappings have one key per line. A mapping or list that is
# created for a value has one space after the colon of its key, so removing the value removes that key again.

_BY_HAND = "is written in braces or brackets; write it in lines, one key each, or edit it by hand"
_PLAIN_KEY = regex(r"[A-Za-z_][A-Za-z0-9_-]*")
_WORDS = frozenset("y n yes no on off true false null".split())
_ODD_LINE_END = regex("\r(?!\n)|[\x85\u2028\u2029]")


def with_value(text: str, path: Sequence[str], value: Any) -> str:
    mark, body = _opened(text)
    root = composed(body)
    if root is None or _is_absent(root):
        return mark + _at_the_end(body, _pair(path, value, "", "  "))
    holders, pair, depth = _walk(root, path)
    holder, unit = holders[-1], _unit(root)
    if pair is not None:
        start = _colon(body, pair)
        shown = " " + json.dumps(value) if holder.flow_style else _value(value, " " * pair[0].start_mark.column, unit)
        return mark + body[:start] + _lines(shown, body) + body[max(start, _end(body, pair[1], start)) :]
    if _is_absent(holder):
        owner = _pair_of(holders[-2], path[depth - 1])
        inner = " " * owner[0].start_mark.column + unit
        return mark + _below(body, owner, _pair(path[depth:], value, inner, unit))
    if not is_mapping(holder):
        raise CannotEdit(f"{_named(path[:depth])} is not a mapping, so nothing can be put into it")
    if holder.flow_style:
        if holder.value or len(path) - depth > 1:
            raise CannotEdit(f"{_named(path[:depth])} {_BY_HAND}")
        return mark + _before_the_bracket(body, holder, f"{json.dumps(path[-1])}: {json.dumps(value)}")
    column = " " * holder.value[0][0].start_mark.column
    return mark + _behind(body, holder, _pair(path[depth:], value, column, unit))


def without_value(text: str, path: Sequence[str]) -> list[str]:
    mark, body = _opened(text)
    holders, pair, _ = _walk(composed(body), path)
    if pair is None:
        return [text]
    depth = len(path) - 1
    while (
        depth and len(holders[depth].value) == 1 and _was_created(body, _pair_of(holders[depth - 1], path[depth - 1]))
    ):
        depth -= 1
    holder, pair = holders[depth], _pair_of(holders[depth], path[depth])
    owner = _pair_of(holders[depth - 1], path[depth - 1]) if depth else None
    return [mark + _taken_out(body, holder, pair[0].start_mark.index, pair[1], owner)]


def with_item(text: str, path: Sequence[str], item: Any) -> str:
    mark, body = _opened(text)
    root = composed(body)
    pair = None if root is None or _is_absent(root) else _walk(root, path)[1]
    if pair is None:
        return with_value(text, path, [item])
    unit = _unit(root)
    if _is_absent(pair[1]):
        return mark + _below(body, pair, _item(item, " " * pair[0].start_mark.column + unit, unit))
    if pair[1].flow_style:
        if pair[1].value:
            raise CannotEdit(f"{_named(path)} {_BY_HAND}")
        return mark + _before_the_bracket(body, pair[1], json.dumps(item))
    dash = _dash(body, pair[1].value[-1])
    column = body[body.rfind("\n", 0, dash) + 1 : dash]
    return mark + _behind(body, pair[1], _item(item, column, unit))


def without_item(text: str, path: Sequence[str], index: int) -> list[str]:
    mark, body = _opened(text)
    _, pair, _ = _walk(composed(body), path)
    if pair is None or not is_list(pair[1]):
        return [text]
    if len(pair[1].value) == 1 and _was_created(body, pair):
        return without_value(text, path)
    item = pair[1].value[index]
    start = item.start_mark.index if pair[1].flow_style else _dash(body, item)
    return [mark + _taken_out(body, pair[1], start, item, pair)]


def _opened(text: str) -> tuple[str, str]:
    if _ODD_LINE_END.search(text):
        raise CannotEdit("Its lines end in an unusual way; save it with ordinary line ends first")
    return (BOM, text[1:]) if text.startswith(BOM) else ("", text)


def _walk(node: Node, path: Sequence[str]) -> tuple[list[Node], Any, int]:
    """The existing nodes along a path, the key-value pair at its end if there is one, and the depth reached."""
    holders = [node]
    for depth, key in enumerate(path):
        if not is_mapping(node):
            return holders, None, depth
        pair = _pair_of(node, key)
        if pair is None:
            return holders, None, depth
        if depth == len(path) - 1:
            return holders, pair, depth
        node = pair[1]
        holders.append(node)
    raise AssertionError("a path has at least one key")


def _pair_of(node: Node, key: str) -> Any:
    found = [pair for pair in node.value if pair[0].id == "scalar" and pair[0].value == key]
    if len(found) > 1:
        raise CannotEdit(f'"{key}" is there more than once; remove all but one first')
    return found[0] if found else None


def _is_absent(node: Node) -> bool:
    """Whether a value is missing: a key with nothing after its colon."""
    return bool(node.id == "scalar" and node.start_mark.index == node.end_mark.index)


def _named(path: Sequence[str]) -> str:
    return f'"{".".join(path)}"' if path else "The document"


def _unit(root: Node) -> str:
    for key, value in root.value if is_mapping(root) else ():
        if is_mapping(value) and not value.flow_style:
            column: int = value.value[0][0].start_mark.column - key.start_mark.column
            return " " * max(1, column)
    return "  "


def _colon(body: str, pair: Any) -> int:
    """The index after the colon of a pair."""
    found = body.find(":", pair[0].end_mark.index)
    if found < 0:
        raise CannotEdit(f'The key "{pair[0].value}" is written in an unusual way; edit it by hand')
    return found + 1


def _end(body: str, node: Node, least: int) -> int:
    """The true end of a value: the library counts the text after a block as part of it."""
    while not isinstance(node.value, str) and not node.flow_style and node.value:
        node = children(node)[-1]
    end = node.end_mark.index
    if end < least:
        # An alias has the position of its anchor.
        raise CannotEdit("It uses an alias here; edit it by hand")
    if node.id == "scalar" and node.style in ("|", ">"):
        end = len(body[:end].rstrip())
    return int(end)


def _end_of_line(body: str, index: int) -> int:
    found = body.find("\n", index)
    found = len(body) if found < 0 else found
    return found - 1 if body[found - 1 : found] == "\r" and found > index else found


def _was_created(body: str, pair: Any) -> bool:
    start = _colon(body, pair)
    return not pair[1].flow_style and body[start : _end_of_line(body, start)] == " "


def _taken_out(body: str, holder: Node, start: int, value: Node, owner: Any) -> str:
    """The text without one member of a mapping or list. It starts at `start`; `owner` is the pair of the holder."""
    end = _end(body, value, start)
    if holder.flow_style:
        if len(holder.value) > 1:
            raise CannotEdit(f"What contains it {_BY_HAND}")
        return body[:start] + body[end:]
    line = body.rfind("\n", 0, start) + 1
    if body[line:start].strip():
        raise CannotEdit("It shares its line with other text; edit it by hand")
    stop = _end_of_line(body, end)
    if line:
        line -= 2 if body[line - 2 : line] == "\r\n" else 1
    else:
        stop += len(line_end(body)) if stop < len(body) else 0
    if owner is not None and len(holder.value) == 1:
        colon = _colon(body, owner)
        if body[colon : colon + 2] == "  ":
            return body[:colon] + body[colon + 1 : line] + body[stop:]
    return body[:line] + body[stop:]


def _below(body: str, owner: Any, shown: str) -> str:
    """The text with lines added below a key that has no value yet."""
    colon = _colon(body, owner)
    more = " " if body[colon : colon + 1] == " " else ""
    stop = _end_of_line(body, colon)
    return body[:colon] + more + body[colon:stop] + _lines("\n" + shown, body) + body[stop:]


def _behind(body: str, holder: Node, shown: str) -> str:
    """The text with lines added after the last member of a mapping or list."""
    stop = _end_of_line(body, _end(body, holder, holder.start_mark.index))
    return body[:stop] + _lines("\n" + shown, body) + body[stop:]


def _at_the_end(body: str, shown: str) -> str:
    if not body:
        return shown + "\n"
    stop = _end_of_line(body, body.rfind("\n")) if body.endswith("\n") else len(body)
    stop = stop - 1 if body.endswith("\r\n") else stop
    return body[:stop] + _lines("\n" + shown, body) + body[stop:]


def _before_the_bracket(body: str, holder: Node, shown: str) -> str:
    stop = holder.end_mark.index - 1
    return body[:stop] + shown + body[stop:]


def _dash(body: str, item: Node) -> int:
    before = body[: item.start_mark.index].rstrip()
    if not before.endswith("-"):
        raise CannotEdit("An item of the list is written in an unusual way; edit it by hand")
    return len(before) - 1


def _lines(shown: str, body: str) -> str:
    return shown.replace("\n", line_end(body))


def _pair(keys: Sequence[str], value: Any, indentation: str, unit: str) -> str:
    created = [indentation + unit * number + _key(key) + ": \n" for number, key in enumerate(keys[:-1])]
    inner = indentation + unit * (len(keys) - 1)
    behind = _value(value, inner, unit)
    # A created list is marked as well, so removing its item removes the list.
    is_list_in_lines = isinstance(value, list) and behind.startswith("\n")
    return "".join(created) + inner + _key(keys[-1]) + ":" + (" " if is_list_in_lines else "") + behind


def _value(value: Any, indentation: str, unit: str) -> str:
    """The text after the colon: a space and a scalar, or lines."""
    first, *rest = dumped({"k": value}, len(unit)).removeprefix("k:").split("\n")
    return "\n".join([first, *(indentation + line for line in rest)])


def _item(item: Any, indentation: str, unit: str) -> str:
    return "\n".join(indentation + line for line in dumped([item], len(unit)).split("\n"))


def _key(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) and key.lower() not in _WORDS else json.dumps(key, ensure_ascii=False)
