"""python -m tests.clients.table [CLIENT ...]: what clients send with the demo servers, directly and through us.

Measures each client in a home of its own: the tokens of its first request with the demo's three servers in its own
file, with none, and with mcp-optimizer in their place; and of a reply of find_tool as its model reads it, beside the
text that we send. Without names, writes `benchmarks/results/real_clients.md`; with names, prints the rows.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mcp_optimizer.token_counter import TokenCounter
from mcp_optimizer_demo import demo_server_commands
from tests.clients.__main__ import available
from tests.clients.bench import OURS, Bench
from tests.clients.endpoint import Conversation, Endpoint
from tests.clients.installing import FOLDER, versions
from tests.clients.programs import CLIENTS, OUR_NAME, RealClient
from tests.clients.story import find

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "real_clients.md"
WISH = "create a card on a board; list the tables of a database; fetch a page"
_STARTING = 15
_HEAD = """# Real clients

`python -m tests.clients.table` (clients from npm and PyPI, in the versions of `tests/clients/versions.toml`)

Each client was asked one question, without a person, by a scripted model that logs what it is sent. Tokens
(cl100k_base) of the whole first request: without servers, with the demo's three servers (85 tools) in the client's own
file, and with mcp-optimizer in their place, as `import --move` and `connect` leave it. Then of one reply of find_tool:
its text as we sent it, and what the client gave its model, with all that it adds.

| client | no server | direct | through us | find_tool, text | as read | ratio |
|---|---:|---:|---:|---:|---:|---:|
"""


@dataclass(frozen=True)
class Row:
    """A client, measured. Zero is what could not be."""

    client: RealClient
    alone: int = 0
    direct: int = 0
    through_us: int = 0
    reply: int = 0
    reply_text: int = 0

    def __str__(self) -> str:
        version = version_of(self.client)
        ratio = f"{self.reply / self.reply_text:.2f}" if self.reply and self.reply_text else "-"
        numbers = (self.alone, self.direct, self.through_us, self.reply_text, self.reply)
        told = " | ".join(f"{one:,}" if one else "-" for one in numbers)
        return f"| {self.client.title} {version} | {told} | {ratio} |"


def version_of(client: RealClient) -> str:
    known = versions()
    if client.is_from_npm:
        return str(known["npm"][client.package])
    return str(known["pypi"][client.package][0]).partition("==")[2]


def measured(bench: Bench, counter: TokenCounter) -> Row:
    """One client in three states. Servers have started before its model says its first word."""

    def first(talk: Conversation) -> int:
        body = dict(talk.first.body)
        return counter.count_tokens(json.dumps(body, ensure_ascii=False)) if body else 0

    client, row = bench.client, Row(bench.client)
    bench.set_up({})
    row = replace(row, alone=first(bench.ask("alone", []).held))
    servers = demo_server_commands()
    bench.set_up(servers)
    row = replace(row, direct=first(bench.ask("direct", [], client.patient(servers), client.waits).held))
    bench.optimizer("import", client.name, "--move", "--yes")
    if bench.optimizer("connect", client.name, "--yes", "--file").code:
        _connect_by_hand(bench)
    sent = _tap(bench)
    pause = threading.Event()
    steps = [replace(find(WISH), before=lambda: pause.wait(_STARTING))]
    talk = bench.ask("through us", steps, (*client.trusting, *client.patient(OUR_NAME)), client.waits).held
    row = replace(row, through_us=first(talk), reply_text=counter.count_tokens(_reply_text(sent)))
    reply = talk.read(0)
    return replace(row, reply=counter.count_tokens(reply.raw)) if reply else row


def _connect_by_hand(bench: Bench) -> None:
    entries = {name: {"command": one[0], "args": one[1:]} for name, one in demo_server_commands().items()}
    bench.server_file.parent.mkdir(parents=True, exist_ok=True)
    bench.server_file.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    bench.set_up({"mcp-optimizer": [str(OURS), "serve", "--config", str(bench.server_file)]})


def _tap(bench: Bench) -> Path:
    """Put a program in the place of ours, in the client's file, that writes down what we send. Returns that file."""
    tapped = bench.home / "mcp-optimizer"
    sent = bench.home / "sent.jsonl"
    tapped.write_text(f'#!/bin/sh\n"{OURS}" "$@" | tee -a "{sent}"\n', encoding="utf-8")
    tapped.chmod(0o755)
    bench.file.write_bytes(bench.file.read_bytes().replace(bytes(OURS), bytes(tapped)))
    return sent


def _reply_text(sent: Path) -> str:
    """The text of the reply of find_tool, as we sent it."""
    for line in sent.read_text(encoding="utf-8").splitlines() if sent.exists() else ():
        content = json.loads(line).get("result", {}).get("content")
        if content:
            return "\n".join(part["text"] for part in content)
    return ""


def rows(clients: Sequence[RealClient], node: str) -> Iterator[Row]:
    counter = TokenCounter()
    for client in clients:
        folder = FOLDER / "runs" / f"table-{client.name}"
        shutil.rmtree(folder, ignore_errors=True)
        with Endpoint(folder / "requests").running() as endpoint:
            yield measured(Bench(client, node, folder / "user", endpoint), counter)


def main() -> int:
    wanted = [client for client in CLIENTS if client.name in sys.argv[1:] or len(sys.argv) == 1]
    node, had, missing = available(wanted)
    lines = []
    for row in rows(had, node):
        lines.append(str(row))
        print(row, flush=True)
    for line in missing:
        print(f"clients: {line}")
    if len(sys.argv) == 1:
        RESULTS.write_text(_HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
