"""Builds all parts of one optimizer by their constructors alone, lower layers first. Starts nothing.

The only place that puts parts together. Scripts are built in `script_parts`, so that no script code is loaded while
they are off, and what only serving needs in `serving_parts`, so that commands load no server.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_optimizer import __version__
from mcp_optimizer.access.audit.trail import AuditTrail, SessionLabels
from mcp_optimizer.access.callers.keys import KnownKeys
from mcp_optimizer.access.callers.verification import Credentials
from mcp_optimizer.access.policy.policy import Policy, Rates
from mcp_optimizer.access.trust.pin_keeper import PinKeeper
from mcp_optimizer.app.part_options import (
    audit_options,
    budgets,
    concise_profiles,
    configuration_of,
    description_writer,
    is_native,
    is_transparent,
    policy_of,
    pool_options,
    price_of_results,
    result_options,
    token_issuers,
)
from mcp_optimizer.app.script_parts import script_runner, script_stubs, stored_scripts
from mcp_optimizer.app.setting_values import check_driver, items, trust_modes
from mcp_optimizer.app.shared_lists import SharedLists
from mcp_optimizer.catalog import LiveCatalog
from mcp_optimizer.catalog.admissions import ToolAdmission
from mcp_optimizer.catalog.ingestion import Ingestion
from mcp_optimizer.catalog.learned_shapes import LearnedShapes
from mcp_optimizer.catalog.learned_use import LearnedHoldings, LearnedUse
from mcp_optimizer.catalog.own_listings import AdmitsShown, OwnListings
from mcp_optimizer.catalog.snapshot import OwnViews
from mcp_optimizer.catalog.tool_forms import ToolForms
from mcp_optimizer.compression.compress import Dialect, SchemaNotes
from mcp_optimizer.compression.signature import Notes
from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.db.announcing import OtherGateways
from mcp_optimizer.db.storage import Storage
from mcp_optimizer.domain.audit import AuditEntry
from mcp_optimizer.domain.caller import Clientele, Principal
from mcp_optimizer.domain.gateways import ChangeKind
from mcp_optimizer.domain.own_tools import OWN_NAMES, ScriptMode, own_tools
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.gateway.permissions import Permissions, Views
from mcp_optimizer.gateway.servers import Arrivals
from mcp_optimizer.gateway.tasks import TaskBook
from mcp_optimizer.identity.logins import Logins
from mcp_optimizer.identity.store import InVault, SecretRows
from mcp_optimizer.identity.web import Web
from mcp_optimizer.metrics.accounts import Accounts
from mcp_optimizer.metrics.recorder import Recorder, event_logger, log_event
from mcp_optimizer.profiles.lists import ToolLists
from mcp_optimizer.profiles.refresher import ListRefresher
from mcp_optimizer.profiles.signposts import Keep, KnownSignpost, Signposts
from mcp_optimizer.profiles.written_descriptions import WrittenDescriptions
from mcp_optimizer.results.cache import ResultCache
from mcp_optimizer.results.calls import Call
from mcp_optimizer.results.estimates import Estimator
from mcp_optimizer.results.pipeline import Learn, Results
from mcp_optimizer.results.result_store import ResultStore, StoreLimits
from mcp_optimizer.runtime.local_names import LocalNames
from mcp_optimizer.runtime.outgoing import Outgoing
from mcp_optimizer.runtime.tasks import ForegroundGate
from mcp_optimizer.search.lexical import Vocabulary
from mcp_optimizer.serving.signpost_file import keep_signpost, read_signpost
from mcp_optimizer.token_counter import TokenCounter
from mcp_optimizer.upstream.pool import UpstreamPool
from mcp_optimizer.upstream.reporting import ServerNews
from mcp_optimizer.upstream.state import PoolOptions

if TYPE_CHECKING:
    from mcp_optimizer.access.callers.company_sign_in import CompanySignIns
    from mcp_optimizer.app.serving_parts import GatewayPeers, ServingParts
    from mcp_optimizer.domain.credentials import TokenIssuer
    from mcp_optimizer.identity.vault import Vault
    from mcp_optimizer.scripts.runner import ScriptRunner
    from mcp_optimizer.scripts.stored import StoredScripts


def result_store(settings: Settings, storage: Storage) -> ResultStore:
    """Where the rest of a cut result is kept."""
    limits = StoreLimits(settings.kept_hours, settings.kept_megabytes, settings.limits.waiting_results)
    return ResultStore(storage.kept_results, limits, storage.breaker)


def learning(shapes: LearnedShapes | None, holdings: LearnedHoldings | None) -> Learn | None:
    """What is learned from a result: the keys it has, and what its server holds. None if nothing is."""
    if shapes is None and holdings is None:
        return None

    def learn(call: Call, value: Callable[[], Any]) -> None:
        if shapes is not None:
            shapes.learn(call.shape_key, value)
        if holdings is not None:
            holdings.learn(call.caller.principal.id, call.server, call.tool, value)

    return learn


def results_of(
    settings: Settings, counter: TokenCounter, store: ResultStore, learn: Learn | None, cache: ResultCache
) -> Results:
    return Results(
        Estimator(settings.token_estimate, counter),
        store,
        result_options(settings),
        cache,
        price_of_results(settings),
        settings.limits,
        learn,
    )


@dataclass(frozen=True)
class Parts:
    """What an optimizer is made of."""

    settings: Settings
    configuration: str
    """Identifies the servers' configuration; history is kept under it."""
    counter: TokenCounter
    news: ServerNews
    pool: UpstreamPool
    outgoing: Outgoing
    local_names: LocalNames
    logins: Logins
    credentials: Credentials
    storage: Storage
    neighbours: GatewayPeers | None
    announcements: OtherGateways
    shared_lists: SharedLists
    kept_results: ResultStore
    ingestion: Ingestion
    catalog: LiveCatalog
    forms: ToolForms
    gateway: Gateway
    lists: ToolLists
    refresher: ListRefresher
    recorder: Recorder
    accounts: Accounts
    serving: ServingParts | None
    """None where no MCP client comes, as in a gateway of one command."""
    use: LearnedUse | None
    shapes: LearnedShapes | None
    trail: AuditTrail | None
    keeper: PinKeeper
    own_listings: OwnListings
    arrivals: Arrivals
    policy: Policy
    scripts: ScriptRunner | None
    stored_scripts: StoredScripts | None
    signposts: Signposts

    @property
    def for_clients(self) -> ServingParts:
        assert self.serving is not None, "this gateway was built for one command, and serves no clients"
        return self.serving

    def own_tools(self) -> Sequence[dict[str, Any]]:
        """Our own tools, as the gateway's own user gets them."""
        return self.signposts.own.on(_own_tools(self.settings))


