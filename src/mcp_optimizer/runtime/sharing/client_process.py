"""The process that a client on stdio starts, if it shares a gateway: hands its stdin and stdout to the gateway, waits.

It joins the user's gateway for the same program, folder, settings and variables, or starts it. If the gateway ends
before the client leaves, the process joins or starts another one, which takes over where the client stands. It reads
nothing of what the client says, so a call takes no step more than through a gateway of the client's own.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import stat
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mcp_optimizer import __version__
from mcp_optimizer.runtime.passed_variables import DEPTH_VARIABLE
from mcp_optimizer.runtime.sharing import wire
from mcp_optimizer.runtime.sharing.journal import new_file
from mcp_optimizer.runtime.sharing.likeness import (
    ALONE,
    LINK_VARIABLE,
    PREFIX,
    SHARED,
    SHARED_VARIABLE,
    UNSHARED,
    digests,
    likeness,
    may_be_said_in_files,
)
from mcp_optimizer.runtime.sharing.places import CAN_CONTROL, is_own_user, is_private, made_folder, sockets_named
from mcp_optimizer.runtime.sharing.wire import Broken, ProcessLink, Said

SOCKET_PREFIX = "shared-"
"""How the names of the sockets begin at which clients join."""

_LOCK = "shared.lock"
_LOCK_SECONDS = 20.0
"""Seconds to wait while another client's process starts a gateway."""
_POLL = 0.02
_TRIES = 50
"""How often to look whether a gateway that said its last word has ended."""
_HELLO_SECONDS = 2.0
_WELCOME_SECONDS = 5.0
_START_SECONDS = 60.0
_MOST_LOST, _LOST_WITHIN = 5, 60.0
"""Gateways that may end within so many seconds before the client is given up."""
_MOST_TRIED = 50
_GAVE_UP = 1
_NOT_SHARED = frozenset({"--help", "--help-all", "--http", "--workers", ALONE, UNSHARED})
_YES = ("1", "true", "yes", "on", "t", "y")


def wants_to_share(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether this command serves a client on stdio through a shared gateway, as far as its words say it."""
    if not arguments or arguments[0] != "serve" or not CAN_CONTROL or LINK_VARIABLE in environment:
        return False
    if any(one.partition("=")[0] in _NOT_SHARED for one in arguments) or f"{PREFIX}HTTP" in environment:
        return False
    return _is_pipe(0) and _is_pipe(1) and _is_wanted(arguments, environment)


def _is_wanted(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """What is said on the command line, in a variable, or nowhere. What a settings file says is read by others."""
    if SHARED in arguments:
        return True
    if said := environment.get(SHARED_VARIABLE, ""):
        return said.lower() in _YES
    if DEPTH_VARIABLE in environment:
        # It serves a gateway, which ends what it has started.
        return False
    try:
        return not may_be_said_in_files(arguments, environment, Path.cwd())
    except OSError:
        # The folder was deleted.
        return False


def share(arguments: Sequence[str], environment: Mapping[str, str]) -> int | None:
    """Serve the client until it leaves; returns the exit code. None if this process is to be a gateway: because there
    is no place to meet other clients, or because it was forked to be the one that this client shares with others.
    """
    folder = made_folder(environment)
    if folder is None:
        return None
    with _Signals() as signals:
        client = _Client(arguments, environment, folder, signals)
        try:
            return client.serve()
        except _IsGateway as forked:
            client.close()
            link = forked.link
    _become_gateway(link)
    return None


def _is_pipe(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


class _Lost(Exception):
    """The gateway ended, or is not one that can be joined."""


class _NotStarted(Exception):
    """The gateway could not start, and has said why."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _IsGateway(Exception):
    """Raised in the process that was forked to be the gateway; `link` leads to the client's process."""

    def __init__(self, link: int) -> None:
        super().__init__(link)
        self.link = link


class _Signals:
    """Signals as bytes on a socket, which can be waited for together with the link."""

    def __init__(self) -> None:
        self._woken, self._wakes = socket.socketpair()
        for end in (self._woken, self._wakes):
            end.setblocking(False)
        self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def __enter__(self) -> _Signals:
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        for number, handler in self._before.items():
            # One that is ignored, as under nohup, stays ignored.
            if handler is not signal.SIG_IGN:
                signal.signal(number, lambda _number, _frame: None)
        return self

    def __exit__(self, *_raised: object) -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)
        for end in (self._woken, self._wakes):
            end.close()

    def fileno(self) -> int:
        return self._woken.fileno()

    def taken(self) -> list[int]:
        with contextlib.suppress(BlockingIOError):
            return list(self._woken.recv(64))
        return []


