"""Puts together what keeps scripts; only where there is something that runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_optimizer.catalog import LiveCatalog
from mcp_optimizer.db.storage import Storage
from mcp_optimizer.domain.stored_script import StoredScript
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.policy.access import Policy
from mcp_optimizer.settings import Settings
from mcp_optimizer.upstream.news import ServerNews
from mcp_optimizer.upstream.pool import UpstreamPool

if TYPE_CHECKING:
    from mcp_optimizer.scripts.checked import Checked
    from mcp_optimizer.scripts.names import Toolbox
    from mcp_optimizer.scripts.running import ScriptRunner
    from mcp_optimizer.scripts.stored import StoredScripts


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
    """The scripts that are kept; None where scripts are off. To be called before the catalog listens to the news."""
    if runner is None:
        return None
    from mcp_optimizer.scripts.stored import ScriptSources, StoredScripts

    async def check(script: StoredScript, toolbox: Toolbox) -> Checked:
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
