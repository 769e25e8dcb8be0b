"""Starts programs in processes of their own that need not import the libraries again: each is a fork of this one.

Most of the time of a short command, and of starting a gateway, is imports and the tokenizer. `command.py` asks for
a process, with its own arguments, environment, folder, stdin, stdout and stderr; everything after the imports is as it
is for `python`, up to the end, where what it holds is left to the system instead of being freed piece by piece, because
every piece would first be copied. It must know nothing about what the programs do.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

LIBRARIES = (
    "aiosqlite",
    "alembic.command",
    "anyio._backends._asyncio",
    "asyncpg",
    "authlib.oauth2.rfc7523",
    "authlib.oauth2.rfc8414",
    "authlib.oauth2.rfc9207",
    "mcp.server.auth.middleware.bearer_auth",
    "mcp.server.lowlevel",
    "mcp.server.stdio",
    "mcp.server.streamable_http_manager",
    "rich.console",
    "rich.table",
    "sqlalchemy.dialects.postgresql.asyncpg",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "sqlalchemy.ext.asyncio",
    "typer._completion_shared",
    "typer.rich_utils",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
)
"""What mcp-optimizer imports only when it is used, and what servers of tests import."""

LEFT_OUT = ("__main__", ".migrations", ".onnx")
"""Programs of their own, and the runtime of the encoder, whose threads a fork would not have."""


def load(command: list[str]) -> None:
    """Import everything. The demo servers that forks start are forks, too, made with `command`."""
    import mcp_optimizer
    import mcp_optimizer_demo
    from mcp_optimizer.token_counter import DEFAULT_ENCODING, load_encoding

    warm = {name: [*command, *arguments] for name, (_, *arguments) in mcp_optimizer_demo.demo_server_commands().items()}
    mcp_optimizer_demo.demo_server_commands = lambda: warm
    for module in pkgutil.walk_packages(mcp_optimizer.__path__, "mcp_optimizer."):
        if not any(part in module.name for part in LEFT_OUT):
            importlib.import_module(module.name)
    for name in LIBRARIES:
        importlib.import_module(name)
    load_encoding(DEFAULT_ENCODING)
    gc.collect()
    gc.freeze()


class Forks:
    """Who waits for which process."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._waiting: dict[int, tuple[int, socket.socket]] = {}
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)
        # Ends with the tests, which hold the other end.
        self._poll.register(0, 0)

    def next_child(self) -> dict[str, Any] | None:
        """In each new process: what was asked of it. In this one: nothing, when the tests have ended."""
        while True:
            for ready, _ in self._poll.poll():
                if ready == 0:
                    return None
                if ready == self._listener.fileno():
                    if (asked := self._fork()) is not None:
                        return asked
                elif ready in self._waiting:
                    self._report(ready)
                else:
                    self._left(ready)

    def _fork(self) -> dict[str, Any] | None:
        connection, _ = self._listener.accept()
        data, streams, _, _ = socket.recv_fds(connection, 65_536, 3)
        while chunk := connection.recv(65_536):
            data += chunk
        if len(streams) != 3:
            connection.close()
            return None
        if not (pid := os.fork()):
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            for other in (self._listener, connection, *(waiting for _, waiting in self._waiting.values())):
                other.close()
            for number in (*streams, *self._waiting):
                os.close(number)
            asked: dict[str, Any] = json.loads(data)
            return asked
        for stream in streams:
            os.close(stream)
        ended = os.pidfd_open(pid)
        self._waiting[ended] = pid, connection
        self._poll.register(ended, select.POLLIN)
        # Nothing more arrives there; but when whoever asked is killed, its process is killed.
        self._poll.register(connection, 0)
        _tell(connection, pid)
        return None

    def _report(self, ended: int) -> None:
        pid, connection = self._waiting.pop(ended)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._poll.unregister(ended)
        os.close(ended)
        if connection.fileno() >= 0:
            self._poll.unregister(connection)
            _tell(connection, code)
            connection.close()

    def _left(self, number: int) -> None:
        for pid, connection in self._waiting.values():
            if connection.fileno() == number:
                os.kill(pid, signal.SIGKILL)
                self._poll.unregister(connection)
                connection.close()
                return


def _tell(connection: socket.socket, number: int) -> None:
    # Whoever asked may have been killed meanwhile; that its connection has ended is noticed next.
    with contextlib.suppress(OSError):
        connection.sendall(b"%d\n" % number)


def run(asked: dict[str, Any]) -> None:
    """As `python` with these arguments: `-m MODULE ...`, also after `-P`, or `SCRIPT ...`."""
    # Tests in the background are started with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    first, *others = asked["arguments"]
    searches_folder = first != "-P"
    if not searches_folder:
        first, *others = others
    if first == "-m":
        sys.argv = others
        if searches_folder:
            sys.path[0] = asked["folder"]
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *others]
        sys.path[0] = str(Path(first).parent)
        runpy.run_path(first, run_name="__main__")


class QuickEnd:
    """The last of what is done at the exit: the process ends with the code that it would have had."""

    def __init__(self) -> None:
        self._code: int | None = None
        atexit.register(self._end)

    def run(self, asked: dict[str, Any]) -> None:
        try:
            run(asked)
        except SystemExit as ended:
            self._code = ended.code or 0 if isinstance(ended.code, int | None) else None
            raise
        self._code = 0

    def _end(self) -> None:
        if self._code is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self._code & 0xFF)


if __name__ == "__main__":
    # Before anything else is to be done at the exit, and so after it.
    quick_end = QuickEnd()
    # Whoever interrupts the tests sends it to all of their processes; a new process keeps it until it can end by it.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    command = sys.argv[1:]
    place = Path(command[-1])
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen(64)
        print("listening", flush=True)
        load(command)
        asked = Forks(listener).next_child()
    if asked is None:
        place.unlink()
    else:
        quick_end.run(asked)
