"""`init`, `demo`, and `mcp-optimizer` alone: the first two minutes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mcp_optimizer.cli.client_environment import this_machine, this_program
from mcp_optimizer.cli.command_gateway import run, started
from mcp_optimizer.cli.command_options import JsonFlag, with_settings
from mcp_optimizer.cli.terminal import console, is_agreed, print_json
from mcp_optimizer.config.settings import Settings, load_settings, own_server_file
from mcp_optimizer.errors import ConfigurationError, OptimizerError
from mcp_optimizer.runtime.terminal_text import counted, in_a_line

if TYPE_CHECKING:
    from mcp_optimizer.app.optimizer import Optimizer


# `mcp-optimizer` alone, on a terminal: leads from nothing to a connected client, one step at a time. Each step is a
# command that is shown before it runs, so what happened here can be repeated, and nothing happens that the commands
# would not do. Asks before anything is written.

RunCommand = Callable[[Sequence[str]], int]
"""Runs one command of the program, and returns its exit code."""

_STEPS = 4
_TWICE = "Its own servers are behind the gateway now, so their tools are listed twice."
_LATER = (
    ("find", "REQUEST", "what a model finds, and at what cost"),
    ("report", "", "after a day: what was saved, and what to do"),
    ("dashboard", "", "the same in a browser, with serve --http 127.0.0.1:8765"),
    ("disconnect", "CLIENT", "undo, byte for byte"),
)


@dataclass(frozen=True)
class Guide:
    """The steps, each of which runs commands of the program."""

    run: RunCommand

    def lead(self) -> None:
        """All steps, as far as the user goes along."""
        from mcp_optimizer.cli.importing import plan_of_all
        from mcp_optimizer.config.clients.files import found_files

        settings = load_settings({})
        self._title(1, "Servers that your MCP clients have")
        found = found_files(this_machine())
        if found:
            self._do("import", "--dry-run")
        else:
            self._say("No files of known clients were found here.")
        copy = f"Copy them into {settings.server_file}? Your clients' files stay as they are."
        if found and plan_of_all(settings).taken and self._agreed(copy):
            self._do("import")
        if not settings.server_file.exists():
            self._say("There are no servers yet. Add one, then come back:  mcp-optimizer add npm:PACKAGE")
            self._say("Or see what this does, with servers of its own:     mcp-optimizer demo")
            return
        self._title(2, "Does each server start, and what does it cost? (The first start of some takes a minute.)")
        self._do("doctor")
        self._title(3, "Put the gateway into your clients")
        self._connect(settings)
        self._title(_STEPS, "Done")
        for command, argument, what in _LATER:
            self._say(f"  {f'mcp-optimizer {command} {argument}'.strip():<34} {what}")

    def _connect(self, settings: Settings) -> None:
        from mcp_optimizer.cli.importing import plan_of_all
        from mcp_optimizer.config.clients.connecting import is_installed
        from mcp_optimizer.config.clients.importing import ImportOutcome
        from mcp_optimizer.config.known_clients.table import CLIENTS

        machine = this_machine()
        entries = plan_of_all(settings).entries
        twice = {one.file.client.name for one in entries if one.is_there and one.outcome is ImportOutcome.SKIPPED}
        installed = [client for client in CLIENTS.values() if is_installed(client, machine)]
        if not installed:
            self._say("No MCP client was found here. When there is one:  mcp-optimizer connect CLIENT")
            return
        self._say(f"Found {counted(len(installed), 'client')}: {', '.join(client.title for client in installed)}.")
        for client in installed:
            if self._agreed(f"Connect {client.title}?"):
                self._do("connect", client.name, "--yes")
                if client.name in twice and self._agreed(f"{_TWICE} Switch them off in {client.title}?"):
                    self._do("import", client.name, "--move", "--yes")

    def _title(self, number: int, text: str) -> None:
        console().print(f"\n[bold]{number} of {_STEPS}[/]  {text}\n")

    def _say(self, text: str) -> None:
        console().print(in_a_line(text) if not text.startswith("  ") else text, markup=False, soft_wrap=True)

    def _agreed(self, question: str) -> bool:
        return is_agreed(question)

    def _do(self, *words: str) -> int:
        console().print(f"$ mcp-optimizer {shlex.join(words)}", style="dim", markup=False)
        return self.run(words)


def lead(program: Callable[[str], typer.Typer]) -> None:
    """Lead through the first use. `program` makes the program with one of its commands."""

    def run(words: Sequence[str]) -> int:
        try:
            code = typer.main.get_command(program(words[0])).main(list(words), "mcp-optimizer", standalone_mode=False)
        except OptimizerError as error:
            console().print(in_a_line(f"error: {error}"), style="red", markup=False, soft_wrap=True)
            return 1
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else 1
        return code if isinstance(code, int) else 0

    Guide(run).lead()


STARTER = """\
{
  // The MCP servers behind mcp-optimizer. The format is that of Claude Desktop, Cursor and other clients:
  // copy your "mcpServers" here, and leave mcp-optimizer as the only server in your client.
  "mcpServers": {
    // A server that is started as a process. It gets only the environment given here
    // (and PATH, HOME and the locale).
    "filesystem": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "${HOME}"]
    },
    // ${VAR} and ${VAR:-default} are replaced from the environment of mcp-optimizer.
    "github": {
      "disabled": true,
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-github"],
      "env": { "GITHUB_PERSONAL_ACCESS_TOKEN": "${GITHUB_TOKEN:-}" },
      "timeout": 30 // seconds a call may take
    },
    // A server over HTTP ("type": "sse" for the SSE transport).
    "remote": {
      "disabled": true,
      "url": "https://example.com/mcp",
      "headers": { "Authorization": "Bearer ${REMOTE_TOKEN:-}" }
    }
  }
}
"""

DEMO_REQUESTS = (
    ("search the web", ""),
    ("move a card to another column", ""),
    ("which customers are in the database", "sql query"),
    ("who is working on what on this board", ""),
    ("add a comment", "card"),
)


_OWN_SERVERS = (
    ("import", "copies the servers of your MCP clients"),
    ("doctor", "starts each server once, and says what it costs"),
    ("connect CLIENT", "puts the gateway into a client"),
)


def register(app: typer.Typer) -> None:
    for command in (init, demo):
        app.command()(command)


def init(
    path: Annotated[
        Path | None, typer.Argument(help="Path of the new file. Default: mcp.json in your config folder.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write a commented starter server file."""
    from mcp_optimizer.runtime.local_files import make_folder, write_file

    # Found from every folder, without the user having to trust one.
    is_own, path = path is None, path or own_server_file()
    if path.exists() and not force:
        raise ConfigurationError(f"{path} already exists. Choose another path, or overwrite it with --force.")
    try:
        if is_own:
            make_folder(path.parent)
        # Users will add keys to it.
        write_file(path, STARTER)
    except OSError as error:
        raise ConfigurationError(f"Cannot write {path}: {error.strerror}.") from error
    if as_json:
        print_json({"written": str(path)})
    else:
        named = "" if is_own else f" --config {shlex.quote(str(path))}"
        print(f"Wrote {path}. Edit it, then: mcp-optimizer doctor{named}")


