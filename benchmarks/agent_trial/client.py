"""What a client is to a model: sends one call and prints exactly what the model reads.

    python -m benchmarks.agent_trial.client start --url URL --log LOG --socket PATH [--name NAME]
    python -m benchmarks.agent_trial.client --socket PATH TOOL 'JSON'
    python -m benchmarks.agent_trial.client --socket PATH answer '{"action":"accept","content":{...}}'

`start` opens one MCP session in a background process, prints its process id, and writes the command PATH.sh, which
takes only TOOL and JSON. `-` instead of JSON reads it from stdin. If the server asks something in the middle of a call,
the question is printed and `answer` continues the call. Every exchange is appended to LOG.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.paths import ROOT

_CONNECT_SECONDS = 30

SCRIPT = """#!/bin/sh
PYTHONPATH={root} exec {python} -m benchmarks.agent_trial.client --socket {socket} "$@"
"""


def start(url: str, log: Path, address: Path, name: str) -> int:
    """Open the session in the background and return its process id once it answers."""
    address.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.agent_trial.session", "--url", url, "--name", name]
    command += ["--log", str(log.resolve()), "--socket", str(address)]
    with log.with_suffix(".err").open("w") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            start_new_session=True,
        )
    deadline = time.monotonic() + _CONNECT_SECONDS
    while not address.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"No session with {url}: see {log.with_suffix('.err')}")
        time.sleep(0.05)
    script = address.with_suffix(".sh")
    script.write_text(SCRIPT.format(root=ROOT, python=sys.executable, socket=address), encoding="utf-8")
    script.chmod(0o755)
    return process.pid


def act(address: Path, tool: str, text: str) -> str:
    """Send one call and return what the model reads."""
    try:
        arguments = json.loads(sys.stdin.read() if text == "-" else text)
    except ValueError as error:
        sys.exit(f"Not sent: the arguments are not JSON ({error})")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(address))
        connection.sendall(json.dumps({"tool": tool, "arguments": arguments}).encode())
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as answer:
            return answer.read().decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--socket", type=Path, required=True)
    if sys.argv[1:2] == ["start"]:
        parser.add_argument("--url", required=True)
        parser.add_argument("--log", type=Path, required=True)
        parser.add_argument("--name", default="agent-trial", help="the client's name, as the server sees it")
        options = parser.parse_args(sys.argv[2:])
        print(start(options.url, options.log, options.socket.resolve(), options.name))
        return
    parser.add_argument("tool", metavar="TOOL")
    parser.add_argument("arguments", metavar="JSON", nargs="?", default="{}")
    options = parser.parse_args()
    print(act(options.socket, options.tool, options.arguments))


if __name__ == "__main__":
    main()
