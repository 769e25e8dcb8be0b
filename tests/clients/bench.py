"""A user with one client: a home of its own, in which the client and mcp-optimizer are run as that user would.

Starts processes and reads files; knows nothing of what is checked.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from tests.clients.endpoint import Call, Conversation, Endpoint
from tests.clients.lab import TOKEN, TOKEN_VARIABLE
from tests.clients.programs import RealClient, Servers, Setup

_SECONDS = 90
SHOP = "toyshop"
"""The awkward server, by a name that no client's own texts have."""
OURS = Path(sys.executable).with_name("mcp-optimizer")


@dataclass(frozen=True)
class Ended:
    """A program that ran to its end, or was ended."""

    code: int
    printed: str


@dataclass(frozen=True)
class Talk:
    """A question that a client was asked: what its model read, and what it printed."""

    held: Conversation
    ended: Ended


class Bench:
    """One client, one home, one model."""

    def __init__(self, client: RealClient, node: str, folder: Path, endpoint: Endpoint) -> None:
        self.client = client
        self.home = folder / "home"
        self.log = folder / "lab.log"
        """What the awkward servers did."""
        self._command = client.command(node)
        self._node = node
        self._work = folder / "work"
        self._endpoint = endpoint
        # Several clients may be of one user.
        self.home.mkdir(parents=True, exist_ok=True)
        self._work.mkdir(exist_ok=True)
        self.log.touch()

    @property
    def file(self) -> Path:
        """Where the client keeps its servers."""
        return self.home / self.client.file

    @property
    def server_file(self) -> Path:
        return self.home / ".config" / "mcp-optimizer" / "mcp.json"

    @property
    def settings_file(self) -> Path:
        return self.home / ".config" / "mcp-optimizer" / "settings.toml"

    def lab(self, name: str = SHOP, *options: str) -> list[str]:
        """The command of an awkward server. Its path is absolute: clients start servers in folders of their own."""
        return [sys.executable, str(Path(__file__).with_name("lab.py")), str(self.log), "--name", name, *options]

    def kill_lab(self, name: str = SHOP) -> None:
        """Kill the awkward server of this name that was started last."""
        started = [line.split()[2] for line in self.did(f"{name} started ")]
        if started:
            os.kill(int(started[-1]), signal.SIGKILL)

    def slow_down(self, seconds: float) -> None:
        """From now on, awkward servers take so long to start."""
        self.log.with_name(f"{self.log.name}.slow").write_text(str(seconds), encoding="utf-8")

    def left_over(self) -> list[int]:
        """Awkward servers that still run, though whoever started them has ended."""
        started = [int(line.split()[2]) for line in self.did("") if line.split()[1] == "started"]
        return [pid for pid in started if Path(f"/proc/{pid}/cmdline").exists() and "lab" in _command_line(pid)]

    def did(self, words: str) -> list[str]:
        return [line for line in self.log.read_text(encoding="utf-8").splitlines() if line.startswith(words)]

    def set_up(self, servers: Servers, forbidden: str = "", asked: str = "") -> None:
        """Write the files of a user who has these servers in the client."""
        setup = Setup(servers, self._endpoint.url(self.client.name), forbidden, asked)
        for path, text in self.client.files(setup).items():
            (self.home / path).parent.mkdir(parents=True, exist_ok=True)
            (self.home / path).write_text(text, encoding="utf-8")

    def optimizer(self, *arguments: str) -> Ended:
        """Run mcp-optimizer. The client is not on the path, so it changes files itself."""
        return self._run([str(OURS), *arguments], {TOKEN_VARIABLE: TOKEN})

    def ask(
        self,
        log: str,
        steps: Sequence[Call],
        options: Sequence[str] = (),
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> Talk:
        """Ask the client its question, while the model follows these steps. Files may name the model, so it has one
        address; what it reads is logged apart.
        """
        steps = [replace(step, also=self.client.adds) for step in steps]
        held = self._endpoint.begin(self.client.name, log, steps)
        url = self._endpoint.url(self.client.name)
        environment = {"MODEL_KEY": "none", TOKEN_VARIABLE: TOKEN, **self.client.environment(url), **variables}
        return Talk(held, self._run([*self._command, *self.client.arguments(url), *options], environment))

    def _run(self, command: list[str], more: dict[str, str]) -> Ended:
        path = f"{Path(self._node).parent}:/usr/local/bin:/usr/bin:/bin"
        plain = {"HOME": str(self.home), "PATH": path, "LANG": "C.UTF-8", "NO_COLOR": "1", "DO_NOT_TRACK": "1"}
        process = subprocess.Popen(
            command,
            env={**plain, "DISABLE_TELEMETRY": "1", "NO_BROWSER": "1", **more},
            cwd=self._work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
        return Ended(process.returncode, printed.decode(errors="replace"))


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
    except OSError:
        return ""