@with_settings()
def demo(*, settings: Settings, as_json: JsonFlag = False) -> None:
    """Start the bundled demo servers, run a handful of searches, and show what each found, cost and saved."""
    # It shows nothing without its servers, whose first start on a slow machine takes long.
    wait = settings.wait if "wait" in settings.model_fields_set else settings.start_timeout
    run(_demo(settings.model_copy(update={"demo": True, "config": None, "wait": wait}), as_json))


async def _demo(settings: Settings, as_json: bool) -> None:
    async with started(settings, shows_servers=True) as optimizer:
        _need_servers(optimizer)
        if as_json:
            answers = [
                {"request": text, **(await optimizer.find(text, words)).model_dump(exclude_none=True)}
                for text, words in DEMO_REQUESTS
            ]
            print_json({"requests": answers})
            return
        await _show_demo(optimizer)


def _need_servers(optimizer: Optimizer) -> None:
    from mcp_optimizer.app.control.command_facts import missing_facts

    missing = missing_facts(optimizer.snapshot)
    if not missing:
        return
    named = ", ".join(f"{one['name']} ({one['reason'] or one['status']})" for one in missing)
    settings = optimizer.settings
    longer = f"--wait {4 * max(settings.wait, 15):g} --start-timeout {4 * settings.start_timeout:g}"
    raise OptimizerError(
        f"The demo's servers have not started within {settings.wait:g} s: {named}. If this machine is only slow, give "
        f"them longer: {shlex.join(this_program())} demo {longer}"
    )


async def _show_demo(optimizer: Optimizer) -> None:
    from rich.text import Text

    from mcp_optimizer.app.control.command_facts import found_facts
    from mcp_optimizer.catalog.tool_forms import Detail
    from mcp_optimizer.cli.tools import show_found
    from mcp_optimizer.runtime.terminal_text import counted, printable

    out = console()
    detail = Detail(optimizer.settings.detail)
    snapshot = optimizer.snapshot
    for state in optimizer.servers():
        tools = [tool for tool in snapshot.running if tool.server == state.name]
        sent = sum(tool.record.sent_tokens for tool in tools)
        out.print(f"[bold]{state.name}[/]: {counted(len(tools), 'tool')}, {sent:,} tokens")
    out.print(
        f"Without mcp-optimizer, every prompt carries all {len(snapshot.running)} tools: "
        f"[bold]{snapshot.sent_tokens:,} tokens[/] (name, description, input schema), unless the client loads tools on "
        "demand.\n"
        "With it, every prompt carries find_tool, call_tool, list_tools and read_result: "
        f"[bold]{optimizer.own_tokens} tokens[/].\n"
    )
    for text, words in DEMO_REQUESTS:
        out.print(Text.assemble("▸ find_tool ", (f'"{text}"', "bold"), f" +{words}" if words else ""))
        show_found(out, found_facts(optimizer.gateway.find(text, words, 3, detail)))
        out.print()
    query = {"queryDescription": "SELECT name, email FROM customers ORDER BY name LIMIT 3", "maxRows": 3}
    out.print(Text.assemble("▸ call_tool ", ("secureDatabaseQuery", "bold"), f" {json.dumps(query)}"))
    result = await optimizer.call("secureDatabaseQuery", query)
    out.print(Text(printable(result["content"][0]["text"])))
    out.print("\n[bold]With your own servers[/]")
    for command, what in _OWN_SERVERS:
        out.print(f"  {shlex.join(this_program())} {command:<16} {what}", markup=False, soft_wrap=True)
