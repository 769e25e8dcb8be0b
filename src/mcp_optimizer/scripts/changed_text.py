"""A script's text and the changes to it, none of which adds or removes a line. Called by `source`."""

from __future__ import annotations

import ast


class ChangedText:
    """A script's text and the changes to it, none of which adds or removes a line."""

    def __init__(self, script: str) -> None:
        self._data = script.encode("utf-8", "replace")
        self._starts = [0]
        for line in self._data.split(b"\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._opened: dict[int, list[str]] = {}
        self._closed: dict[int, list[str]] = {}
        self._replaced: dict[int, tuple[int, str]] = {}

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def has(self, node: ast.expr | ast.stmt, text: str) -> bool:
        """Whether a node stands where the tree says, which is not certain inside f-strings."""
        start = self._at(node.lineno, node.col_offset)
        return self._data[start : start + len(text.encode())] == text.encode()

    def replace(self, node: ast.expr | ast.stmt, old: str, new: str) -> bool:
        """Replace the beginning of a node, if it is what is expected."""
        if not self.has(node, old):
            return False
        self._replaced[self._at(node.lineno, node.col_offset)] = (len(old.encode()), new)
        return True

    def wrap(self, node: ast.expr, before: str, after: str) -> None:
        """Put text around a node. Outer nodes come before the nodes inside them."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        self._opened.setdefault(self._at(node.lineno, node.col_offset), []).append(before)
        self._closed.setdefault(self._at(node.end_lineno, node.end_col_offset), []).insert(0, after)

    def changed(self) -> str:
        """The text with all changes."""
        pieces: list[bytes] = []
        at = 0
        for place in sorted({*self._opened, *self._closed, *self._replaced}):
            pieces.append(self._data[at:place])
            at = place
            pieces += [text.encode() for text in (*self._closed.get(place, ()), *self._opened.get(place, ()))]
            if place in self._replaced:
                length, new = self._replaced[place]
                pieces.append(new.encode())
                at += length
        pieces.append(self._data[at:])
        return b"".join(pieces).decode("utf-8")
