"""Hashes that show only whether two calls had the same arguments or the same result. Pure.

A plain hash of short arguments could be guessed, so written hashes are keyed with a key that stays in the database: the
file alone reveals nothing. `recording` makes the plain hash; the trail keys it before it is written.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from mcp_optimizer.domain.audit import LONGEST_ARGUMENTS, AuditEntry
from mcp_optimizer.largejson.compact_json import Written, compact, compact_bytes
from mcp_optimizer.largejson.raw import RawJson

_SORTED_UP_TO = 64 * 1024
"""Bytes of arguments beyond which keys are not sorted: sorting would take longer than everything else."""

_HASHED = 64 * 1024
"""Bytes or characters of a result that are hashed; the rest counts only by its length."""

# Created once, because creating an encoder takes as long as encoding small arguments.
_SORTED = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)

_PLAIN = frozenset((str, int, bool, type(None)))
_FEW = 32
"""Maximum arguments whose types are checked one by one."""

_PLACES = ("content", "contents", "messages")
_FURTHER = frozenset((*_PLACES[1:], "completion"))
_TEXT = (str, RawJson)
_TEXT_BLOCK = {"type", "text"}
_MOST_TEXTS = 10_000
_SIZE = 16
_HASHES = tuple(map(AuditEntry._fields.index, ("arguments_hash", "result_hash")))


class HashKey:
    """A key, and a mark that distinguishes its hashes from those of another key."""

    def __init__(self, secret: bytes) -> None:
        self._mark = hashlib.blake2b(b"mark", key=secret, digest_size=4).hexdigest()
        # Copied for each hash, which takes half the time of creating one.
        self._begun = hashlib.blake2b(key=secret, digest_size=_SIZE)

    @classmethod
    def made_up(cls) -> HashKey:
        """A random key, for a process without a database: its hashes can be compared only with each other."""
        return cls(secrets.token_bytes(32))

    def keyed(self, entry: AuditEntry) -> AuditEntry:
        """The entry with its hashes keyed, as it may be written."""
        values: list[Any] = list(entry)
        for at in _HASHES:
            if plain := values[at]:
                keyed = self._begun.copy()
                keyed.update(plain.encode())
                values[at] = f"{self._mark}:{keyed.hexdigest()}"
        return AuditEntry(*values)


class ArgumentsDigest(NamedTuple):
    """Arguments as JSON, and their plain hash."""

    json: bytes = b""
    hash: str = ""

    @property
    def text(self) -> str:
        """The beginning of the JSON, as text."""
        return self.json.decode("utf-8", "surrogatepass")[:LONGEST_ARGUMENTS]


def digest_of_arguments(arguments: Any) -> ArgumentsDigest:
    """A digest that does not depend on the order of keys. Values that are not JSON get no hash."""
    if arguments is None:
        return ArgumentsDigest()
    try:
        written = _written(arguments)
    except (TypeError, ValueError, RecursionError):
        return ArgumentsDigest()
    return ArgumentsDigest(written, hashlib.blake2b(written).hexdigest())


def _written(arguments: Any) -> bytes:
    if isinstance(arguments, Written):
        return arguments.json
    is_few = isinstance(arguments, dict) and len(arguments) <= _FEW
    if is_few and _PLAIN.issuperset(map(type, arguments.values())):
        # The usual case, a few plain values by name: every JSON encoder writes these alike.
        ordered = dict(sorted(arguments.items())) if len(arguments) > 1 else arguments
        written = compact_bytes(ordered)
        if ordered is arguments or len(written) <= _SORTED_UP_TO:
            return written
    text = compact(arguments)
    if len(text) <= _SORTED_UP_TO:
        text = _SORTED.encode(arguments)
    return text.encode("utf-8", "surrogatepass")


def digest_of_result(result: Mapping[str, Any]) -> str:
    """A plain hash of the texts in a result; long texts count by their beginning and length."""
    if (only := _only_text(result)) is not None:
        said = b"%b\0%d" % (only[:_HASHED].encode("utf-8", "replace"), len(only))
    else:
        said = _said(result)
    # Not SHA-256: creating its object takes longer than hashing an ordinary result.
    return hashlib.blake2b(said).hexdigest()


def _said(result: Mapping[str, Any]) -> bytes:
    """The texts, each followed by a NUL, and their total length."""
    pieces: list[bytes] = []
    room, size = _HASHED, 0
    for text in islice(_texts(result), _MOST_TEXTS):
        if isinstance(text, RawJson):
            beginning, length = bytes(text.json[:room]), len(text.json)
        else:
            beginning, length = text[:room].encode("utf-8", "replace"), len(text)
        pieces += (beginning, b"\0")
        room = max(0, room - len(beginning))
        size += length
    pieces.append(b"%d" % size)
    return b"".join(pieces)


def _only_text(result: Mapping[str, Any]) -> str | None:
    """The text of a result that consists of one text block, as most do; otherwise None."""
    content = result.get("content")
    if isinstance(content, list) and len(content) == 1 and _FURTHER.isdisjoint(result):
        block = content[0]
        if isinstance(block, dict) and block.keys() == _TEXT_BLOCK and isinstance(text := block["text"], str):
            return text
    return None


def _texts(result: Mapping[str, Any]) -> Iterator[str | RawJson]:
    """The texts in the result of a tool, a prompt, a resource or a completion."""
    for key in _PLACES:
        blocks = result.get(key)
        for block in blocks if isinstance(blocks, list) else ():
            inner = block.get("content", block) if isinstance(block, dict) else None
            for part in inner if isinstance(inner, list) else (inner,):
                if isinstance(part, dict):
                    yield from _texts_of_block(part)
    completion = result.get("completion")
    values = completion.get("values") if isinstance(completion, dict) else None
    if isinstance(values, list):
        yield from (value for value in values if isinstance(value, str))


def _texts_of_block(block: Mapping[str, Any]) -> list[str | RawJson]:
    resource = block.get("resource")
    places = (block, resource) if isinstance(resource, dict) else (block,)
    return [text for place in places for key in ("text", "blob") if isinstance(text := place.get(key), _TEXT)]
