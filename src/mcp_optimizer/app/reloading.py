"""Applies changes of the server file and the settings file while the gateway runs, reports errors in them, and says
which settings can change.

An edit that cannot be read changes nothing. Called by `Optimizer`, which starts and stops it; changed servers reach the
parts through the pool.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mcp_optimizer.app.part_options import budgets, concise_profiles, result_options, rulebook
from mcp_optimizer.app.parts import Parts, keeping_signpost
from mcp_optimizer.app.servers import changed_specs
from mcp_optimizer.app.setting_values import items, trust_modes
from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.config.trusted_files import notes_file
from mcp_optimizer.errors import ConfigurationError, listed
from mcp_optimizer.runtime.local_files import Sign, read_regular, sign_of
from mcp_optimizer.runtime.tasks import BackgroundTasks


def _tell_log(_parts: Parts, settings: Settings) -> None:
    logging.getLogger("mcp_optimizer").setLevel(settings.log_level.upper())


logger = logging.getLogger(__name__)


# Which settings can change while the gateway runs, and how they reach its parts. Every setting is in one of two sets.
# `docs/running.md` lists them from here.

Tell = Callable[[Parts, Settings], None]


def _tell_policy(parts: Parts, settings: Settings) -> None:
    parts.policy.use(rulebook(settings), settings.tool_risks)
    parts.signposts.begin_again(keeping_signpost(settings))
    parts.for_clients.relay.announce_tools()


def _tell_rate(parts: Parts, settings: Settings) -> None:
    parts.gateway.permissions.use_rate(settings.calls_per_minute)


def _tell_results(parts: Parts, settings: Settings) -> None:
    parts.gateway.results.use(result_options(settings))


def _tell_find(parts: Parts, settings: Settings) -> None:
    parts.gateway.use_limits_of_find(settings.find_limit, settings.find_tokens, says_savings=settings.find_savings)


def _tell_lists(parts: Parts, settings: Settings) -> None:
    parts.refresher.use(items(settings.pinned_tools), budgets(settings), concise_profiles(settings))


OF_SERVERS: Final = frozenset("servers trust_local trust_remote servers_trust".split())
"""Applied whenever the server file is read."""

_TOLD: Final[dict[frozenset[str], Tell]] = {
    frozenset({"rules", "tool_risks"}): _tell_policy,
    frozenset({"calls_per_minute"}): _tell_rate,
    frozenset(
        "max_rows max_tokens preview_tokens result_encoding cache_seconds server_results tool_results "
        "plain_meta".split()
    ): _tell_results,
    frozenset({"find_limit", "find_tokens", "find_savings"}): _tell_find,
    frozenset({"pinned_tools", "minimal_budget", "standard_budget", "full_budget", "concise_profiles"}): _tell_lists,
    frozenset({"log_level"}): _tell_log,
}

LIVE: Final = frozenset[str]().union(OF_SERVERS, *_TOLD)
"""Settings that take effect when their file changes."""

NEEDS_RESTART: Final = frozenset(
    "config demo database mode encoding encoder encoder_key learn_from_use learn_shapes detail signature_notes "
    "schema_notes name_servers network_variables "
    "dialect groups tool_profile app_tools description_writer description_writer_key client_profiles token_estimate "
    "cache_megabytes kept_hours kept_megabytes start_timeout call_timeout start_servers idle_timeout shared "
    "restart_pause restart_pause_max "
    "max_in_flight max_waiting client_sessions answer_timeout limits workers peer_address shutdown_timeout "
    "shutdown_delay wait http allowed_hosts allowed_origins dashboard dashboard_token public_url history history_days "
    "requests_per_session context_window price_model log_format otlp_endpoint split_calls scripts audit audit_file "
    "audit_megabytes audit_files audit_days audit_arguments require_auth open_to_anyone token_issuers reload "
    "dashboard_changes".split()
)
"""Settings that take effect at the next start."""


def differing(one: Settings, other: Settings) -> frozenset[str]:
    """The names of the settings that differ."""
    return frozenset(name for name in Settings.model_fields if getattr(one, name) != getattr(other, name))


def tell(parts: Parts, settings: Settings, changed: frozenset[str]) -> None:
    """Pass changed settings to the parts that use them."""
    for names, told in _TOLD.items():
        if names & changed:
            told(parts, settings)


_INTERVAL = 1.0
"""Seconds between two checks of the files."""
_STILL = 0.1
"""Seconds for which a file must stay unchanged: some programs write it in several steps."""
_EMPTIED = 5
"""Checks for which an emptied file must stay empty: empty settings also have no rules."""
_MOST_BYTES = 10_000_000
"""Maximum bytes of a file that is read again."""


@dataclass(frozen=True)
class ReloadOutcome:
    """What was applied: names of servers, and of settings."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()
    """Settings that changed in their file and take effect at the next start."""
    problem: str = ""
    """What is wrong in the files; the gateway keeps the last good state of that part."""

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.removed or self.changed or self.settings)


