"""Runs a stdio server and records everything that it and its client send each other, line by line, unchanged.

python wiretap.py FILE COMMAND [ARGUMENT ...]
"""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import IO


def copy(source: IO[bytes], target: IO[bytes], record: IO[bytes], mark: bytes) -> None:
    for line in iter(source.readline, b""):
        record.write(mark + line)
        record.flush()
        target.write(line)
        target.flush()
    target.close()


def main() -> None:
    path, *command = sys.argv[1:]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    with open(path, "ab") as record:
        asking = threading.Thread(target=copy, args=(sys.stdin.buffer, child.stdin, record, b"> "), daemon=True)
        asking.start()
        copy(child.stdout, sys.stdout.buffer, record, b"< ")
    sys.exit(child.wait())


if __name__ == "__main__":
    main()
