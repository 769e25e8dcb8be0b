"""Builds what runs and stores scripts, only if the settings enable them.

Called by `parts`. Script modules are imported inside functions, so that none is loaded otherwise.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mcp_optimizer.access.policy.policy import Policy
from mcp_optimizer.catalog import CatalogTool, LiveCatalog
from mcp_optimizer.catalog.learned_shapes import LearnedShapes
from mcp_optimizer.compression.shapes import Shape
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.db.storage import Storage
from mcp_optimizer.domain.own_tools import ScriptMode
from mcp_optimizer.domain.stored_script import StoredScript
from mcp_optimizer.domain.tools import shape_key
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.gateway.python_text import Stubs
from mcp_optimizer.runtime.signatures import OwnedNames
from mcp_optimizer.upstream.pool import UpstreamPool
from mcp_optimizer.upstream.reporting import ServerNews

if TYPE_CHECKING:
    from mcp_optimizer.scripts.names import Toolbox
    from mcp_optimizer.scripts.problems import CheckResult
    from mcp_optimizer.scripts.runner import ScriptRunner
    from mcp_optimizer.scripts.stored import StoredScripts


def has_scripts(settings: Settings) -> bool:
    return ScriptMode(settings.scripts) is not ScriptMode.OFF and settings.mode != "transparent"


def script_stubs(settings: Settings) -> Stubs | None:
    """Writes tools in the form in which scripts call them; None where scripts are off."""
    if not has_scripts(settings):
        return None
    from mcp_optimizer.scripts.stubs import StubWriter

    writer = StubWriter()
    return Stubs(writer.spelling, writer.stub)


def script_runner(
    settings: Settings,
    gateway: Gateway,
    storage: Storage,
    shapes: LearnedShapes | None,
    names: OwnedNames | None,
    *,
    are_known: bool,
) -> ScriptRunner | None:
    """The script runner; None where scripts are off. Raises ConfigurationError if the extra is not installed.

    `are_known`: whether each client has a key that no other client has.
    """
    if not has_scripts(settings):
        return None
    from mcp_optimizer.scripts.checking import ScriptChecker
    from mcp_optimizer.scripts.runner import ScriptRunner, WaitingScripts
    from mcp_optimizer.scripts.workers import check_installed
    from mcp_optimizer.upstream.questions import ParkedCalls, ParkingLimits

    check_installed()
    limits = settings.limits

    def learned(tool: CatalogTool, principal: str) -> Shape | None:
        return shapes.of(shape_key(tool.server, tool.record.definition_hash, principal)) if shapes is not None else None

    checker = ScriptChecker(limits, learned)
    name = names.waiting_call if names is not None else None
    parked = ParkedCalls(ParkingLimits(seconds=settings.answer_timeout), are_known=are_known, name=name)
    waiting = WaitingScripts(parked, partial(_key, storage))
    return ScriptRunner(gateway, ScriptMode(settings.scripts), limits, waiting, checker=checker)


async def _key(storage: Storage) -> bytes | None:
    """The database key with which later gateways verify what this one wrote."""

    async def read() -> bytes | None:
        stored = await storage.use()
        return await stored.key() if stored is not None else None

    return await storage.breaker.within(read)


def stored_scripts(
    settings: Settings,
    storage: Storage,
    catalog: LiveCatalog,
    gateway: Gateway,
    policy: Policy,
    pool: UpstreamPool,
    news: ServerNews,
    runner: ScriptRunner | None,
) -> StoredScripts | None:
    """The stored scripts; None where scripts are off. Call it before the catalog starts to listen to `news`."""
    if runner is None:
        return None
    from mcp_optimizer.scripts.stored import ScriptSources, StoredScripts

    async def check(script: StoredScript, toolbox: Toolbox) -> CheckResult:
        return await runner.check(script.source, toolbox, [one.name for one in script.parameters])

    scripts = StoredScripts(
        ScriptSources(
            storage.scripts,
            catalog,
            gateway.built_in,
            policy,
            runner,
            lambda: [state.name for state in pool.states()],
            runner.mode,
            settings.limits,
            check,
        )
    )
    news.listen(scripts.on_state)
    return scripts
