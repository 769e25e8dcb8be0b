"""Hashes that say whether two calls had the same arguments or the same result, and nothing else. Pure.

A plain hash of short arguments could be guessed, so what is written is keyed with a key that stays in the database:
whoever has only the file learns nothing. A call makes the plain hash; the trail keys it before it is written.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from mcp_optimizer.domain.audit import LONGEST_ARGUMENTS, AuditEntry
from mcp_optimizer.largejson.raw import RawJson
from mcp_optimizer.largejson.text import compact

_SORTED_UP_TO = 64 * 1024
"""Bytes of arguments from which on the order of keys is left as it is: sorting takes longer than all the rest."""

_HASHED = 64 * 1024
"""Bytes or characters of a result that are hashed; of the rest, only how much it is."""

# Made once, because making one takes as long as writing small arguments.
_SORTED = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)

_PLAIN = (str, int, bool, type(None))

_MOST_TEXTS = 10_000
_SIZE = 16


class HashKey:
    """A key, and the mark that tells its hashes from those of another key."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._mark = hashlib.blake2b(b"mark", key=secret, digest_size=4).hexdigest()

    @classmethod
    def made_up(cls) -> HashKey:
        """For a process without a database: its hashes can be compared only with each other."""
        return cls(secrets.token_bytes(32))

    def keyed(self, entry: AuditEntry) -> AuditEntry:
        """The entry as it may be written."""
        arguments, result = self._keyed(entry.arguments_hash), self._keyed(entry.result_hash)
        return entry._replace(arguments_hash=arguments, result_hash=result)

    def _keyed(self, digest: str) -> str:
        if not digest:
            return ""
        return f"{self._mark}:{hashlib.blake2b(digest.encode(), key=self._secret, digest_size=_SIZE).hexdigest()}"


class ArgumentsDigest(NamedTuple):
    """The size of arguments as JSON, their plain hash, and their beginning."""

    size: int = 0
    hash: str = ""
    text: str = ""


def digest_of_arguments(arguments: Any) -> ArgumentsDigest:
    """The same for the same arguments, in whatever order their keys are. What is no JSON has no hash."""
    if arguments is None:
        return ArgumentsDigest()
    try:
        text = compact(arguments)
        if len(text) <= _SORTED_UP_TO and not _is_in_order(arguments):
            text = _SORTED.encode(arguments)
    except (TypeError, ValueError, RecursionError):
        return ArgumentsDigest()
    encoded = text.encode("utf-8", "surrogatepass")
    return ArgumentsDigest(len(encoded), hashlib.blake2b(encoded).hexdigest(), text[:LONGEST_ARGUMENTS])


def _is_in_order(arguments: Any) -> bool:
    """Whether arguments are one plain value with its name, as often: nothing is to be sorted, and every writer of JSON
    writes it alike.
    """
    return (
        isinstance(arguments, dict)
        and len(arguments) <= 1
        and all(type(value) in _PLAIN for value in arguments.values())
    )


def digest_of_result(result: Mapping[str, Any]) -> str:
    """A plain hash of the texts in a result; of long ones, of their beginning and length."""
    # Not SHA-256: creating that one takes longer than hashing an ordinary result.
    hashed, room, size = hashlib.blake2b(), _HASHED, 0
    for text in islice(_texts(result), _MOST_TEXTS):
        beginning = bytes(text.json[:room]) if isinstance(text, RawJson) else text[:room].encode("utf-8", "replace")
        hashed.update(beginning)
        hashed.update(b"\0")
        room = max(0, room - len(beginning))
        size += len(text.json) if isinstance(text, RawJson) else len(text)
    hashed.update(str(size).encode())
    return hashed.hexdigest()


def _texts(result: Mapping[str, Any]) -> Iterator[str | RawJson]:
    """What the result of a tool, a prompt, a resource or a completion says."""
    for key in ("content", "contents", "messages"):
        blocks = result.get(key)
        for block in blocks if isinstance(blocks, list) else ():
            inner = block.get("content", block) if isinstance(block, dict) else None
            for part in inner if isinstance(inner, list) else (inner,):
                if isinstance(part, dict):
                    yield from _texts_of_block(part)
    completion = result.get("completion")
    values = completion.get("values") if isinstance(completion, dict) else None
    yield from (value for value in (values if isinstance(values, list) else ()) if isinstance(value, str))


def _texts_of_block(block: Mapping[str, Any]) -> Iterator[str | RawJson]:
    resource = block.get("resource")
    for place in (block, resource) if isinstance(resource, dict) else (block,):
        for key in ("text", "blob"):
            if isinstance(text := place.get(key), str | RawJson):
                yield text
