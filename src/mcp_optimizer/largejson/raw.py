"""Keeps large values of a result as text of their message: parsed only where necessary, and passed on unchanged.

Fifty megabytes take many times that as objects, and creating those holds the interpreter. Ordinary serializers write
such a value correctly without special code; code that uses `Placeholders` writes the rest of the message first and
these values in pieces. The creator of such a value must have checked that it is JSON.
"""

from __future__ import annotations

import io
import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import pydantic_core
from pydantic_core import core_schema

from mcp_optimizer.largejson.spans import decoded_parts, value_in_parts, whole_characters
from mcp_optimizer.runtime.lazy import lazy
from mcp_optimizer.runtime.lazy_numpy import np

Parse = Callable[[bytes], Any]

_PIECE = 256 * 1024
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
"""Line breaks between JSON tokens become blanks, because a message to a client must be one line."""


class RawJson:
    """A JSON value kept as its JSON text."""

    __pydantic_serializer__: ClassVar[Any]

    def __init__(self, json: memoryview) -> None:
        self.json = json

    def pieces(self) -> Iterator[bytes]:
        """The JSON text, on one line."""
        for part in _parts(self.json):
            yield part.translate(_ONE_LINE)

    def parsed(self) -> Any:
        """The parsed value."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.json):,} bytes>"


class LargeText(RawJson):
    """A string kept as its JSON text."""

    def __init__(self, json: memoryview) -> None:
        """`json` includes the quotes. Raises ValueError if it is not a string."""
        super().__init__(json)
        if not _is_plain(json[1:-1]):
            self.utf8 = _decoded(json)

    @classmethod
    def of(cls, value: RawJson) -> LargeText:
        """Make a text of a value's JSON."""
        text = cls.__new__(cls)
        text.json = value.json
        text.utf8 = _copied(value.json)
        return text

    @lazy
    def utf8(self) -> bytes:
        """The text in UTF-8, including half surrogate pairs."""
        return _copied(self.json[1:-1])

    @property
    def size(self) -> int:
        return len(self.__dict__["utf8"]) if "utf8" in self.__dict__ else len(self.json) - 2

    @property
    def characters(self) -> int:
        """The number of characters, counted as the bytes that do not continue a character."""
        data = np.frombuffer(self.utf8, dtype=np.uint8)
        return sum(int(np.count_nonzero((data[at : at + _PIECE] & 0xC0) != 0x80)) for at in range(0, len(data), _PIECE))

    def parts(self, size: int = _PIECE) -> Iterator[str]:
        """The complete text in parts of about `size` bytes."""
        at = 0
        while at < len(self.utf8):
            part = self.utf8[at : at + size]
            part = whole_characters(part) or part if at + size < len(self.utf8) else part
            yield part.decode("utf-8", "surrogatepass")
            at += len(part)

    def beginning(self, size: int) -> str:
        """The characters that lie completely within the first `size` bytes; copies only those."""
        text = self.__dict__.get("utf8", self.json[1:-1])
        return bytes(text[:size]).decode("utf-8", "ignore")

    def sample(self, at: int, size: int) -> str:
        """The characters that lie completely within `size` bytes from `at`."""
        return self.utf8[at : at + size].decode("utf-8", "ignore")

    def parsed(self) -> str:
        if "utf8" not in self.__dict__:
            # Plain ASCII needs one fast copy: parts would be a second copy, and bytes a third.
            return str(self.json[1:-1], "ascii")
        return "".join(self.parts())


class LargeValue(RawJson):
    """An object or array kept as its JSON text."""

    def __init__(self, json: memoryview, parse: Parse) -> None:
        super().__init__(json)
        self._parse = parse

    @property
    def opening(self) -> bytes:
        return bytes(self.json[:1])

    def parsed(self) -> Any:
        return value_in_parts(self.json, 0, len(self.json), self._parse)


class LargeList(RawJson):
    """A list of very many blocks: parsed objects, but written a few at a time."""

    def __init__(self, blocks: list[Any]) -> None:
        super().__init__(memoryview(b""))
        self._blocks = blocks

    def pieces(self) -> Iterator[bytes]:
        for at in range(0, len(self._blocks), _BLOCKS):
            large = Placeholders()
            some = _json(self._blocks[at : at + _BLOCKS], large)
            yield b"," if at else b"["
            yield from large.filled(some[1:-1])
        yield b"]"

    def parsed(self) -> list[Any]:
        return self._blocks


def _json(value: Any, large: Placeholders) -> bytes:
    try:
        return pydantic_core.to_json(value, context=large)
    except ValueError:
        # Half a surrogate pair.
        return json.dumps(value, separators=(",", ":"), default=large.of).encode()


def _parts(view: memoryview) -> Iterator[bytes]:
    for at in range(0, len(view), _PIECE):
        yield bytes(view[at : at + _PIECE])


def _copied(view: memoryview) -> bytes:
    whole = io.BytesIO()
    write_in_parts(view, whole)
    return whole.getvalue()


