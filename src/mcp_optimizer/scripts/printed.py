"""What a script prints, up to a limit. Written by a thread of the worker's library, read by the run."""

from __future__ import annotations


class Printed:
    """Collects text; what goes beyond the limit is dropped."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: list[str] = []
        self._size = 0
        self.is_cut = False

    def __call__(self, _stream: str, text: str) -> None:
        room = self._most - self._size
        if len(text) > room:
            self.is_cut = True
            text = text[: max(0, room)]
        if text:
            self._parts.append(text)
            self._size += len(text)

    @property
    def text(self) -> str:
        return "".join(self._parts)
