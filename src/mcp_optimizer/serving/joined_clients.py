"""The clients of a shared gateway on stdio: each joins over a private socket and hands over its stdin and stdout.

Called by `cli`, which opens the pipes and serves them. Another process of the same user may connect and say anything:
one that is not like the gateway is refused, and one that says something unusual, or does not read, is cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from mcp_optimizer.runtime.sharing import wire
from mcp_optimizer.runtime.sharing.client_process import SOCKET_PREFIX, hello
from mcp_optimizer.runtime.sharing.journal import SHORTEN_AT, Journal, Standing
from mcp_optimizer.runtime.sharing.places import bound_socket, is_own_user, made_folder
from mcp_optimizer.runtime.sharing.wire import Broken, ProcessLink, Said, close_files

logger = logging.getLogger(__name__)

_MOST = 200
"""Maximum processes that are connected."""
_LONGEST_NAME = 64
_FILES = 3
"""Stdin, stdout and the journal."""


class JoinedClient:
    """One client: its name, its files, and where it stood when it came. Notes where it stands from now on."""

    def __init__(self, link: ProcessLink, name: str, stdin: int, stdout: int, journal: int) -> None:
        self.name = name
        self.stdin = stdin
        self.stdout = stdout
        self.is_to_end = asyncio.Event()
        """Whether its process wants it to end, or is gone."""
        self.is_gone = False
        """Whether its process is gone."""
        self._has_news = asyncio.Event()
        self._link = link
        self._journal = Journal(journal)
        self._long = 0
        self.standing: Standing = self._journal.standing()

    def heard(self, data: bytes) -> None:
        """Note what was read from the client."""
        self._journal.heard(data)
        if self._journal.size > max(self._long, SHORTEN_AT):
            self._shorten()

    def answered(self, request: object) -> None:
        """Note that the request with this id has its answer."""
        self._journal.answered(request)
        self._has_news.set()

    def writing(self, *, is_half: bool) -> None:
        """Note whether the client has the beginning of a line whose end waits to be written."""
        self._journal.writing(is_half=is_half)

    def serving(self) -> None:
        """Tell the client's process that the client is served."""
        with contextlib.suppress(OSError):
            self._link.say(wire.SERVING)

    def end(self, code: int = 0) -> None:
        """Have the client's process end."""
        with contextlib.suppress(OSError):
            self._link.say(wire.END, str(code).encode())

    def show(self, log: bytes) -> None:
        """Show lines of the gateway's log to the client; not if it does not read them."""
        with contextlib.suppress(OSError):
            self._link.say(wire.LOG, log)

    async def settled(self) -> None:
        """Wait until every request has its answer, or its process is gone."""
        while not self.is_gone:
            is_open = [b"subscriptions/listen" not in line for _, line in self._journal.standing().open]
            if not any(is_open):
                return
            self._has_news.clear()
            await self._has_news.wait()

    def gone(self) -> None:
        """Its process is gone."""
        self.is_gone = True
        self.is_to_end.set()
        self._has_news.set()

    def close(self) -> None:
        """Give up what it holds; the pipes have been closed by their user."""
        self._journal.close()

    def _shorten(self) -> None:
        try:
            shorter = self._journal.shortened()
            # The client's process has it, whatever happens to this one, before anything is written to it.
            self._link.say(wire.NEW_JOURNAL, files=[shorter.file])
        except OSError:
            self._long = self._journal.size * 2
            return
        self._journal.close()
        self._journal, self._long = shorter, shorter.size * 2


