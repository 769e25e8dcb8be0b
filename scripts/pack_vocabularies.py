"""Writes the vocabularies of the package from the rank tables that tiktoken publishes.

    python scripts/pack_vocabularies.py cl100k_base.tiktoken o200k_base.tiktoken

Prints the SHA-256 of what each file holds, which `token_counter` checks. A published table has a line for each word, in
Base64, with its rank; ours has the same words in the order of their ranks, and is read in a third of the time.
"""

from __future__ import annotations

import hashlib
import sys
import zlib
from binascii import a2b_base64
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "src" / "mcp_optimizer" / "vocabularies"
COUNT_BYTES = 4


def packed(table: bytes) -> bytes:
    """The number of words, the length of each in a byte, and the words."""
    lines = [line.split() for line in table.splitlines()]
    ranks = [int(rank) for _, rank in lines]
    if ranks != list(range(len(ranks))):
        raise SystemExit("the ranks are not 0, 1, 2, ...: this format cannot hold them")
    words = [a2b_base64(word) for word, _ in lines]
    return len(words).to_bytes(COUNT_BYTES) + bytes(map(len, words)) + b"".join(words)


def main(tables: list[Path]) -> None:
    for table in tables:
        content = packed(table.read_bytes())
        (FOLDER / f"{table.stem}.words").write_bytes(zlib.compress(content, 9))
        print(table.stem, hashlib.sha256(content).hexdigest())


if __name__ == "__main__":
    main([Path(one) for one in sys.argv[1:]])
