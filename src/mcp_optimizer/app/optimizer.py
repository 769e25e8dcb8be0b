"""`Optimizer`: all of a user's MCP servers behind one object, which delegates all work to its parts.

Servers may also be given as dumps of their tools/list: these are shown and measured, and never started.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mcp_optimizer.app.control.answers import Answers
from mcp_optimizer.app.control.listener import ControlListener
from mcp_optimizer.app.costs import Costs
from mcp_optimizer.app.endpoints import command_answers, control_listener, http_app, mcp_server
from mcp_optimizer.app.life import Life
from mcp_optimizer.app.parts import Parts, build_parts
from mcp_optimizer.app.reloading import Reloading, ReloadOutcome
from mcp_optimizer.app.servers import server_specs
from mcp_optimizer.catalog import Snapshot
from mcp_optimizer.catalog.tool_forms import Detail
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.config.settings import Settings, load_settings
from mcp_optimizer.domain.caller import LOCAL, Clientele
from mcp_optimizer.domain.events import Event
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.gateway.batches import Batch
from mcp_optimizer.gateway.found_tools import FindToolResponse, ToolListPage, find_response
from mcp_optimizer.largejson.raw import has_large, plain
from mcp_optimizer.metrics.savings import Prices
from mcp_optimizer.metrics.tool_sizes import MANY, FormRecipe, Sizes, measured_in_processes
from mcp_optimizer.metrics.usage import Usage
from mcp_optimizer.serving.own_tools import find_reply
from mcp_optimizer.upstream.listing import read_dumps
from mcp_optimizer.upstream.state import UpstreamState

if TYPE_CHECKING:
    from mcp_optimizer.dashboard.overview_routes import Dashboard
    from mcp_optimizer.serving.gate import Gate
    from mcp_optimizer.serving.relay.server import Relay


def dumped_servers(folder: Path) -> list[UpstreamState]:
    """One server per file, in the state of a running one."""
    return [
        UpstreamState(ServerSpec(name=name, transport=Transport.STDIO), ServerStatus.RUNNING, listing)
        for name, listing in read_dumps(folder)
    ]


def are_many(dumps: Sequence[UpstreamState]) -> bool:
    """Whether measuring them in other processes pays."""
    return sum(len(state.listing.tools) for state in dumps) >= MANY


async def measure(parts: Parts, dumps: Sequence[UpstreamState]) -> Sizes:
    """Measure in other processes, and show the results; nothing is indexed."""
    settings = parts.settings
    kinds = (settings.signature_notes, settings.dialect)
    making = FormRecipe(settings.encoding, *kinds, settings.groups, settings.schema_notes)
    measured = await measured_in_processes([(state.name, state.listing.tools) for state in dumps], making)
    parts.forms.learn(measured.compressed)
    states = {state.name: replace(state, listing=state.listing.summary()) for state in dumps}
    baseline = sum(tool.tokens for tool in measured.tools)
    parts.catalog.show(Snapshot(measured.tools, states=states, baseline_tokens=baseline))
    return measured.sizes


_END = 10.0
"""Seconds for everything to end after the calls in progress. Servers take one or two; the rest is for a database
that is still being opened.
"""


class Optimizer:
    """All of a user's MCP servers behind one object.

    async with Optimizer.from_config("mcp.json") as optimizer:
        found = await optimizer.find("create a GitHub issue")
        result = await optimizer.call(found.tools[0].name, {"title": "..."})
    """

    def __init__(
        self,
        specs: Sequence[ServerSpec],
        settings: Settings,
        *,
        clients: Clientele = Clientele.MANY,
        is_given: bool = False,
        dumps: Sequence[UpstreamState] = (),
        follows_files: bool = False,
        serves: bool = True,
    ) -> None:
        """`is_given`: the servers come from a program, not from the server file of the settings.
        `follows_files`: the servers are those that the settings name, and change with their files.
        `serves`: MCP clients come. A gateway of one command loads no server.
        """
        parts = build_parts(specs, settings, clients=clients, is_given=is_given, serves=serves)
        self.parts = parts
        self._dumps = dumps
        self._life = Life(parts)
        self._costs = Costs(parts)
        self._reloading = Reloading(parts, settings) if follows_files else None
        self._dashboard: Dashboard | None = None
        self.settings = settings
        self.news = parts.news
        self.storage = parts.storage
        self.logins = parts.logins
        self.ingestion = parts.ingestion
        self.catalog = parts.catalog
        self.forms = parts.forms
        self.gateway = parts.gateway
        self.lists = parts.lists
        self.recorder = parts.recorder
        self.accounts = parts.accounts
        self.keeper = parts.keeper

    @classmethod
    def from_config(cls, config: str | Path | Mapping[str, Any] | None = None, **options: Any) -> Self:
        """From a server file (or `demo=True`), with any of the settings as keyword arguments.

        A dictionary is what a server file contains (`{"mcpServers": {...}}`), or only the servers by name.
        """
        if not isinstance(config, Mapping):
            return cls.from_settings(load_settings({"config": config, **options}))
        settings = load_settings(options)
        if settings.demo:
            raise ConfigurationError("Give either servers or demo, not both.")
        return cls(server_specs(settings, config), settings, is_given=True)

    @classmethod
    def from_settings(cls, settings: Settings, *, clients: Clientele = Clientele.MANY) -> Self:
        """A gateway for these clients, whose servers are those of the settings."""
        return cls(server_specs(settings), settings, clients=clients, follows_files=True)

    @classmethod
    def from_dumps(cls, folder: Path, settings: Settings) -> Self:
        """A catalog of tools/list dumps, one server per file; nothing is started and nothing can be called."""
        return cls([], settings.model_copy(update={"database": "none"}), dumps=dumped_servers(folder), serves=False)

    async def measure_dumps(self) -> Sizes | None:
        """Read the dumps for a report. Large numbers are measured in other processes, and not indexed."""
        if are_many(self._dumps):
            return await measure(self.parts, self._dumps)
        self.start()
        await self.catalog.caught_up()
        return None

    async def __aenter__(self) -> Self:
        """Start everything, and wait for the servers as long as the settings say."""
        self.start()
        await self.wait_for_servers(self.settings.wait)
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def start(self, *, saves_memory: bool = False) -> None:
        """Start the servers in the background; returns at once, and requests are answered from then on.

        `saves_memory`: for a long-lived process that may not search for a long time; work that only a first start
        needs then runs in a separate process.
        """
        # The catalog now owns the tools that they list.
        dumps, self._dumps = self._dumps, ()
        self._life.start(dumps, saves_memory=saves_memory)
        if self._reloading is not None:
            self._reloading.start()

    async def reload(self) -> ReloadOutcome:
        """Read the server file and the settings file again, and use what changed."""
        if self._reloading is None:
            raise ConfigurationError("These servers were not read from a file, so there is none to read again.")
        return await self._reloading.reload()

    def ask_before_reload(self, may_apply: Callable[[], bool]) -> None:
        """A change of the files is applied only if this says so, which ends the gateway otherwise."""
        if self._reloading is not None:
            self._reloading.ask_first(may_apply)

    @property
    def reload_problem(self) -> str:
        """What is wrong in the files now; empty if nothing is."""
        return self._reloading.problem if self._reloading is not None else ""

    def restart(self, server: str) -> None:
        """End a server after its calls, and start it again; returns at once."""
        self.parts.pool.restart(server)

    def log(self, server: str) -> list[str]:
        """The last lines of a server's stderr and its recent events, without its secrets."""
        return self.parts.pool.log(server)

    async def wait_for_servers(self, seconds: float) -> None:
        """Wait until every server is up or has failed, and its tools can be found."""
        await self._life.wait_for_servers(seconds)

    def client_left(self, key: str) -> None:
        """A client that had joined is gone: what it had of its own ends."""
        self.parts.pool.client_left(key)

    def announce_stop(self) -> None:
        """Report not ready. Calls are still accepted, until `drained`."""
        self._life.announce_stop()

    @property
    def is_watched(self) -> bool:
        """Whether something, such as a load balancer, polls for readiness."""
        return self._life.requests.is_watched

    async def drained(self) -> None:
        """Accept no more calls, and wait for those in progress as long as the settings say. May be called again."""
        await self._stop_reloading()
        await self._life.drained()

    async def stop(self, seconds: float = _END) -> None:
        """End everything. `seconds`: how long that may take once the calls in progress have ended."""
        await self._stop_reloading()
        try:
            await self._life.stop(seconds)
        finally:
            self.parts.local_names.close()

    async def _stop_reloading(self) -> None:
        if self._reloading is not None:
            await self._reloading.stop()

    async def find(
        self, tool_description: str, tool_keywords: str = "", limit: int | None = None, detail: str | None = None
    ) -> FindToolResponse:
        """The tools that fit, with the savings; `detail` is signature, schema or full."""
        self._life.check_running()
        wanted = Detail(detail or self.settings.detail)
        with self.accounts.answering("find_tool", {}, LOCAL) as account:
            found = await self.gateway.search(tool_description, tool_keywords, limit, wanted)
            account.reply(find_reply(found))
            return find_response(found)

    async def call(
        self, tool_name: str, parameters: Any = None, server_name: str | None = None, select: str = ""
    ) -> dict[str, Any]:
        """Call a tool; returns the CallToolResult as sent to clients. `select` (JMESPath) returns only a part of it.
        A list of parameters makes one call for each element, and gives one result.
        """
        self._life.check_running()
        asked = {"tool_name": tool_name, "server_name": server_name}
        with self.accounts.answering("call_tool", asked, LOCAL) as account:
            if (items := await self.gateway.batches.listed(parameters, LOCAL)) is not None:
                result = await self.gateway.batches.call(Batch(tool_name, items, server_name, select), LOCAL)
            else:
                result = await self.gateway.call(tool_name, parameters, server_name, LOCAL, select)
            account.reply(result)
        return await asyncio.to_thread(plain, result) if has_large(result) else result

    async def read_result(
        self, result_id: str, offset: int = 0, limit: int | None = None, *, select: str = "", search: str = ""
    ) -> dict[str, Any]:
        """More of a cut result: a page from `offset` on, what `select` selects, or what `search` finds."""
        self._life.check_running()
        with self.accounts.answering("read_result", {}, LOCAL) as account:
            results = self.gateway.results
            found = await results.read(result_id, LOCAL, offset=offset, limit=limit, select=select, search=search)
            return account.reply(found)

    async def run_script(self, script: str, may_change: Sequence[str] = ()) -> dict[str, Any]:
        """Run Python that calls tools; returns the CallToolResult as sent to clients. Needs the setting `scripts`."""
        self._life.check_running()
        if self.parts.scripts is None:
            raise ConfigurationError('Scripts are off. Set scripts to "read" or "write".')
        with self.accounts.answering("run_script", {}, LOCAL) as account:
            return account.reply(await self.parts.scripts.run(script, LOCAL, may_change=may_change))

    def tools(self, server: str | None = None, offset: int = 0) -> ToolListPage:
        """A page of all tools, or of those of one server."""
        self._life.check_running()
        return self.gateway.list_tools(server, offset)

    @property
    def snapshot(self) -> Snapshot:
        """The current snapshot of the catalog."""
        return self.catalog.snapshot

    @property
    def relay(self) -> Relay:
        """Everything but tools, between clients and servers."""
        return self.parts.for_clients.relay

    @property
    def gate(self) -> Gate:
        """The check of clients' messages."""
        return self.parts.for_clients.gate

    def servers(self) -> list[UpstreamState]:
        return self.parts.pool.states()

    def mcp_server(self) -> Any:
        """The MCP server, for any transport."""
        return mcp_server(self.parts)

    def http_app(self, host: str) -> Any:
        """The HTTP application: /mcp, /health, /ready, and, if enabled, the dashboard."""
        app, self._dashboard = http_app(self.parts, self._life, self._costs, host, self._reloading)
        return app

    def join(self, address: str) -> None:
        """Let other gateways on the same database reach this one at this address."""
        if self.parts.neighbours is not None:
            self.parts.neighbours.peers.join(address)

    def listening(self, port: int) -> None:
        """Mark a port as ours: addresses that servers name may not lead to it."""
        self.parts.outgoing.listening(port)

    def bind_beside(self, listening: socket.socket, *, is_one_of_many: bool = False) -> None:
        """Nobody else is to listen where names under `.localhost` lead."""
        self.parts.local_names.bind_beside(listening, is_one_of_many=is_one_of_many)

    def answers(self) -> Answers:
        """Answers commands in this process."""
        return command_answers(self.parts, self._life)

    def control(self, address: str = "", clients: Callable[[], int] | None = None) -> ControlListener:
        """The socket on which a serving gateway answers commands; `address` is where its clients reach it, and
        `clients` counts those that share it on stdio.
        """
        return control_listener(self.parts, self._life, address, self, clients)

    def release_streams(self) -> None:
        """End the streams that would otherwise keep the HTTP server from stopping."""
        if self._dashboard is not None:
            self._dashboard.end()

    @property
    def own_tokens(self) -> int:
        """The cost of our own tools in every prompt."""
        return self._costs.own_tokens

    @property
    def prices(self) -> Prices:
        """The prices of the configured model; otherwise typical ratios."""
        return self._costs.prices

    def usage(self, events: Sequence[Event], others: int = 0, *, everything: bool = False) -> Usage:
        """What these events say about the servers of this optimizer; with `everything`, about all servers on record."""
        return self._costs.usage(events, others, everything=everything)