def build_parts(
    specs: Sequence[ServerSpec],
    settings: Settings,
    *,
    clients: Clientele = Clientele.MANY,
    is_given: bool = False,
    serves: bool = True,
) -> Parts:
    """The only place that connects the parts. `is_given`: the servers come from a program, not a file. `serves`: MCP
    clients come, so there is more than finding, listing and calling.
    """
    check_driver(settings)
    counter, vocabulary, news, pace = TokenCounter(settings.encoding), Vocabulary(), ServerNews(), ForegroundGate()
    configuration = configuration_of(settings, specs if is_given else None)
    storage = Storage(settings.database_place, configuration=configuration)
    neighbours = _neighbours(settings, storage) if serves else None
    shared = neighbours.conversations if neighbours is not None else str
    labels = SessionLabels(shared, has_one_client=clients is not Clientele.MANY)
    trail = _trail(settings, storage, labels)
    outgoing = Outgoing()
    record = partial(_record_login, trail)
    is_one_of_many = neighbours is not None
    logins = Logins(_kept_logins(settings, storage), Web(outgoing=outgoing), record, is_one_of_many=is_one_of_many)
    names = neighbours.names if neighbours is not None else None
    options = pool_options(settings, names, clients=clients)
    ingestion = Ingestion(counter, vocabulary, storage.catalog, pace)
    credentials = _credentials(settings, storage, outgoing)
    keeper = PinKeeper(storage.pins, trust_modes(settings, specs), is_stored=settings.database_place is not None)
    own_names = () if is_transparent(settings) else OWN_NAMES
    catalog = LiveCatalog(ingestion, vocabulary, counter, own_names, _admission(keeper, options))
    pool = UpstreamPool(specs, options, __version__, news, authorize=logins.of, recall=catalog.recalled)
    listings = OwnListings(ingestion, keeper, pool.show, catalog.own_changed)
    arrivals = Arrivals(pool, listings, logins.logged_in, logins.how_to_log_in)
    own_views = OwnViews(listings, pool, arrivals.lacks_login, catalog.named)
    notes, schema_notes = Notes(settings.signature_notes), SchemaNotes(settings.schema_notes)
    forms = ToolForms(counter, notes, Dialect(settings.dialect), settings.groups, schema_notes)
    shapes = LearnedShapes(storage.shapes, settings.limits.learned_shapes) if settings.learn_shapes else None
    announcements = OtherGateways(settings.database_place, storage.announced)
    cache = ResultCache(settings.cache_megabytes, others=announcements)
    announcements.listen(ChangeKind.WRITTEN, cache.forget)
    kept = result_store(settings, storage)
    holdings = LearnedHoldings() if settings.learn_from_use else None
    results = results_of(settings, counter, kept, learning(shapes, holdings), cache)
    use = LearnedUse(storage.use, settings.limits.learned_pairs) if settings.learn_from_use else None
    policy = policy_of(settings)
    permissions = Permissions(
        Views(policy, own=own_views), Rates(settings.calls_per_minute), patience=settings.answer_timeout
    )
    book = TaskBook(storage.tasks, storage.breaker, storage.signatures, settings.limits.tasks)
    gateway = Gateway(
        catalog,
        pool,
        forms,
        results,
        settings.find_limit,
        settings.limits,
        use,
        settings.find_tokens,
        shapes,
        permissions,
        trail,
        stubs=script_stubs(settings),
        tasks=book,
        arrivals=arrivals,
        holdings=holdings,
        says_savings=settings.find_savings,
    )
    serving: ServingParts | None = None
    announce: Callable[[], None] = _to_no_client
    if serves:
        # Loaded only here: it brings the SDK's server, which takes a third of the processor time of a command.
        from mcp_optimizer.app.serving_parts import serving_parts

        serving = serving_parts(
            settings,
            gateway,
            catalog=catalog,
            pool=pool,
            ingestion=ingestion,
            keeper=keeper,
            listings=listings,
            own_views=own_views,
            tasks=book,
            trail=trail,
            names=names,
        )
        announce = serving.relay.announce_tools
    written = WrittenDescriptions(description_writer(settings), storage.forms)
    uses = _Uses(storage, catalog)
    signposts = _signposts(settings, catalog, gateway, counter, announce, is_given=is_given)
    own = _own_tools(settings)
    ranking = (items(settings.pinned_tools), budgets(settings), uses, written.texts)
    lists = ToolLists(catalog, forms, counter, *ranking, lambda: signposts.own.on(own), concise_profiles(settings))
    refresher = ListRefresher(catalog, lists, forms, storage.forms, written, pace, announce)
    recorder = Recorder(storage.history, settings.history_days)
    if event_logger.isEnabledFor(logging.INFO):
        recorder.listen(log_event)
    # In one batch of deferred work with the audit.
    accounts = Accounts(
        gateway, counter, recorder, labels, configuration, trail.afterwards if trail else None, ingestion.list_tokens
    )
    scripts = script_runner(settings, gateway, storage, shapes, names, are_known=clients is not Clientele.MANY)
    kept_scripts = stored_scripts(settings, storage, catalog, gateway, policy, pool, news, scripts)
    # In this order: when the relay announces a change, the catalog must already have it.
    news.listen(catalog.on_state, on_gone=catalog.forget)
    news.listen_to_own(listings.on_state)
    if serving is not None:
        serving.listen(news)
    logins.listen(arrivals.changed)
    for forget in (logins.forget, listings.forget, cache.clear, permissions.server_gone):
        news.listen(on_gone=forget)
    announcements.listen(ChangeKind.KEYS, credentials.keys_changed)
    announcements.listen(ChangeKind.APPROVED, keeper.look)
    return Parts(
        settings=settings,
        configuration=configuration,
        counter=counter,
        news=news,
        pool=pool,
        outgoing=outgoing,
        local_names=LocalNames(),
        logins=logins,
        credentials=credentials,
        storage=storage,
        neighbours=neighbours,
        announcements=announcements,
        shared_lists=SharedLists(storage, announcements, refresher, configuration),
        kept_results=kept,
        ingestion=ingestion,
        catalog=catalog,
        forms=forms,
        gateway=gateway,
        lists=lists,
        refresher=refresher,
        recorder=recorder,
        accounts=accounts,
        serving=serving,
        use=use,
        shapes=shapes,
        trail=trail,
        keeper=keeper,
        own_listings=listings,
        arrivals=arrivals,
        policy=policy,
        scripts=scripts,
        stored_scripts=kept_scripts,
        signposts=signposts,
    )


