"""A gateway with stored scripts, made by the product's own constructors, without processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mcp_optimizer.access.policy.policy import Policy
from mcp_optimizer.catalog import LiveCatalog
from mcp_optimizer.db.scripts import ScriptRows
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.own_tools import ScriptMode
from mcp_optimizer.domain.stored_script import StoredScript
from mcp_optimizer.domain.tools import McpTool
from mcp_optimizer.gateway.gateway import Gateway
from mcp_optimizer.gateway.permissions import Permissions, Views
from mcp_optimizer.gateway.servers import BuiltInServers
from mcp_optimizer.limits import Limits
from mcp_optimizer.scripts.names import Toolbox
from mcp_optimizer.scripts.problems import CheckResult, Problem
from mcp_optimizer.scripts.saving import WantedScript
from mcp_optimizer.scripts.stored import ScriptSources, ScriptState, StoredScripts
from mcp_optimizer.upstream.state import UpstreamState
from tests.unit.catalogs import RecordingPool, live_catalog, mcp_tool, new_gateway, running

LIST = mcp_tool("list_cards", "List the cards of a board", {"board_id": {"type": "integer"}})
MOVE = mcp_tool("move_card", "Move a card", {"card_id": {"type": "integer"}})
DELETE = mcp_tool("delete_board", "Delete a board", {"board_id": {"type": "integer"}})
OPEN_CARDS = WantedScript(
    "open_cards",
    "cards = kanban.list_cards(board_id=board)\n[card for card in cards if card['open']]",
    "The open cards of a board",
)


class Runs:
    """Stands where scripts are run; keeps what it was given."""

    def __init__(self) -> None:
        self.given: list[tuple[str, tuple[str, ...], dict[str, Any], ScriptMode | None]] = []

    async def run(
        self,
        script: str,
        caller: Caller,
        *,
        may_change: Sequence[str] = (),
        arguments: Mapping[str, Any] | None = None,
        mode: ScriptMode | None = None,
    ) -> dict[str, Any]:
        self.given.append((script, tuple(may_change), dict(arguments or {}), mode))
        return {"content": [{"type": "text", "text": f"for {caller.principal.name}"}]}


class World:
    """A catalog, a gateway and the stored scripts of a database."""

    def __init__(
        self,
        rows: ScriptRows,
        catalog: LiveCatalog,
        mode: ScriptMode = ScriptMode.WRITE,
        problems: Sequence[str] = (),
        configured: Sequence[str] = ("kanban",),
        policy: Policy | None = None,
    ) -> None:
        self.catalog, self.runs, self.pool = catalog, Runs(), RecordingPool()
        self.problems, self.checks, self.configured = list(problems), 0, list(configured)
        built_in, policy = BuiltInServers(self.pool), policy or Policy()
        self.gateway: Gateway = new_gateway(
            catalog, pool=self.pool, permissions=Permissions(Views(policy)), built_in=built_in
        )

        async def stored() -> ScriptRows:
            return rows

        sources = ScriptSources(
            stored,
            catalog,
            built_in,
            policy,
            self.runs,
            lambda: self.configured,
            mode,
            Limits(stored_scripts=3),
            self._check,
        )
        self.scripts = StoredScripts(sources)

    async def _check(self, _script: StoredScript, _toolbox: Toolbox) -> CheckResult:
        self.checks += 1
        return CheckResult(tuple(Problem(1, problem) for problem in self.problems))

    async def save(self, wanted: WantedScript = OPEN_CARDS, *, replaces: bool = False) -> StoredScript:
        saved = await self.scripts.save(wanted, replaces=replaces)
        await self.catalog.caught_up()
        return saved

    async def now(self, *states: UpstreamState) -> None:
        for state in states:
            self.scripts.on_state(state)
            self.catalog.on_state(state)
        await self.catalog.caught_up()

    async def states(self) -> dict[str, tuple[ScriptState, str]]:
        return {script.name: (found.state, found.reason) for script, found in await self.scripts.all()}


async def kanban(*tools: McpTool) -> LiveCatalog:
    return await live_catalog(running("kanban", *(tools or (LIST, MOVE, DELETE))))
