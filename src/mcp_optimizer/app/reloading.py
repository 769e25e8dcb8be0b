"""Applies changes of the server file and the settings file while the gateway runs, and reports errors in them.

An edit that cannot be read changes nothing. Called by `Optimizer`, which starts and stops it; changed settings reach
the parts through `live_settings`, and changed servers through the pool.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mcp_optimizer.app.live_settings import LIVE, differing, tell
from mcp_optimizer.app.parts import Parts
from mcp_optimizer.app.servers import changed_specs
from mcp_optimizer.app.setting_values import trust_modes
from mcp_optimizer.config.serverfile.spec import ServerSpec
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.config.trusted_files import notes_file
from mcp_optimizer.errors import ConfigurationError, listed
from mcp_optimizer.runtime.local_files import Sign, read_regular, sign_of
from mcp_optimizer.runtime.tasks import BackgroundTasks

logger = logging.getLogger(__name__)

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
