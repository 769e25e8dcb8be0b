"""JSON without whitespace while it is cut: every part of a text is written once, however often it is asked for.

Used by `cutting`. Loads numpy, and so is only for what is too long. Pure.
"""

from __future__ import annotations

from mcp_optimizer.largejson.quotes import in_strings, quotes_of
from mcp_optimizer.largejson.spans import BLANKS
from mcp_optimizer.results.encodings import minified
from mcp_optimizer.runtime.lazy_numpy import np

_IS_FILLED = bytes(byte not in BLANKS for byte in range(256))

_WINDOW = 32 * 1024
"""Bytes that are written at once. Results are cut long before they end."""

_SHORT = 2_048
"""Bytes up to which numpy does not pay."""


class Minifier:
    """Called with a JSON text, returns it without whitespace between tokens.

    Lives as long as the work on one result.
    """

    def __init__(self, window: int = _WINDOW) -> None:
        self._window = window
        self._written: dict[bytes, bytes] = {}
        self._begun: dict[bytes, _Begun] = {}

    def __call__(self, data: bytes) -> bytes:
        found = self._written.get(data)
        if found is None:
            is_short = len(data) <= min(_SHORT, self._window)
            found = minified(data) if is_short else _Begun(data, self._window).between(0, len(data))
            self._written[data] = found
        return found

    def between(self, data: bytes, start: int, end: int) -> bytes:
        """The part of a text between two positions outside strings, without whitespace."""
        begun = self._begun.get(data)
        if begun is None:
            begun = self._begun[data] = _Begun(data, self._window)
        return begun.between(start, end)


class _Begun:
    """A text whose first windows are written."""

    def __init__(self, data: bytes, window: int) -> None:
        self._data = data
        self._window = window
        self._text = bytearray()
        self._ends_inside = self._is_escaped = False
        self._windows: list[tuple[int, np.ndarray]] = []
        """For each, where it begins in what is written, and where in it there was whitespace."""

    def between(self, start: int, end: int) -> bytes:
        while len(self._windows) * self._window < min(end, len(self._data)):
            self._write()
        return bytes(self._text[self._place(start) : self._place(end)])

    def _place(self, position: int) -> int:
        """Where a position of the text is in what is written."""
        number, inside = divmod(position, self._window)
        if number >= len(self._windows):
            return len(self._text)
        begin, blanks = self._windows[number]
        return begin + inside - int(blanks.searchsorted(inside))

    def _write(self) -> None:
        at = len(self._windows) * self._window
        part = self._data[at : at + self._window]
        codes = np.frombuffer(part, dtype=np.uint8)
        is_quote, self._is_escaped = quotes_of(codes, self._is_escaped)
        is_kept = in_strings(is_quote, self._ends_inside)
        self._ends_inside = bool(is_kept[-1])
        # A closing quote is kept too, because it is not blank.
        is_kept |= np.frombuffer(part.translate(_IS_FILLED), dtype=np.bool_)
        self._windows.append((len(self._text), np.flatnonzero(~is_kept)))
        self._text += codes[is_kept].tobytes()
