"""History belongs to its configuration: other server files, and servers that are gone, are only counted."""

from __future__ import annotations

from pathlib import Path

from mcp_optimizer.app.part_options import configuration_of
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.db.database import open_database
from mcp_optimizer.db.history import History
from mcp_optimizer.domain.events import Event, EventKind
from mcp_optimizer.metrics.savings import own_history

HOURS = 3_600.0


def call(server: str, configuration: str = "ours", session: str = "s", at: float = 0.0) -> Event:
    return Event(at, EventKind.CALL, session, server=server, tool="t", configuration=configuration)


def find(*servers: str, configuration: str = "ours", session: str = "s", at: float = 0.0) -> Event:
    found = tuple((server, "t") for server in servers)
    return Event(at, EventKind.FIND, session, found=found, configuration=configuration)


def test_events_of_another_configuration_are_only_counted_also_where_servers_have_the_same_names() -> None:
    own = own_history([call("git"), call("git", "theirs"), find("git", configuration="theirs")], "ours", ["git"])
    assert own.events == [call("git")]
    assert own.others == 2


def test_a_conversation_with_a_server_that_is_gone_is_left_out_as_a_whole() -> None:
    earlier = [find("git", "old"), call("old", at=1), call("git", at=2)]
    later = [find("git", at=2 * HOURS), call("git", at=2 * HOURS + 1)]
    own = own_history([*later, *earlier], "ours", ["git", "mail"])
    assert own.events == later
    assert own.others == 3


def test_events_from_before_configurations_count_if_they_are_about_servers_at_hand() -> None:
    known = [find("git", configuration="", session="a"), call("git", "", "a", 1)]
    others = [call("old", "", "b"), find(configuration="", session="c")]
    own = own_history([*known, *others], "ours", ["git"])
    assert own.events == known
    assert own.others == 2


def test_searches_that_found_nothing_are_ours_where_the_configuration_says_so() -> None:
    assert own_history([find()], "ours", ["git"]).events == [find()]


def test_a_configuration_is_its_server_file_however_it_is_spelt(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    (tmp_path / "link.json").symlink_to(file)
    spelt = [Settings(config=path) for path in (file, tmp_path / "." / "mcp.json", tmp_path / "link.json")]
    assert len({configuration_of(settings) for settings in spelt}) == 1
    others = [Settings(config=tmp_path / "other.json"), Settings(demo=True), spelt[0]]
    given = [[ServerSpec(name, Transport.STDIO, "run")] for name in ("a", "b")]
    labels = {*map(configuration_of, others), *(configuration_of(spelt[0], specs) for specs in given)}
    assert len(labels) == 5
    assert not any("mcp.json" in label for label in labels)


async def test_two_gateways_of_two_server_files_on_one_database_do_not_mix(place: Path | str) -> None:
    database = await open_database(place)
    try:
        ours, theirs = History(database, "ours"), History(database, "theirs")
        await ours.write([call("git"), call("git", "")])
        await theirs.write([call("git", "theirs", at=5)])
        assert [event.configuration for event in await ours.read()] == ["ours", ""]
        assert await ours.call_counts() == {("git", "t"): 2}
        assert (await ours.others(), await theirs.others(), await ours.others(since=6)) == (1, 1, 0)
        everything = History(database)
        assert (len(await everything.read()), await everything.others()) == (3, 0)
    finally:
        await database.close()
