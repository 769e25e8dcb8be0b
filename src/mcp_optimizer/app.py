"""The composition root: settings in, a running optimizer out. The only place that knows concrete parts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mcp_optimizer import __version__
from mcp_optimizer.caller import LOCAL
from mcp_optimizer.catalog import LiveCatalog, Snapshot
from mcp_optimizer.catalog.use import LearnedUse
from mcp_optimizer.compression.compress import Dialect
from mcp_optimizer.compression.signature import Notes
from mcp_optimizer.db.events import Event
from mcp_optimizer.db.models import ServerStatus
from mcp_optimizer.demo import demo_server_commands
from mcp_optimizer.errors import ConfigurationError, OptimizerError
from mcp_optimizer.forms import Detail, ToolForms
from mcp_optimizer.gateway import Found, Gateway, ToolPage
from mcp_optimizer.ingestion.pipeline import Ingestion
from mcp_optimizer.json_text import compact
from mcp_optimizer.lazy import lazy
from mcp_optimizer.lull import Lull
from mcp_optimizer.memory import share_pools
from mcp_optimizer.metrics.accounts import Accounts
from mcp_optimizer.metrics.event_log import event_logger, log_event
from mcp_optimizer.metrics.prices import prices_of
from mcp_optimizer.metrics.recorder import Recorder
from mcp_optimizer.metrics.report import weights
from mcp_optimizer.metrics.savings import PLAIN_PRICES, Assumptions, Prices
from mcp_optimizer.metrics.sizes import MANY, Making, Sizes, measured_beside
from mcp_optimizer.metrics.usage import make_usage
from mcp_optimizer.own_tools import OWN_TOOLS
from mcp_optimizer.passing.face import Passing
from mcp_optimizer.profiles.tiers import ProfileName
from mcp_optimizer.raw_json import has_large, plain
from mcp_optimizer.registrar import Registrar
from mcp_optimizer.registration import Registration
from mcp_optimizer.results.cache import ResultCache
from mcp_optimizer.results.encodings import Encoding
from mcp_optimizer.results.estimates import Estimator
from mcp_optimizer.results.options import ResultOptions, Treatment
from mcp_optimizer.results.pipeline import Results
from mcp_optimizer.results.price import Price
from mcp_optimizer.results.store import ResultStore, StoreLimits
from mcp_optimizer.search.lexical import Vocabulary
from mcp_optimizer.server import FaceOptions, FindToolResponse, build_server, find_reply, find_response
from mcp_optimizer.settings import ResultSettings, Settings, load_settings
from mcp_optimizer.storage import Storage
from mcp_optimizer.token_counter import TokenCounter
from mcp_optimizer.upstream.config import read_server_file
from mcp_optimizer.upstream.dumps import read_dumps
from mcp_optimizer.upstream.itself import SAME_ADDRESS, is_own_address
from mcp_optimizer.upstream.parked import ParkingLimits
from mcp_optimizer.upstream.pool import UpstreamPool
from mcp_optimizer.upstream.processes import DEEPEST, depth
from mcp_optimizer.upstream.spec import ServerSpec, Transport
from mcp_optimizer.upstream.state import PoolOptions, UpstreamState
from mcp_optimizer.written_descriptions import WrittenDescriptions

if TYPE_CHECKING:
    from mcp_optimizer.dashboard.routes import Dashboard
    from mcp_optimizer.description_writer import DescriptionWriter

logger = logging.getLogger(__name__)

_FIRST_LISTS = 10.0
"""Seconds that the first lists wait for servers that start; what comes later is announced as a change."""

_END = 10.0
"""Seconds in which everything ends, once the calls under way have. Servers take one or two; the rest is for a database
that is just being opened."""
_LEAST = 0.1
"""Seconds that a part has to end in any case, also if another took all of the time."""


class Optimizer:
    """All of a user's MCP servers behind one object.

    async with Optimizer.from_config("mcp.json") as optimizer:
        found = await optimizer.find("create a GitHub issue")
        result = await optimizer.call(found.tools[0].name, {"title": "..."})
    """

    def __init__(self, specs: Sequence[ServerSpec], settings: Settings, *, has_one_client: bool = False) -> None:
        self.settings = settings
        _check_driver(settings)
        self._counter = TokenCounter(settings.encoding)
        self._vocabulary = Vocabulary()
        options = PoolOptions(
            start_timeout=settings.start_timeout,
            call_timeout=settings.call_timeout,
            first_pause=settings.restart_pause,
            longest_pause=settings.restart_pause_max,
            most_under_way=settings.max_in_flight,
            most_waiting=settings.max_waiting,
            own_sessions=settings.client_sessions,
            has_one_client=has_one_client,
            limits=settings.limits,
            parking=ParkingLimits(seconds=settings.answer_timeout),
        )
        self._pool = UpstreamPool(specs, options, __version__)
        self._dumps: list[UpstreamState] = []
        self.storage = Storage(settings.database_place)
        self._loading: asyncio.Task[None] | None = None
        self._warming: asyncio.Task[None] | None = None
        self._learning: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._dashboard: Dashboard | None = None
        self._is_settled = False
        self._stops_at: float | None = None
        self.takes_calls = True
        """Whether whoever calls now is answered: not while we stop."""
        lull = Lull()
        self.ingestion = Ingestion(self._counter, self._vocabulary, self.storage.catalog, lull)
        is_transparent = settings.mode == "transparent"
        own_names = () if is_transparent else tuple(tool["name"] for tool in OWN_TOOLS)
        self.catalog = LiveCatalog(self.ingestion, self._vocabulary, self._counter, own_names)
        self.forms = ToolForms(
            self._counter, Notes(settings.signature_notes), Dialect(settings.dialect), settings.groups
        )
        estimator = Estimator(settings.token_estimate, self._counter)
        store = ResultStore(self.storage.kept_results, StoreLimits(settings.kept_hours, settings.kept_megabytes))
        cache = ResultCache(settings.cache_megabytes)
        price = price_of_results(settings)
        results = Results(estimator, store, result_options(settings), cache, price, settings.limits)
        learned = settings.limits.learned_pairs
        self._use = LearnedUse(self.storage.use, learned) if settings.learn_from_use else None
        self.gateway = Gateway(
            self.catalog, self._pool, self.forms, results, settings.find_limit, settings.limits, self._use
        )
        budgets = {
            ProfileName.MINIMAL: settings.minimal_budget,
            ProfileName.STANDARD: settings.standard_budget,
            ProfileName.FULL: settings.full_budget,
        }
        pinned = _items(settings.pinned_tools)
        written = WrittenDescriptions(_description_writer(settings), self.storage.forms)
        self.registration = Registration(
            self.catalog, self.forms, self._counter, pinned, budgets, self._uses_by_name, written.texts
        )
        self.registrar = Registrar(self.catalog, self.registration, self.forms, self.storage.forms, written, lull)
        self.recorder = Recorder(self.storage.history, settings.history_days)
        self.accounts = Accounts(self.gateway, self._counter, self.recorder)
        if event_logger.isEnabledFor(logging.INFO):
            self.recorder.listen(log_event)
        self.passing = Passing(
            self._pool,
            lambda: self.catalog.snapshot.states,
            self.catalog.taken_in if is_transparent else None,
            self._started_once,
            settings.limits,
        )
        self._has_started = False
        self._pool.listener = self._on_state
        self._pool.on_notice = self.passing.on_notice

    async def _started_once(self) -> None:
        """Wait for the servers to start, the first time; later they may come and go."""
        if self._has_started:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_LISTS):
                while self.snapshot.is_starting:
                    await self.catalog.changed()
        self._has_started = True

    def _on_state(self, state: UpstreamState) -> None:
        self.catalog.on_state(state)
        self.passing.on_state(state)

    @classmethod
    def from_config(cls, config: str | Path | None = None, **options: Any) -> Self:
        """From a server file (or `demo=True`), with any of the settings as keyword arguments."""
        return cls.from_settings(load_settings({"config": config, **options}))

    @classmethod
    def from_settings(cls, settings: Settings, *, has_one_client: bool = False) -> Self:
        """`has_one_client`: serves a single client, as on stdio, and so every server's session is that client's."""
        return cls(server_specs(settings), settings, has_one_client=has_one_client)

    @classmethod
    def from_dumps(cls, folder: Path, settings: Settings) -> Self:
        """A catalog of tools/list dumps, one server a file; nothing is started and nothing can be called."""
        optimizer = cls([], settings.model_copy(update={"database": "none"}))
        for name, listing in read_dumps(folder):
            spec = ServerSpec(name=name, transport=Transport.STDIO)
            optimizer._dumps.append(UpstreamState(spec, ServerStatus.RUNNING, listing))
        return optimizer

    async def measure_dumps(self) -> Sizes | None:
        """Take the dumps in for a report. So many that it pays are measured in other processes, and not indexed."""
        listed = [(state.name, state.listing.tools) for state in self._dumps]
        if sum(len(tools) for _, tools in listed) < MANY:
            self.start()
            await self.catalog.caught_up()
            return None
        settings = self.settings
        making = Making(settings.encoding, settings.signature_notes, settings.dialect, settings.groups)
        measured = await measured_beside(listed, making)
        self.forms.learn(measured.compressed)
        states = {state.name: replace(state, listing=state.listing.summary()) for state in self._dumps}
        baseline = sum(tool.tokens for tool in measured.tools)
        self.catalog.snapshot = Snapshot(measured.tools, states=states, baseline_tokens=baseline)
        return measured.sizes

    async def __aenter__(self) -> Self:
        """Start everything, and wait for the servers as long as the settings say."""
        self.start()
        await self.wait_for_servers(self.settings.wait)
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def start(self) -> None:
        """Begin to start the servers; returns at once, and so may be asked at once."""
        share_pools()
        self.storage.on_opened_late = self.catalog.store
        self.storage.open()
        self._loading = asyncio.create_task(self._load_encoder())
        self._warming = asyncio.create_task(asyncio.to_thread(self.gateway.results.warm_up))
        if self._use is not None:
            self._learning = asyncio.create_task(self._use.start())
        for state in [*self._pool.states(), *self._dumps]:
            self.catalog.on_state(state)
        self._dumps.clear()
        self._pool.start()
        self._settling = asyncio.create_task(self._settle())
        self.registrar.start(self._profiles_in_use())
        if self.settings.history and self.settings.database_place is not None:
            self.recorder.start()

    async def wait_for_servers(self, seconds: float) -> None:
        """Wait until every server is up or has failed, and what they list can be found."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._pool.settled(seconds)
                if self._loading is not None:
                    await asyncio.shield(self._loading)
                await self.catalog.caught_up()

    async def _settle(self) -> None:
        """Wait until what the servers list can be found; for those that are slow to start, not for ever."""
        await self._pool.settled(_FIRST_LISTS)
        while any(state.status is ServerStatus.RUNNING for state in self.snapshot.missing()):
            await self.catalog.changed()
        self._is_settled = True

    @property
    def is_ready(self) -> bool:
        """Whether a tool can be found and called: the servers had their time to start, and one of them is there.

        Without any server there is nothing to wait for.
        """
        if self._stops_at is not None or not self._is_settled:
            return False
        missing = {state.name for state in self.snapshot.missing()}
        used = [state for state in self.servers() if state.status is not ServerStatus.STOPPED]
        return not used or any(state.status is ServerStatus.RUNNING and state.name not in missing for state in used)

    def announce_stop(self) -> None:
        """Be ready no longer. Calls still go on, until they are to be `drained`."""
        if self._stops_at is None:
            self._stops_at = time.monotonic() + self.settings.shutdown_timeout

    async def drained(self) -> None:
        """Take no more calls, and wait for those under way: as long as the settings say, however often asked."""
        self.announce_stop()
        assert self._stops_at is not None
        self.takes_calls = False
        await self._pool.drained(max(0.0, self._stops_at - time.monotonic()))

    async def stop(self, seconds: float = _END) -> None:
        """End everything, one part after the other, whatever fails or hangs on the way.

        `seconds`: how long that may take once the calls under way have ended.
        """
        await self.drained()
        self.catalog.close()
        for task in (self._settling, self._loading, self._warming, self._learning):
            if task is not None:
                # A thread goes on by itself; nobody waits for what it loads.
                task.cancel()
        parts = {
            "the lists of tools": self.registrar.stop,
            "the servers": self._pool.stop,
            "the catalog": self.catalog.caught_up,
            "the accounts": self.accounts.settled,
            "the history": self.recorder.stop,
            **({"what was learned from use": self._use.stop} if self._use is not None else {}),
            "the database": self.storage.close,
        }
        await end_all(parts, seconds)

    async def find(
        self, tool_description: str, tool_keywords: str = "", limit: int | None = None, detail: str | None = None
    ) -> FindToolResponse:
        """The tools that fit, with what finding them saved; `detail` is signature, schema or full."""
        wanted = Detail(detail or self.settings.detail)
        with self.accounts.answering("find_tool", {}, LOCAL) as account:
            found = await self.gateway.search(tool_description, tool_keywords, limit, wanted)
            account.reply(find_reply(found))
            return find_response(found)

    async def call(
        self, tool_name: str, parameters: Any = None, server_name: str | None = None, select: str = ""
    ) -> dict[str, Any]:
        """Call a tool; the CallToolResult as on the wire. `select`: only what this JMESPath selects of it."""
        asked = {"tool_name": tool_name, "server_name": server_name}
        with self.accounts.answering("call_tool", asked, LOCAL) as account:
            result = account.reply(await self.gateway.call(tool_name, parameters, server_name, LOCAL, select))
        return await asyncio.to_thread(plain, result) if has_large(result) else result

    async def read_result(
        self, result_id: str, offset: int = 0, limit: int | None = None, *, select: str = "", search: str = ""
    ) -> dict[str, Any]:
        """More of a result that was cut: a page from `offset` on, what `select` selects, or what `search` finds."""
        with self.accounts.answering("read_result", {}, LOCAL) as account:
            results = self.gateway.results
            found = await results.read(result_id, LOCAL, offset=offset, limit=limit, select=select, search=search)
            return account.reply(found)

    def tools(self, server: str | None = None, offset: int = 0) -> ToolPage:
        return self.gateway.list_tools(server, offset)

    @property
    def snapshot(self) -> Snapshot:
        """What the catalog holds at this moment."""
        return self.catalog.snapshot

    def servers(self) -> list[UpstreamState]:
        return self._pool.states()

    def mcp_server(self) -> Any:
        """The MCP face, for whichever transport serves it."""
        settings = self.settings
        options = FaceOptions(
            detail=Detail(settings.detail),
            profile=_profile(settings.tool_profile),
            dialect=Dialect(settings.dialect),
            profile_of_client={name: ProfileName(value.title()) for name, value in settings.client_profiles.items()},
            transparent=settings.mode == "transparent",
        )
        return build_server(self.gateway, __version__, self.passing, options, self.registrar, self.accounts)

    def _profiles_in_use(self) -> set[ProfileName]:
        named = {self.settings.tool_profile, *self.settings.client_profiles.values()}
        return {ProfileName(name.title()) for name in named if name is not None}

    def http_app(self, host: str) -> Any:
        """The HTTP application: /mcp, /health, /ready, and, if the settings want it, the dashboard."""
        from mcp_optimizer.http import admitted_hosts, build_http_app, is_loopback

        settings = self.settings
        hosts, origins = _items(settings.allowed_hosts), _items(settings.allowed_origins)
        routes = []
        if settings.dashboard:
            from mcp_optimizer.dashboard.guard import Guard
            from mcp_optimizer.dashboard.monitoring import metrics_route
            from mcp_optimizer.dashboard.routes import Dashboard, Sources
            from mcp_optimizer.metrics.prometheus import Meters

            guard = Guard(admitted_hosts(hosts, origins), is_loopback=is_loopback(host), token=settings.dashboard_token)
            sources = Sources(
                gateway=self.gateway,
                forms=self.forms,
                recorder=self.recorder,
                history=self.storage.history,
                usage=self.usage,
                find=self._find_and_count,
                own_tokens=lambda: self.own_tokens,
                version=__version__,
            )
            self._dashboard = Dashboard(sources, guard)
            meters = Meters(
                lambda: self.snapshot, self.recorder, lambda: self._assumptions, lambda: self.passing.gate.refused
            )
            self.recorder.listen(meters.take)
            routes += [*self._dashboard.routes(), metrics_route(meters, guard)]
        return build_http_app(
            self.mcp_server(),
            self.catalog,
            host=host,
            allowed_hosts=hosts,
            allowed_origins=origins,
            version=__version__,
            is_ready=lambda: self.is_ready,
            takes_calls=lambda: self.takes_calls,
            gate=self.passing.gate,
            routes=routes,
        )

    def let_go(self) -> None:
        """Before the HTTP server stops: end what would keep it waiting."""
        if self._dashboard is not None:
            self._dashboard.end()

    def _find_and_count(self, query: str) -> tuple[Found, int]:
        """What find_tool answers by default, and what that reply costs."""
        found = self.gateway.find(query, detail=Detail(self.settings.detail))
        text = find_reply(found)["content"][0]["text"]
        return found, self._counter.count_tokens(text)

    async def _load_encoder(self) -> None:
        """Load the encoder beside the start; until it is there, search goes by words and says so."""
        choice = self.settings.encoder
        if choice == "none":
            return
        self.catalog.encoder_is_loading = True
        try:
            choosing = await asyncio.to_thread(import_module, "mcp_optimizer.search.encoders.choose")
            encoder = await asyncio.to_thread(choosing.load_encoder, choice, self.settings.encoder_key)
        except (OptimizerError, OSError, ImportError, RuntimeError, ValueError) as error:
            logger.warning("The encoder %r cannot be used: %s. Search goes by words only.", choice, error)
            encoder = None
        await self.catalog.use_encoder(encoder)

    def _uses_by_name(self) -> dict[str, int]:
        uses = self.storage.uses
        return {tool.name: uses.get((tool.server, tool.record.name), 0) for tool in self.snapshot.running}

    @lazy
    def own_tokens(self) -> int:
        """What our own tools cost in every prompt."""
        return sum(self._counter.count_many([compact(tool) for tool in OWN_TOOLS]))

    @lazy
    def prices(self) -> Prices:
        """Of the model that the settings name; else how prices relate to each other."""
        model = self.settings.price_model
        return prices_of(model) if model else PLAIN_PRICES

    def usage(self, events: Sequence[Event]) -> dict[str, Any]:
        """What these events say about the servers of this optimizer."""
        return make_usage(events, weights(self.snapshot), self._assumptions, self.prices)

    @property
    def _assumptions(self) -> Assumptions:
        return Assumptions(self.settings.requests_per_session, self.own_tokens)


