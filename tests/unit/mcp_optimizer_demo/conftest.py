from typing import Any

import pytest

from mcp_optimizer_demo.kanban.seed import seeded_installation
from mcp_optimizer_demo.kanban.server import kanban_server
from mcp_optimizer_demo.kanban.state import Installation
from mcp_optimizer_demo.sql.server import sql_server
from mcp_optimizer_demo.web.server import web_server
from tests.unit.mcp_optimizer_demo.calling import NOON, Caller, SetClock


class Seeded:
    """Kanban instances that are seeded once and restored to that state for each test."""

    def __init__(self) -> None:
        self.clock = SetClock()
        self.installation: Installation = seeded_installation(self.clock)
        self._before: dict[str, dict[str, Any]] = {
            name: kanban.snapshot() for name, kanban in self.installation.instances.items()
        }

    def reset(self) -> None:
        self.clock.moment = NOON
        for name, kanban in self.installation.instances.items():
            kanban.restore(self._before[name])


@pytest.fixture(scope="session")
def seeded() -> Seeded:
    return Seeded()


@pytest.fixture
def clock(seeded: Seeded) -> SetClock:
    return seeded.clock


@pytest.fixture
def kanban(seeded: Seeded) -> Caller:
    seeded.reset()
    return Caller(kanban_server(seeded.installation))


@pytest.fixture
def sql() -> Caller:
    return Caller(sql_server())


@pytest.fixture
def web() -> Caller:
    return Caller(web_server())
