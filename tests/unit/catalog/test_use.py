"""Learning from use: a tool that was called after a search ranks slightly higher in similar searches."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from mcp_optimizer.catalog.learned_use import MOST_PRIOR, LearnedUse, UseTable
from mcp_optimizer.db.database import Database, open_database
from mcp_optimizer.db.history import StoredUse

TOOLS = [("jira", "create_issue"), ("github", "create_issue")]
ASKED = ["creat", "issu"]


def table(most: int = 1_000) -> UseTable:
    return UseTable(b"0" * 16, most)


def test_a_tool_that_was_called_after_such_a_search_gains_and_never_more_than_the_cap() -> None:
    learned = table()
    assert learned.prior(ASKED, TOOLS) is None
    learned.count(ASKED, learned.tool(*TOOLS[1]))
    once = learned.prior(ASKED, TOOLS)
    assert once is not None
    assert 0 == once[0] < once[1] < MOST_PRIOR
    for _ in range(5_000):
        learned.count(ASKED, learned.tool(*TOOLS[1]))
    often = learned.prior(ASKED, TOOLS)
    assert often is not None
    assert once[1] < often[1] <= MOST_PRIOR


def test_words_that_were_never_searched_for_say_nothing() -> None:
    learned = table()
    learned.count(ASKED, learned.tool(*TOOLS[1]))
    assert learned.prior(["weather"], TOOLS) is None
    assert learned.prior([], TOOLS) is None


def test_no_more_pairs_are_kept_than_the_limit_and_the_rare_ones_go_first() -> None:
    learned = table(most=10)
    for _ in range(3):
        learned.count(["often"], learned.tool(*TOOLS[0]))
    for number in range(100):
        learned.count([f"once {number}"], learned.tool(*TOOLS[0]))
    assert learned.prior(["often"], TOOLS) is not None
    assert sum(learned.prior([f"once {number}"], TOOLS) is not None for number in range(100)) <= 10


@pytest.fixture
async def database(tmp_path: Path) -> Database:
    return await open_database(tmp_path / "catalog.db")


async def learner(database: Database | None) -> LearnedUse:
    async def stored() -> StoredUse | None:
        return StoredUse(database) if database is not None else None

    use = LearnedUse(stored, 1_000)
    await use.start()
    return use


async def test_a_call_of_a_tool_that_the_same_caller_found_is_learned_and_still_known_after_a_restart(
    database: Database,
) -> None:
    use = await learner(database)
    use.searched("anna", ASKED, TOOLS)
    use.called("bob", *TOOLS[1])
    use.called("anna", "other", "tool")
    assert use.prior(ASKED, TOOLS) is None
    use.called("anna", *TOOLS[1])
    learned = use.prior(ASKED, TOOLS)
    await use.stop()
    assert learned is not None
    again = await learner(database)
    remembered = again.prior(ASKED, TOOLS)
    assert remembered is not None
    assert remembered.tolist() == pytest.approx(learned.tolist())
    await database.close()


async def test_no_word_and_no_name_is_stored(database: Database) -> None:
    use = await learner(database)
    use.searched("anna", ["divorc", "lawyer"], TOOLS)
    use.called("anna", *TOOLS[0])
    await use.stop()
    async with database.engine.connect() as connection:
        rows = [tuple(map(str, row)) for row in await connection.execute(text("SELECT * FROM search_use"))]
    await database.close()
    assert len(rows) == 3
    assert not [part for row in rows for part in row for word in ("divorc", "lawyer", "jira", "issue") if word in part]


async def test_a_loop_of_calls_is_one_choice_and_a_gateway_without_a_database_learns_until_it_ends() -> None:
    use = await learner(None)
    use.searched("anna", ASKED, TOOLS)
    use.called("anna", *TOOLS[0])
    once = use.prior(ASKED, TOOLS)
    for _ in range(20):
        use.called("anna", *TOOLS[0])
    assert once is not None
    again = use.prior(ASKED, TOOLS)
    assert again is not None
    assert again.tolist() == once.tolist()
    await use.stop()


async def test_parameters_that_calls_had_more_than_once_are_usual_and_still_known_after_a_restart(
    database: Database,
) -> None:
    use = await learner(database)
    for parameters in (["page", "sort_by"], ["sort_by"], ["sort_by", "page"], ["owner"]):
        use.searched("anna", ASKED, TOOLS)
        use.called("anna", *TOOLS[0], parameters)
    names = ["owner", "page", "sort_by", "title"]
    assert use.usual(*TOOLS[0], names) == ["sort_by", "page"]
    assert use.usual(*TOOLS[1], names) == []
    await use.stop()
    again = await learner(database)
    assert again.usual(*TOOLS[0], names) == ["sort_by", "page"]
    assert again.usual(*TOOLS[0], ["page"]) == ["page"]
    await database.close()


async def test_a_parameter_is_no_word_of_a_request() -> None:
    use = await learner(None)
    use.searched("anna", ["other"], TOOLS)
    use.called("anna", *TOOLS[0], ["sort"])
    assert use.prior(["sort"], TOOLS) is None
    await use.stop()
