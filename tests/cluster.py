"""Three gateways on one PostgreSQL behind HAProxy, which sends each request to the next one: no stickiness.

Each gateway is a `serve --http` process with folders of its own, as on a machine of its own, and can be killed,
stopped, paused and started again at its port. HAProxy runs `deploy/haproxy.cfg`, as it is. Plain functions, so that a
fixture of any scope, and a benchmark, can hold them; what blocks is short, and `asyncio.to_thread` keeps it off a loop
that serves something itself. It must know nothing about what the gateways do.
"""

from __future__ import annotations

import csv
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.waiting import found_in_time

ROOT = Path(__file__).parent.parent
HAPROXY_FILE = ROOT / "deploy" / "haproxy.cfg"
NAMES = ("gateway-1", "gateway-2", "gateway-3")
"""As the file names them."""
_SECONDS = 30.0


@dataclass
class Gateway:
    """One of the processes."""

    name: str
    folder: Path
    command: list[str]
    environment: Mapping[str, str]
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where a client finds this one, past HAProxy."""
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def log(self) -> str:
        """What it has written to stderr, over all its lives."""
        return self._written.read_text() if self._written.exists() else ""

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        """Start it without waiting; at the port that it had before, if it lived before."""
        known = self._written.stat().st_size if self._written.exists() else 0
        with self._written.open("ab") as output:
            self.process = subprocess.Popen(
                [*self.command, "--http", f"127.0.0.1:{self.port}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=output,
                env=dict(self.environment),
                cwd=self.folder,
            )
        self._life_begins = known

    def until_listening(self) -> None:
        """Wait until it accepts connections."""

        def found() -> re.Match[bytes] | None:
            assert self.process is not None
            assert self.process.poll() is None, f"{self.name} ended before it listened: {self.log}"
            return re.search(rb"http://127\.0\.0\.1:(\d+)/mcp", self._written.read_bytes()[self._life_begins :])

        self.port = int(found_in_time(found, f"{self.name} listens", 2 * _SECONDS)[1])

    def until_ready(self) -> None:
        """Wait until a tool can be called there."""
        found_in_time(self._is_ready, f"{self.name} is ready", 2 * _SECONDS)

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_SECONDS)
        try:
            connection.request("GET", "/ready")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def kill(self) -> None:
        """As a machine that loses its power; returns when its port is closed."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(_SECONDS)
        # What was killed may be the warm command, which takes its fork along a moment later.
        found_in_time(lambda: not _accepts(self.port), f"the end of {self.name}")

    def terminate(self) -> None:
        """Ask it to stop, without waiting."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """It does nothing, and its connections stay open. Not for one that is started by the warm command."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """After its end: the same gateway again, listening."""
        assert self.process is not None
        self.process.wait(_SECONDS)
        self.start()
        self.until_listening()

    def end(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.terminate()
        try:
            self.process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    @property
    def _written(self) -> Path:
        return self.folder / "stderr.log"

    _life_begins: int = field(default=0, repr=False)


@dataclass
class Cluster:
    """The gateways and the balancer in front of them."""

    gateways: list[Gateway]
    port: int
    stats: Path
    log: Path
    """A line of HAProxy's for each request."""
    balancer: int = 0
    """HAProxy's process."""

    @property
    def address(self) -> str:
        """Where clients find all of them: each request goes to the next one."""
        return f"http://127.0.0.1:{self.port}/mcp"

    def restart(self, gateway: Gateway) -> None:
        """After a gateway's end: the same one again, at the same port, with its turn in the rotation."""
        gateway.restart()
        gateway.until_ready()
        self.until_used(gateway)

    def until_used(self, gateway: Gateway) -> None:
        found_in_time(lambda: gateway.name in self.up(), f"HAProxy uses {gateway.name}")

    def up(self) -> set[str]:
        """The gateways that HAProxy sends requests to."""
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(self.stats))
            asking.sendall(b"show stat\n")
            answer = b"".join(iter(lambda: asking.recv(65_536), b"")).decode()
        rows = csv.DictReader(answer.removeprefix("# ").splitlines())
        return {row["svname"] for row in rows if row["pxname"] == "gateways" and row["status"] == "UP"} & set(NAMES)


@contextmanager
def running_cluster(
    program: Sequence[str],
    config: Path,
    database: str,
    *options: object,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """The cluster, each gateway ready and in HAProxy's rotation; raises FileNotFoundError without HAProxy.

    `program` is how mcp-optimizer is started. `environment` is added to the environment of every gateway.
    """
    haproxy = haproxy_program()
    if haproxy is None:
        raise FileNotFoundError("HAProxy is not installed")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mcpo3-", ignore_cleanup_errors=True)))
        command = [*program, "serve", "--config", str(config), *map(str, options)]
        gateways = [_gateway(name, folder, command, database, environment or {}) for name in NAMES]
        for gateway in gateways:
            stack.callback(gateway.end)
            gateway.start()
        for gateway in gateways:
            gateway.until_listening()
        for gateway in gateways:
            # HAProxy takes them for up at its start and would leave out for a while whoever is not.
            gateway.until_ready()
        cluster = Cluster(gateways, free_port(), folder / "haproxy.sock", folder / "haproxy.log")
        stack.enter_context(_balancer(haproxy, cluster))
        stack.callback(_terminate_all, gateways)
        yield cluster


def haproxy_program() -> str | None:
    """Debian keeps it out of an ordinary user's PATH."""
    return shutil.which("haproxy", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))


def _gateway(name: str, folder: Path, command: list[str], database: str, environment: Mapping[str, str]) -> Gateway:
    own = folder / name
    own.mkdir()
    passed = {key: value for key, value in os.environ.items() if not key.startswith(("MCP_OPTIMIZER_", "XDG_"))}
    homes = {f"XDG_{kind}": str(own) for kind in ("DATA_HOME", "CONFIG_HOME", "STATE_HOME", "RUNTIME_DIR")}
    set_here = {"MCP_OPTIMIZER_DATABASE": database, "MCP_OPTIMIZER_ENCODER": "none"}
    return Gateway(name, own, command, {**passed, **homes, **set_here, **environment})


@contextmanager
def _balancer(program: str, cluster: Cluster) -> Iterator[None]:
    places = {f"GATEWAY_{number}": f"127.0.0.1:{one.port}" for number, one in enumerate(cluster.gateways, 1)}
    told = {"LISTEN": f"127.0.0.1:{cluster.port}", "ADMIN_SOCKET": str(cluster.stats), **places}
    with cluster.log.open("wb") as output:
        process = subprocess.Popen(
            [program, "-db", "-f", str(HAPROXY_FILE)], stdout=output, stderr=output, env={**os.environ, **told}
        )
    try:
        cluster.balancer = process.pid
        found_in_time(lambda: _answers(cluster.port, process, cluster.log), "HAProxy listens")
        yield
    finally:
        process.terminate()
        process.wait(_SECONDS)


def _answers(port: int, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    return _accepts(port)


def _accepts(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def _terminate_all(gateways: list[Gateway]) -> None:
    """All stop at the same time, before each is waited for."""
    for gateway in gateways:
        if gateway.process is not None and gateway.process.poll() is None:
            gateway.terminate()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