def _neighbours(settings: Settings, storage: Storage) -> GatewayPeers | None:
    # Loaded only here, as below.
    from mcp_optimizer.app.serving_parts import neighbours_of

    return neighbours_of(settings, storage)


def _to_no_client() -> None:
    """What a gateway without clients does to announce a change."""


def _own_tools(settings: Settings) -> tuple[dict[str, Any], ...]:
    """Our own tools; if they depend on the client, the largest set."""
    split, mode = settings.split_calls is not False, ScriptMode(settings.scripts)
    return own_tools(split_calls=split, scripts=mode, native=is_native(settings))


def _signposts(
    settings: Settings,
    catalog: LiveCatalog,
    gateway: Gateway,
    counter: TokenCounter,
    announce: Callable[[], None],
    *,
    is_given: bool,
) -> Signposts:
    """The text that describes what is behind the gateway. A program's servers are not kept with a file's."""
    is_on = settings.name_servers and not is_transparent(settings)
    said = (catalog, gateway, counter.count_or_most)
    if is_given or not is_on:
        return Signposts(*said, on_change=announce, is_on=is_on)
    return Signposts(*said, KnownSignpost(*read_signpost(settings)), keeping_signpost(settings), announce)


def keeping_signpost(settings: Settings) -> Keep:
    """Keeps this text for the next start with the same settings."""
    return lambda known: keep_signpost(settings, known.signpost, known.words)