class JoinedClients:
    """Everybody who has joined, and the socket at which more can join."""

    def __init__(self, serve: Callable[[JoinedClient], None], reload: Callable[[], None]) -> None:
        """`serve` begins to serve a client; `reload` reads the gateway's files again."""
        self._serve = serve
        self._reload = reload
        self._like: str | None = None
        self._variables: Mapping[str, str] = {}
        """Digests of the first client's, with which the servers run."""
        self._connected: dict[ProcessLink, _Joining] = {}
        self._listening: socket.socket | None = None
        self._path: Path | None = None
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """The number of processes that are connected."""
        return len(self._connected)

    def clients(self) -> list[JoinedClient]:
        return [one.client for one in self._connected.values() if one.client is not None]

    def begin_with(self, connection: socket.socket) -> None:
        """Serve the client whose process started this gateway. Later ones must be like it."""
        self._connect(connection, is_first=True)

    def listen(self, environment: Mapping[str, str]) -> None:
        """Let others join. Without a place for a socket, only the first client is served."""
        folder = made_folder(environment)
        if folder is None:
            return
        try:
            self._listening, self._path = bound_socket(folder, f"{SOCKET_PREFIX}{os.getpid()}.sock")
        except OSError as error:
            logger.warning("No other client can join this gateway: its socket cannot be made: %s.", error.strerror)
            return
        asyncio.get_running_loop().add_reader(self._listening.fileno(), self._accept)

    def bound(self) -> None:
        """Tell the first client's process that others find this gateway, or never will."""
        for link in self._connected:
            with contextlib.suppress(OSError):
                link.say(wire.BOUND)

    def close(self) -> None:
        """Let no one join from now on. Those that wait to be accepted look for another gateway."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening.fileno())
            self._listening.close()
        self._path = self._listening = None

    def parted_by(self, names: Collection[str]) -> list[str]:
        """Those of these variables for which a client has another value than the servers."""
        theirs = [joining.variables for joining in self._connected.values() if joining.name]
        own = self._variables
        return sorted(name for name in names if any(one.get(name) != own.get(name) for one in theirs))

    def want(self, change: Callable[[str], str]) -> None:
        """Clients that come from now on must be like this, which is made of what they had to be like before."""
        if self._like is not None:
            self._like = change(self._like)

    async def none_for(self, seconds: float) -> None:
        """Wait until no process has been connected for so long."""
        while True:
            self._changed.clear()
            try:
                async with asyncio.timeout(None if self._connected else seconds):
                    await self._changed.wait()
            except TimeoutError:
                return

    def left(self, client: JoinedClient) -> None:
        """Forget a client that is not served any more; its process ends."""
        client.end()
        for link, joining in list(self._connected.items()):
            if joining.client is client:
                self._disconnect(link)
        client.close()

    # Connections.

    def _accept(self) -> None:
        assert self._listening is not None
        try:
            connection, _ = self._listening.accept()
        except OSError:
            return
        if len(self._connected) >= _MOST or not is_own_user(connection):
            connection.close()
            return
        self._connect(connection, is_first=False)

    def _connect(self, connection: socket.socket, *, is_first: bool) -> None:
        connection.setblocking(False)
        link = ProcessLink(connection)
        self._connected[link] = _Joining(is_first)
        self._changed.set()
        asyncio.get_running_loop().add_reader(connection.fileno(), self._hear, link)
        if not is_first:
            with contextlib.suppress(OSError):
                link.say(wire.HELLO, json.dumps(hello()).encode())

    def _hear(self, link: ProcessLink) -> None:
        try:
            said = link.hear()
            if said is None:
                raise Broken("it has ended")
            for one in said:
                self._take(link, one)
        except BlockingIOError:
            return
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            self._disconnect(link)

    def _take(self, link: ProcessLink, said: Said) -> None:
        joining = self._connected[link]
        if said.kind == wire.JOIN and not joining.name:
            self._greet(link, joining, json.loads(said.content))
        elif said.kind == wire.FILES and joining.name and joining.client is None:
            self._receive(link, joining, said.files)
        elif said.kind == wire.STOP and joining.client is not None:
            joining.client.is_to_end.set()
        elif said.kind == wire.RELOAD and joining.client is not None:
            self._reload()
        else:
            close_files(said.files)
            raise Broken("it says something unusual")

    def _greet(self, link: ProcessLink, joining: _Joining, said: Mapping[str, Any]) -> None:
        name, like, variables = said["name"], said["like"], said["variables"]
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isalnum():
            raise Broken("it has no name")
        if not isinstance(variables, dict):
            raise Broken("it has no variables")
        if joining.is_first:
            self._like, self._variables = like, variables
        elif like != self._like or any(one.name == name for one in self._connected.values()):
            link.say(wire.OTHER)
            raise Broken("it needs another gateway")
        else:
            link.say(wire.WELCOME)
        joining.greeted(name, variables)

    def _receive(self, link: ProcessLink, joining: _Joining, files: tuple[int, ...]) -> None:
        if len(files) != _FILES:
            close_files(files)
            raise Broken("it has not sent its files")
        self._serve(joining.handed_over(JoinedClient(link, joining.name, *files)))

    def _disconnect(self, link: ProcessLink) -> None:
        joining = self._connected.pop(link, None)
        if joining is None:
            return
        asyncio.get_running_loop().remove_reader(link.socket.fileno())
        link.close()
        self._changed.set()
        if joining.client is not None:
            joining.client.gone()


class _Joining:
    """How far a process has come."""

    def __init__(self, is_first: bool) -> None:
        self.is_first = is_first
        self.name = ""
        self.variables: Mapping[str, str] = {}
        self.client: JoinedClient | None = None

    def greeted(self, name: str, variables: Mapping[str, str]) -> None:
        """It has said who it is, and is welcome."""
        self.name = name
        self.variables = variables

    def handed_over(self, client: JoinedClient) -> JoinedClient:
        """It has sent its files."""
        self.client = client
        return client