class Reloading:
    """Watches the files of a gateway. `problem` is what is wrong in them now, if anything."""

    def __init__(self, parts: Parts, settings: Settings, interval: float = _INTERVAL, still: float = _STILL) -> None:
        self._parts = parts
        self._settings = settings
        self._interval = interval
        self._still = still
        # Fixed at the start: while this file is being replaced, another one must not take its place.
        self._server_file = None if settings.demo else settings.server_file
        self._tasks = BackgroundTasks(logger, "The files are not watched any more; SIGHUP still reads them")
        self._turn = asyncio.Lock()
        self._is_over = False
        self._may_apply: Callable[[], bool] = lambda: True
        # A changed file must be trusted again; the notes record when it is.
        files = (self._server_file, settings.settings_file, notes_file())
        # A path that is a pipe at the start was read once, and never has new content.
        self._watched = [path for path in files if path is not None and (path.is_file() or not path.exists())]
        self._seen = self._signs()
        self.problem = ""
        self.needs_restart: tuple[str, ...] = ()

    def ask_first(self, may_apply: Callable[[], bool]) -> None:
        """Asked before a change is applied. False where this gateway ends because of it."""
        self._may_apply = may_apply

    def start(self) -> None:
        if self._settings.reload:
            self._tasks.spawn(self._watch())

    async def stop(self) -> None:
        """Apply no more changes: no server may start while the others end."""
        self._is_over = True
        await self._tasks.close()

    async def reload(self) -> ReloadOutcome:
        """Read the files now, whether or not they changed."""
        outcome = await self._attempt()
        self._report(outcome)
        return outcome

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            if self._signs() == self._seen or not await self._is_still():
                continue
            outcome = await self._attempt()
            if outcome.problem:
                # The file may be half edited: report only a problem that persists.
                await asyncio.sleep(self._interval)
                outcome = await self._attempt()
            self._report(outcome)

    async def _is_still(self) -> bool:
        now = self._signs()
        await asyncio.sleep(_EMPTIED * self._interval if _is_emptied(self._seen, now) else self._still)
        return self._signs() == now

    def _signs(self) -> list[Sign]:
        return [sign_of(path) for path in self._watched]

    async def _attempt(self) -> ReloadOutcome:
        async with self._turn:
            # Taken before reading: a change during the read is then noticed at the next check.
            self._seen = self._signs()
            wanted, wrong = await asyncio.to_thread(self._settings_now)
            changed = differing(self._settings, wanted)
            live = changed & LIVE
            settings = self._settings.model_copy(update={name: getattr(wanted, name) for name in live})
            specs, wrong_servers = await asyncio.to_thread(self._specs_now, settings)
            if self._is_over or not self._may_apply():
                return ReloadOutcome()
            self._settings = settings
            tell(self._parts, settings, live)
            return self._applied(specs, tuple(sorted(live)), tuple(sorted(changed - LIVE)), f"{wrong} {wrong_servers}")

    def _applied(
        self, specs: list[ServerSpec] | None, live: tuple[str, ...], later: tuple[str, ...], problem: str
    ) -> ReloadOutcome:
        if specs is None:
            return ReloadOutcome(settings=live, needs_restart=later, problem=problem.strip())
        # Before the servers, so that no tool of a new server is admitted under an old rule.
        self._parts.keeper.use_modes(trust_modes(self._settings, specs))
        applied = self._parts.pool.apply(specs)
        return ReloadOutcome(applied.added, applied.removed, applied.changed, live, later, problem.strip())

    def _settings_now(self) -> tuple[Settings, str]:
        """The settings in their file now, and what is wrong with it."""
        path = self._settings.settings_file
        if path is None:
            return self._settings, ""
        try:
            return self._settings.read_again(_text(path, "settings", self._settings.check_settings_file)), ""
        except ConfigurationError as error:
            return self._settings, str(error)

    def _specs_now(self, settings: Settings) -> tuple[list[ServerSpec] | None, str]:
        """The servers in the server file, None if it cannot be read; and what is wrong with it."""
        path = self._server_file
        try:
            text = _text(path, "server", settings.check_server_file) if path is not None else ""
            return changed_specs(settings, path, text), ""
        except ConfigurationError as error:
            return None, str(error)

    def _report(self, outcome: ReloadOutcome) -> None:
        """Logs each problem once."""
        if outcome.problem and outcome.problem != self.problem:
            logger.warning("A changed file cannot be used; everything goes on as before. %s", outcome.problem)
        self.problem = outcome.problem
        if outcome.needs_restart and outcome.needs_restart != self.needs_restart:
            logger.warning("Changed in the settings file, needs a restart: %s.", ", ".join(outcome.needs_restart))
        self.needs_restart = outcome.needs_restart
        if not outcome.is_empty:
            said = {"added": outcome.added, "removed": outcome.removed, "changed": outcome.changed}
            parts = [f"{what} {listed(list(names))}" for what, names in said.items() if names]
            parts += [f"settings {', '.join(outcome.settings)}"] if outcome.settings else []
            logger.info("Reloaded: %s.", "; ".join(parts))


def _is_emptied(before: list[Sign], now: list[Sign]) -> bool:
    """Whether a file was emptied, perhaps before being rewritten."""
    return any(
        sign is not None and sign[2] == 0 and (was is None or was[2]) for was, sign in zip(before, now, strict=True)
    )


def _text(path: Path, kind: str, check: Callable[[Path, bytes], None]) -> str:
    try:
        content = read_regular(path, _MOST_BYTES)
        check(path, content)
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigurationError(f"The {kind} file {path} is gone.") from None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"Cannot read the {kind} file {path}: {error}.") from error