class _Gateway:
    """A gateway that this client joins; `child`: its process, if this one started it, else 0."""

    def __init__(self, connection: socket.socket, child: int = 0) -> None:
        self.link = ProcessLink(connection)
        self.child = child
        self.said: deque[Said] = deque()
        """What it said, and nothing has taken yet."""


class _Client:
    """One client, and the gateways that serve it, one after the other."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, signals: _Signals
    ) -> None:
        self._arguments = arguments
        self._environment = environment
        self._folder = folder
        self._signals = signals
        self._name = os.urandom(8).hex()
        self._joining = b""
        self._journal = new_file()
        self._stops = 0
        self._is_served = False
        self._is_new = True
        """Whether it has not looked for a gateway before."""

    def close(self) -> None:
        os.close(self._journal)

    def serve(self) -> int:
        lost: deque[float] = deque(maxlen=_MOST_LOST)
        while True:
            gateway, self._is_served = None, False
            self._joining = self._said_to_join()
            try:
                gateway = self._joined_or_started()
                return self._attend(gateway)
            except _NotStarted as failed:
                return failed.code
            except (OSError, _Lost):
                code = _exit_code(gateway.child, tries=1 if self._is_served else _TRIES) if gateway is not None else 0
                if self._stops or _is_gone(0):
                    return 0
                if code and not self._is_served:
                    return code
                self._is_new = False
                lost.append(time.monotonic())
                if len(lost) == _MOST_LOST and lost[-1] - lost[0] < _LOST_WITHIN:
                    print("The gateway ended again and again; giving up.", file=sys.stderr)
                    return _GAVE_UP
            finally:
                if gateway is not None:
                    gateway.link.close()

    # To find a gateway.

    def _said_to_join(self) -> bytes:
        """Who the client is. What it has to have in common with a gateway is read anew: files change."""
        like = likeness(self._arguments, self._environment, Path.cwd())
        said = {"name": self._name, "like": like, "variables": digests(self._environment)}
        return json.dumps(said).encode()

    def _joined_or_started(self) -> _Gateway:
        with _locked(self._folder / _LOCK):
            joined = self._joined()
            if joined is not None:
                return joined
            gateway = self._started()
            try:
                # Until others find it: a second one for the same clients must not start meanwhile.
                self._wait_for(gateway, wire.BOUND, _START_SECONDS)
            except (OSError, _Lost):
                gateway.link.close()
                if code := _exit_code(gateway.child):
                    raise _NotStarted(code) from None
                raise
            return gateway

    def _joined(self) -> _Gateway | None:
        """The newest gateway that serves such clients; None if there is none. Removes the sockets of dead ones."""
        for path in sockets_named(lambda name: name.startswith(SOCKET_PREFIX), [self._folder])[:_MOST_TRIED]:
            gateway = _Gateway(socket.socket(socket.AF_UNIX))
            connection = gateway.link.socket
            try:
                connection.settimeout(_HELLO_SECONDS)
                connection.connect(str(path))
                if is_own_user(connection) and self._is_welcome(gateway):
                    self._hand_over(gateway.link)
                    return gateway
            except ConnectionRefusedError:
                with contextlib.suppress(OSError):
                    path.unlink()
            except (OSError, _Lost, ValueError):
                # Busy, or another program listens there.
                pass
            gateway.link.close()
        return None

    def _is_welcome(self, gateway: _Gateway) -> bool:
        said = self._wait_for(gateway, wire.HELLO, _HELLO_SECONDS)
        if json.loads(said.content) != hello():
            return False
        gateway.link.say(wire.JOIN, self._joining)
        self._wait_for(gateway, wire.WELCOME, _WELCOME_SECONDS)
        return True

    def _started(self) -> _Gateway:
        ours, theirs = socket.socketpair()
        with theirs:
            # The program may have been updated since this process loaded its part of it.
            child = _forked() if self._is_new else None
            if child == 0:
                ours.close()
                raise _IsGateway(theirs.detach())
            child = child or _gateway_process(theirs, self._arguments, self._environment)
        gateway = _Gateway(ours, child)
        gateway.link.say(wire.JOIN, self._joining)
        self._hand_over(gateway.link)
        return gateway

    def _hand_over(self, link: ProcessLink) -> None:
        link.say(wire.FILES, files=(0, 1, self._journal))

    # While it serves.

    def _attend(self, gateway: _Gateway) -> int:
        """Wait until the client has left; returns the exit code. Raises _Lost if the gateway ends before."""
        while self._stops <= 1:
            while gateway.said:
                said = gateway.said.popleft()
                if said.kind == wire.END:
                    return int(said.content)
            self._listen(gateway, None)
        return 128 + signal.SIGTERM

    def _wait_for(self, gateway: _Gateway, kind: bytes, seconds: float) -> Said:
        """The next message, which has to be of this kind."""
        ends_at = time.monotonic() + seconds
        while not gateway.said:
            if (left := ends_at - time.monotonic()) <= 0 or self._stops > 1:
                raise _Lost
            self._listen(gateway, left)
        said = gateway.said.popleft()
        if said.kind != kind:
            raise _Lost
        return said

    def _listen(self, gateway: _Gateway, seconds: float | None) -> None:
        """Take in what the gateway says next, show its log, and pass signals on to it."""
        link, signals = gateway.link.socket.fileno(), self._signals.fileno()
        ready, _, _ = select.select([link, signals], [], [], seconds)
        if signals in ready:
            for number in self._signals.taken():
                self._pass_on(gateway.link, number)
        if link in ready:
            said = gateway.link.hear()
            if said is None:
                raise _Lost
            for one in said:
                self._take(gateway, one)

    def _take(self, gateway: _Gateway, said: Said) -> None:
        if said.kind == wire.LOG:
            _show(said.content)
        elif said.kind == wire.NEW_JOURNAL and said.files:
            os.close(self._journal)
            self._journal = said.files[0]
        elif said.kind == wire.SERVING:
            self._is_served = True
        else:
            gateway.said.append(said)

    def _pass_on(self, link: ProcessLink, number: int) -> None:
        if number == signal.SIGHUP:
            link.say(wire.RELOAD)
            return
        self._stops += 1
        link.say(wire.STOP)


def hello() -> dict[str, object]:
    """How a gateway introduces itself; one that introduces itself in another way is another version."""
    return {"protocol": wire.PROTOCOL, "version": __version__, "code": str(Path(__file__).parent)}


def _forked() -> int | None:
    """Another process like this one, which need not load Python once more: 0 there. None where that is not safe: on
    macOS, whose libraries do not work in such a process, and beside threads, which may hold locks.
    """
    with contextlib.suppress(OSError):
        if sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1:
            return os.fork()
    return None


def _become_gateway(link: int) -> None:
    """Have this process be like one that `_gateway_process` starts."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    os.environ[LINK_VARIABLE] = str(link)