async def end_all(parts: Mapping[str, Callable[[], Coroutine[Any, Any, None]]], seconds: float) -> None:
    """End some parts, in their order. One that fails or takes too long is named, and the others go on."""
    ends_at = time.monotonic() + seconds
    for what, end in parts.items():
        left = max(_LEAST, ends_at - time.monotonic())
        task = asyncio.create_task(end())
        # Not a timeout around it: what does not end when it is told to may not end when it is cancelled, either.
        await asyncio.wait({task}, timeout=left)
        if not task.done():
            task.cancel()
            logger.error("Stopping: %s did not end within %.1f s.", what, left)
        elif not task.cancelled() and (error := task.exception()) is not None:
            logger.error("Stopping: %s failed to end.", what, exc_info=error)


def _check_driver(settings: Settings) -> None:
    """Said at once, and not when the catalog is opened: the user must do something about it."""
    if isinstance(settings.database_place, str) and find_spec("asyncpg") is None:
        raise ConfigurationError(
            "PostgreSQL needs a further package: pip install 'mcp-optimizer-gateway[postgres]', "
            "or choose a file with --database FILE."
        )


def result_options(settings: Settings) -> ResultOptions:
    """How results are treated, as the settings say."""
    return ResultOptions(
        everywhere=Treatment(
            max_rows=settings.max_rows,
            max_tokens=settings.max_tokens,
            encoding=Encoding(settings.result_encoding),
            cache_seconds=settings.cache_seconds,
        ),
        servers={name: _said(said) for name, said in settings.server_results.items()},
        tools={name: _said(said) for name, said in settings.tool_results.items()},
        plain_meta=settings.plain_meta,
    )


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def price_of_results(settings: Settings) -> Price | None:
    """What results cost, if a model is named."""
    if not settings.price_model:
        return None
    prices = prices_of(settings.price_model)
    return Price(prices.model, prices.currency, prices.input)


