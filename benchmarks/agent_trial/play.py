"""Starts everything for one player: a fresh world, gateway, client session and page.

    python -m benchmarks.agent_trial.play DIR --from OTHER [--port 9100] [--tasks twelve] [--mode transparent]
    python -m benchmarks.agent_trial.play DIR --stop

DIR becomes the world, with prompt.md, log.jsonl, act.sh and play.json; OTHER is a world whose servers are installed.
--source selects the gateway's source tree, so that an older version can be played.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.agent_trial import client, programs, prompt, session, world
from benchmarks.paths import ROOT
from benchmarks.processes import free_port, is_listening
from mcp_optimizer.domain.own_tools import ScriptMode
from mcp_optimizer.token_counter import TokenCounter

_START_SECONDS = 300
_STOP_SECONDS = 20


def start_gateway(folder: Path, port: int, mode: str, scripts: str, source: Path) -> int:
    """Serve the world with the gateway of a source tree; return its process id once every server is ready."""
    if is_listening(port):
        sys.exit(f"Port {port} is in use.")
    command = [sys.executable, "-m", "mcp_optimizer", "serve", "--config", str(folder / "mcp.json")]
    command += ["--http", f"127.0.0.1:{port}", "--mode", mode, "--database", str(folder / "catalog.db")]
    command += ["--scripts", scripts]
    with (folder / "gateway.err").open("w") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": str(source / "src")},
            start_new_session=True,
        )
    servers = len(json.loads((folder / "mcp.json").read_text(encoding="utf-8"))["mcpServers"])
    deadline = time.monotonic() + _START_SECONDS
    while running(port) < servers:
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"The gateway did not start: see {folder / 'gateway.err'}")
        time.sleep(0.5)
    return process.pid


def running(port: int) -> int:
    """How many servers of the gateway run, all of which it starts to learn their tools."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as response:
            return int(json.load(response)["servers"].get("running", 0))
    except (urllib.error.URLError, OSError):
        return 0


def start(options: argparse.Namespace) -> dict[str, Any]:
    folder = options.folder.resolve()
    installed = (options.other or folder).resolve()
    stop(folder)
    programs.install(installed)
    world.make(folder, installed, sys.executable)
    log, socket = folder / "log.jsonl", folder / "act.sock"
    log.unlink(missing_ok=True)
    port = options.port or free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    gateway = start_gateway(folder, port, options.mode, options.scripts, options.source.resolve())
    state: dict[str, Any] = {"url": url, "mode": options.mode, "source": str(options.source.resolve())}
    state |= {"tasks": options.tasks, "scripts": options.scripts}
    save(folder, {**state, "processes": [gateway]})
    conversation = client.start(url, log, socket, options.name)
    instructions, tools = asyncio.run(prompt.listed(url))
    shown = prompt.definitions(instructions, tools)
    page = prompt.page(shown, socket.with_suffix(".sh"), folder / session.LAST, options.tasks)
    (folder / "prompt.md").write_text(page, encoding="utf-8")
    tokens = TokenCounter().count_tokens(shown)
    state |= {"processes": [conversation, gateway], "tools": len(tools), "definition_tokens": tokens}
    state |= {"prompt": str(folder / "prompt.md"), "log": str(log), "act": str(socket.with_suffix(".sh"))}
    save(folder, state)
    return state


def save(folder: Path, state: dict[str, Any]) -> None:
    (folder / "play.json").write_text(json.dumps(state, indent=1), encoding="utf-8")


def stop(folder: Path) -> None:
    """End what an earlier start left running in this folder."""
    path = folder / "play.json"
    if not path.exists():
        return
    for pid in json.loads(path.read_text(encoding="utf-8"))["processes"]:
        if is_ours(pid):
            end(pid)
    path.rename(folder / "played.json")


def is_ours(pid: int) -> bool:
    """Whether this process id still is what was started: ids are used again."""
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"mcp_optimizer" in command or b"agent_trial" in command
    return False


def end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    while is_ours(pid) and time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--from", type=Path, dest="other", metavar="OTHER", help="a world whose servers are installed")
    parser.add_argument("--port", type=int, default=0, help="of the gateway; default: a free one")
    parser.add_argument("--tasks", choices=prompt.TASKS, default="thirty", help="which tasks; default: thirty")
    parser.add_argument("--mode", choices=["search", "transparent"], default="search", help="what the gateway lists")
    parser.add_argument(
        "--scripts", choices=list(ScriptMode), default=ScriptMode.OFF, help="which tools scripts may call"
    )
    parser.add_argument("--source", type=Path, default=ROOT, help="the gateway's source tree; default: this one")
    parser.add_argument("--name", default="agent-trial", help="the client's name, as the gateway sees it")
    parser.add_argument("--stop", action="store_true", help="end what was started in DIR")
    options = parser.parse_args()
    if options.stop:
        stop(options.folder.resolve())
    else:
        print(json.dumps(start(options), indent=1))


if __name__ == "__main__":
    main()