def _gateway_process(link: socket.socket, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Start a gateway, outside of our process group, so that it outlives this client."""
    os.set_inheritable(link.fileno(), True)
    program = [sys.executable, "-P", "-m", "mcp_optimizer_gateway", *arguments]
    variables = {**environment, LINK_VARIABLE: str(link.fileno())}
    # What it says before it serves, for example about its settings, is said to the client that started it.
    files = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0), (os.POSIX_SPAWN_DUP2, 2, 1)]
    try:
        return os.posix_spawn(sys.executable, program, variables, file_actions=files, setsid=True)
    except NotImplementedError:
        return os.posix_spawn(sys.executable, program, variables, file_actions=files, setpgroup=0)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time finds or starts a gateway. After a while it is done without: the other one may hang."""
    import fcntl

    if not is_private(path.parent):
        raise Broken("the folder of the sockets is not private any more")
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        ends_at = time.monotonic() + _LOCK_SECONDS
        while time.monotonic() < ends_at:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_POLL)
        yield
    finally:
        os.close(file)


def _exit_code(child: int, tries: int = _TRIES) -> int:
    """How a gateway that this process started has failed; 0 if it has not, was killed, or another one started it."""
    if not child:
        return 0
    with contextlib.suppress(ChildProcessError):
        for _ in range(tries):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return max(os.waitstatus_to_exitcode(status), 0)
            time.sleep(_POLL)
    return 0


def _is_gone(descriptor: int) -> bool:
    """Whether the client has closed its end, and everything that it said was read."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | select.POLLHUP)
    return any(state & select.POLLHUP and not state & select.POLLIN for _, state in poll.poll(0))


def _show(text: bytes) -> None:
    with contextlib.suppress(OSError):
        os.write(2, text)