def _said(settings: ResultSettings) -> dict[str, Any]:
    said = settings.model_dump(exclude_none=True)
    return {**said, "encoding": Encoding(said["encoding"])} if "encoding" in said else said


def _description_writer(settings: Settings) -> DescriptionWriter | None:
    if not settings.description_writer:
        return None
    from mcp_optimizer.description_writer import DescriptionWriter

    return DescriptionWriter(settings.description_writer, settings.description_writer_key)


def _profile(name: str | None) -> ProfileName | None:
    return ProfileName(name.title()) if name else None


def server_specs(settings: Settings) -> list[ServerSpec]:
    """The servers that the settings name."""
    if (deep := depth(os.environ)) > DEEPEST:
        raise ConfigurationError(
            f"This gateway runs inside of {deep} others, each started by the one before: most likely a server file "
            "starts the gateway itself. Remove that entry, or give it another --config."
        )
    specs = _demo_specs() if settings.demo else read_server_file(settings.server_file, os.environ)
    if settings.http is not None:
        host, port = settings.http_address
        ours = {spec.name for spec in specs if spec.url and is_own_address(spec.url, host, port)}
        specs = [replace(spec, problem=SAME_ADDRESS) if spec.name in ours else spec for spec in specs]
    wanted, known = _items(settings.servers), [spec.name for spec in specs]
    if unknown := [name for name in wanted if name not in known]:
        raise ConfigurationError(f"There is no server {unknown[0]!r}. Servers: {', '.join(known) or 'none'}.")
    return [spec for spec in specs if spec.name in wanted] if wanted else specs


def _demo_specs() -> list[ServerSpec]:
    return [
        ServerSpec(name=name, transport=Transport.STDIO, command=command, args=tuple(args))
        for name, (command, *args) in demo_server_commands().items()
    ]