def write_in_parts(view: memoryview, whole: io.BytesIO) -> None:
    """Copy in parts, because copying holds the interpreter."""
    for at in range(0, len(view), _PIECE):
        whole.write(view[at : at + _PIECE])


def _decoded(json: memoryview) -> bytes:
    whole = io.BytesIO()
    for part in decoded_parts(json, 1, len(json) - 1):
        whole.write(part.encode("utf-8", "surrogatepass"))
    return whole.getvalue()


def _is_plain(view: memoryview) -> bool:
    """Whether a JSON string is ASCII without escapes, so its text is its value, byte for byte."""
    data = np.frombuffer(view, dtype=np.uint8)
    chunks = (data[at : at + _PIECE] for at in range(0, len(data), _PIECE))
    return all(
        bool(chunk.min() >= 0x20) and bool(chunk.max() < 0x7F) and not (chunk == ord("\\")).any() for chunk in chunks
    )


class Placeholders:
    """Replaces large values by marks while the rest of a message is serialized; `filled` then inserts the values.

    Pass it as the `context` of a serialization, or `take` the large values out of a result first.
    """

    def __init__(self) -> None:
        self._values: list[RawJson] = []
        self._mark = ""

    def __bool__(self) -> bool:
        return bool(self._values)

    def of(self, value: RawJson) -> str:
        # The mark cannot be guessed, so no text in the message can be mistaken for one.
        self._mark = self._mark or secrets.token_hex(16)
        self._values.append(value)
        return f"{self._mark}{len(self._values) - 1}"

    def take(self, result: dict[str, Any]) -> dict[str, Any]:
        """The result with marks in place of its large values, which this object keeps."""
        if not has_large(result):
            return result
        many = {
            key: self.of(LargeList(blocks))
            for key in _BLOCK_LISTS
            if isinstance(blocks := result.get(key), list) and len(blocks) > _MANY
        }
        return at_large_places(
            {**result, **many}, lambda value: self.of(value) if isinstance(value, RawJson) else value
        )

    def filled(self, text: bytes) -> Iterator[bytes]:
        """The serialized message with the values inserted, in pieces."""
        if not self._values:
            yield text
            return
        # After a split by a group, every second part is the group's match.
        for number, part in enumerate(re.split(rb'"%b(\d+)"' % self._mark.encode(), text)):
            if number % 2:
                yield from self._values[int(part)].pieces()
            elif part:
                yield part


def _serialized(value: RawJson, info: Any) -> Any:
    return info.context.of(value) if isinstance(info.context, Placeholders) else value.parsed()


RawJson.__pydantic_serializer__ = pydantic_core.SchemaSerializer(
    core_schema.any_schema(serialization=core_schema.plain_serializer_function_ser_schema(_serialized, info_arg=True))
)

_IN_BLOCKS = ("text", "data", "blob")
_BLOCK_LISTS = ("content", "contents")
_MANY = 256
_BLOCKS = 64
"""Blocks serialized at once."""


def at_large_places(result: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """The result with `change` applied where large values may be: in its blocks and its structured content."""
    changed = dict(result)
    for key in _BLOCK_LISTS:
        if isinstance(blocks := result.get(key), list):
            changed[key] = [_changed_block(block, change) if isinstance(block, dict) else block for block in blocks]
    if (structured := result.get("structuredContent")) is not None:
        structured = change(structured)
        if isinstance(structured, dict):
            structured = {name: change(value) for name, value in structured.items()}
        changed["structuredContent"] = structured
    return changed


def _changed_block(block: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    found = {key: change(block[key]) for key in _IN_BLOCKS if key in block}
    if isinstance(resource := block.get("resource"), dict):
        found["resource"] = _changed_block(resource, change)
    return {**block, **found}


def has_large(result: Mapping[str, Any]) -> bool:
    """Whether a result contains large values, or very many blocks."""
    structured = result.get("structuredContent")
    if isinstance(structured, RawJson):
        return True
    if isinstance(structured, dict) and any(isinstance(value, RawJson) for value in structured.values()):
        return True
    for key in _BLOCK_LISTS:
        blocks = result.get(key)
        if isinstance(blocks, list) and (len(blocks) > _MANY or any(map(_is_large_block, blocks))):
            return True
    return False


def _is_large_block(block: Any) -> bool:
    # Written out for speed, because every result is checked several times.
    return isinstance(block, dict) and (
        isinstance(block.get("text"), RawJson)
        or isinstance(block.get("data"), RawJson)
        or isinstance(block.get("blob"), RawJson)
        or ("resource" in block and _is_large_block(block["resource"]))
    )


def wire_size(result: dict[str, Any]) -> int:
    """The bytes of a result as sent."""
    large = Placeholders()
    return sum(map(len, large.filled(_json(large.take(result), large))))


def plain(result: dict[str, Any]) -> dict[str, Any]:
    """The result with large values parsed into plain objects."""
    return at_large_places(result, lambda value: value.parsed() if isinstance(value, RawJson) else value)