def _trail(settings: Settings, storage: Storage, labels: SessionLabels) -> AuditTrail | None:
    """The audit trail; None if recording is off or has no place to write."""
    has_database = settings.database_place is not None
    if not settings.audit or not (has_database or settings.audit_path):
        return None
    return AuditTrail(audit_options(settings), storage.audit if has_database else None, labels)


def _admission(keeper: PinKeeper, options: PoolOptions) -> ToolAdmission:
    """What callers' own servers list is admitted for each caller."""
    return keeper if options.has_one_caller else AdmitsShown(keeper)


def _record_login(trail: AuditTrail | None, method: str, server: str, principal: Principal) -> None:
    """A login that only one caller uses names its caller; others are made and ended for the whole gateway."""
    if trail is not None:
        trail.add(AuditEntry(time.time_ns() // 1_000_000, principal.name_in_audit, method=method, server=server))


def _credentials(settings: Settings, storage: Storage, outgoing: Outgoing) -> Credentials:
    """The credentials accepted from HTTP callers."""
    keys = None if settings.database_place is None else KnownKeys(storage.api_keys, breaker=storage.breaker)
    issuers = token_issuers(settings, os.environ)
    if not issuers:
        return Credentials(keys)
    # Loaded only here: the token libraries are slow to import.
    from mcp_optimizer.access.callers.introspection import Introspection
    from mcp_optimizer.access.callers.signed_tokens import KeySet, SignedTokens

    web = Web(outgoing=outgoing)
    verifiers = {
        one.issuer: Introspection(one, web) if one.introspection_url else SignedTokens(one, KeySet(one, web))
        for one in issuers
    }
    return Credentials(keys, issuers, verifiers, web.close, _company_sign_ins(issuers, web))


def _company_sign_ins(issuers: Sequence[TokenIssuer], web: Web) -> CompanySignIns | None:
    """The issuers at which people sign in to the dashboard."""
    at = [(one, one.dashboard_login) for one in issuers if one.dashboard_login is not None]
    if not at:
        return None
    from mcp_optimizer.access.callers.company_sign_in import CompanySignIn, CompanySignIns

    return CompanySignIns({one.issuer: CompanySignIn(one, login, web) for one, login in at})


def _kept_logins(settings: Settings, storage: Storage) -> SecretRows | None:
    """Where logins are kept; without a database, only in this process."""
    place = settings.database_place
    return None if place is None else InVault(partial(_vault, place, storage), storage.breaker)


def _vault(place: Path | str, storage: Storage) -> Vault:
    from mcp_optimizer.identity.vault import Vault, keys_of

    return Vault(storage.secrets, keys_of(place, os.environ))


class _Uses:
    """How often each current tool was called before the start."""

    def __init__(self, storage: Storage, catalog: LiveCatalog) -> None:
        self._storage = storage
        self._catalog = catalog

    def __call__(self) -> dict[str, int]:
        uses = self._storage.uses
        return {tool.name: uses.get((tool.server, tool.record.name), 0) for tool in self._catalog.snapshot.running}
