"""YAML texts as documents, and as nodes with positions. The only module that uses the YAML library.

Called by `reading` and `yaml_edits`. An alias counts each time it is used, so a small text cannot become a huge
document.
"""

from __future__ import annotations

from typing import Any

from mcp_optimizer.config.textfiles.kinds import CannotEdit, UnreadableText

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
