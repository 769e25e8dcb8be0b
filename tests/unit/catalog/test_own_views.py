"""Callers of one entry each have their own tools, and share one index and equal listings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from mcp_optimizer.access.trust.pin_keeper import PinKeeper
from mcp_optimizer.catalog.admissions import AdmitsAll, ToolAdmission
from mcp_optimizer.catalog.ingestion import Ingestion
from mcp_optimizer.catalog.live import LiveCatalog
from mcp_optimizer.catalog.own_listings import OwnListings, in_common
from mcp_optimizer.catalog.snapshot import UNKNOWN_CALLER, OwnViews, Snapshot
from mcp_optimizer.config.serverfile.spec import AuthKind, AuthSpec, ServerSpec, Transport
from mcp_optimizer.domain.caller import ANYONE, Caller, Principal
from mcp_optimizer.domain.pins import ToolChange, TrustMode
from mcp_optimizer.domain.tools import Definition, McpTool, ServerStatus
from mcp_optimizer.errors import ServerUnavailable
from mcp_optimizer.search.lexical import Vocabulary
from mcp_optimizer.token_counter import TokenCounter
from mcp_optimizer.upstream.listing import Listing
from mcp_optimizer.upstream.pool import UpstreamPool
from mcp_optimizer.upstream.state import PoolOptions, UpstreamState
from tests.unit.catalogs import mcp_tool, no_database, running

ADA, BOB, CYD = (Principal(f"key:{name}", f"key:{name}") for name in ("ada", "bob", "cyd"))
NOTE = mcp_tool("read_note", "Read a note.")
AUTH = AuthSpec(kind=AuthKind.OAUTH, per_caller=True)
DESK = ServerSpec("desk", Transport.HTTP, url="https://desk.example/mcp", auth=AUTH)


class Desk:
    """A catalog with an entry, `desk`, that acts as each caller, and another server."""

    def __init__(self, admission: ToolAdmission | None = None, auth: AuthSpec = AUTH) -> None:
        counter, vocabulary = TokenCounter(), Vocabulary()
        ingestion = Ingestion(counter, vocabulary, no_database)
        self.spec = replace(DESK, auth=auth)
        self.catalog = LiveCatalog(ingestion, vocabulary, counter)
        self.listings = OwnListings(ingestion, admission or AdmitsAll(), self.show, self.catalog.own_changed)
        self.logins: Mapping[str, str] = {}
        self.views = OwnViews(
            self.listings, self, lambda _spec, caller: self.logins.get(caller.id, ""), self.catalog.named
        )
        self.catalog.on_state(running("wiki", mcp_tool("read_page", "Read a page of the wiki.")))
        self.catalog.on_state(UpstreamState(self.spec, ServerStatus.RESTING))
        self.shown = 0

    @property
    def by_caller(self) -> list[ServerSpec]:
        return [self.spec]

    def show(self, _server: str, listing: Listing, instructions: str) -> None:
        self.shown += 1
        state = UpstreamState(self.spec, ServerStatus.RUNNING, listing, instructions=instructions)
        self.catalog.on_state(state)

    async def lists(self, caller: Principal, *tools: McpTool) -> None:
        listing = Listing(tuple(map(Definition.of, tools)))
        self.listings.on_state(caller, UpstreamState(self.spec, ServerStatus.RUNNING, listing))
        await self.listings.settled()
        await self.catalog.caught_up()

    def seen(self, caller: Principal) -> Snapshot:
        return self.views.of(self.catalog.snapshot, caller)

    def names(self, caller: Principal) -> set[str]:
        return {tool.name for tool in self.seen(caller).running}


async def test_each_caller_has_the_tools_that_are_listed_for_it_and_no_others() -> None:
    desk = Desk()
    await desk.lists(ADA, NOTE, mcp_tool("ada_diary", "Read the diary of Ada."))
    await desk.lists(BOB, NOTE)
    assert desk.names(ADA) == {"read_page", "read_note", "ada_diary"}
    assert desk.names(BOB) == {"read_page", "read_note"}
    assert desk.seen(BOB).baseline_tokens < desk.seen(ADA).baseline_tokens


async def test_a_tool_that_is_defined_differently_shows_everybody_only_what_is_common() -> None:
    desk = Desk()
    await desk.lists(ADA, mcp_tool("write", "Write a page. Into the book of Ada.", {"book": {"enum": ["Ada"]}}))
    await desk.lists(BOB, mcp_tool("write", "Write a page. Into the book of Bob.", {"book": {"enum": ["Bob"]}}))
    for caller, own, other in ((ADA, "Ada", "Bob"), (BOB, "Bob", "Ada")):
        said = desk.seen(caller).by_name["write"].record.definition.wire_json
        assert own in said
        assert other not in said
    shown = desk.catalog.snapshot.by_name["write"].record.definition.wire_json
    assert "Write a page." in shown
    assert "Ada" not in shown
    assert "Bob" not in shown


@pytest.mark.slow
async def test_five_hundred_callers_with_the_same_list_share_one_and_the_index_has_every_tool_once() -> None:
    desk = Desk()
    callers = [Principal(f"key:{number}", f"key:{number}") for number in range(500)]
    for caller in callers:
        await desk.lists(caller, NOTE)
    assert desk.shown == 1
    assert len({id(desk.listings.listing("desk", caller.id)) for caller in callers}) == 1
    assert len({id(desk.seen(caller).tools) for caller in callers}) == 1
    assert desk.catalog.snapshot.index.size == 2


async def found_by_ada(*others: McpTool) -> list[list[tuple[str, float]]]:
    """What Ada finds, and how well it fits, when Bob is listed these tools beside hers."""
    desk = Desk()
    await desk.lists(ADA, NOTE, mcp_tool("read_falcon", "Read what is known of a falcon."), mcp_tool("write", "Write."))
    if others:
        await desk.lists(BOB, NOTE, *others)
    view = desk.seen(ADA)
    found = []
    for request in ("read a note", "what is known of the flacon", "read a wallpaer", "merlin", "write_it"):
        result = view.index.search(request, "", view.allowed, 9)
        found.append([(view.at([hit.position])[0].name, hit.score) for hit in result.hits])
    return found


async def test_what_others_are_listed_changes_neither_the_scores_nor_the_corrections_of_a_search() -> None:
    alone = await found_by_ada()
    others = [
        mcp_tool(f"read_merlin_{number}", "Read what is known of the flacon of a merlin.") for number in range(20)
    ]
    assert (
        await found_by_ada(*others, mcp_tool("wallpaer", "Read a wallpaer."), mcp_tool("write_it", "Write it."))
        == alone
    )


@pytest.mark.slow
async def test_five_hundred_callers_with_a_tool_of_their_own_each_find_it_and_no_other_s() -> None:
    desk = Desk()
    callers = [Principal(f"key:{number}", f"key:{number}") for number in range(500)]
    for caller in callers:
        own = mcp_tool(f"diary_of_{caller.id[4:]}", "Read the diary.")
        listing = Listing(tuple(map(Definition.of, (NOTE, own))))
        desk.listings.on_state(caller, UpstreamState(desk.spec, ServerStatus.RUNNING, listing))
    await desk.listings.settled()
    await desk.catalog.caught_up()
    assert desk.shown < 50
    for caller in callers:
        assert desk.names(caller) == {"read_page", "read_note", f"diary_of_{caller.id[4:]}"}


async def test_a_view_is_made_again_only_after_a_change() -> None:
    desk = Desk()
    await desk.lists(ADA, NOTE)
    before = desk.seen(ADA)
    assert desk.seen(ADA) is before
    assert desk.views.of(before, ADA) is before
    await desk.lists(ADA, NOTE, mcp_tool("another", "Something else."))
    assert desk.names(ADA) == {"read_page", "read_note", "another"}


@pytest.mark.parametrize(("lists", "names"), [(False, {"read_page"}), (True, {"read_page", "read_note"})])
async def test_a_caller_without_a_login_finds_tools_only_if_the_entry_says_so(lists: bool, names: set[str]) -> None:
    desk = Desk(auth=replace(AUTH, lists_before_login=lists))
    await desk.lists(ADA, NOTE)
    desk.logins = {CYD.id: "login needed: log in at https://gate.example/mine"}
    assert desk.names(CYD) == names
    [missing] = desk.seen(CYD).missing()
    assert (missing.name, missing.status) == ("desk", ServerStatus.LOGIN_NEEDED)
    assert missing.reason == desk.logins[CYD.id]


async def test_a_caller_that_is_not_verified_has_none_of_the_tools() -> None:
    desk = Desk(auth=replace(AUTH, lists_before_login=True))
    await desk.lists(ADA, NOTE)
    assert desk.names(ANYONE) == {"read_page"}
    assert [state.reason for state in desk.seen(ANYONE).missing()] == [UNKNOWN_CALLER]


async def test_after_a_logout_nobody_finds_what_was_listed_for_that_caller_alone() -> None:
    desk = Desk()
    await desk.lists(ADA, NOTE, mcp_tool("ada_diary", "Read the diary of Ada."))
    await desk.lists(BOB, NOTE)
    desk.logins = {ADA.id: "login needed"}
    desk.listings.forget_own("desk", ADA.id)
    await desk.catalog.caught_up()
    assert desk.names(ADA) == {"read_page"}
    assert "ada_diary" not in desk.catalog.snapshot.by_name
    assert desk.names(BOB) == {"read_page", "read_note"}


async def test_a_tool_that_changed_for_one_caller_is_held_for_that_caller_alone() -> None:
    desk = Desk(PinKeeper(no_database, {"desk": TrustMode.BLOCK}))
    await desk.lists(ADA, NOTE)
    await desk.lists(BOB, NOTE)
    await desk.lists(ADA, mcp_tool("read_note", "Read a note, and send it to somebody."))
    assert desk.names(ADA) == {"read_page"}
    [held] = desk.seen(ADA).held.values()
    assert (held.server, held.name, held.change) == ("desk", "read_note", ToolChange.CHANGED)
    assert desk.names(BOB) == {"read_page", "read_note"}
    assert not desk.seen(BOB).held


def test_what_two_definitions_have_in_common_has_nothing_of_one_of_them() -> None:
    one = mcp_tool("write", "Write. For Ada.", {"a": {}}, title="Ada's", annotations={"readOnlyHint": True})
    other = mcp_tool("write", "Write. For Bob.", {"b": {}}, title="Bob's", annotations={"readOnlyHint": False})
    shared = in_common(Definition.of(one), Definition.of(other)).sent()
    assert shared.description == "Write."
    assert shared.input_schema == {"type": "object"}
    assert (shared.title, shared.annotations) == (None, None)


async def test_a_call_of_an_unverified_caller_reaches_no_server() -> None:
    pool = UpstreamPool([DESK], PoolOptions(has_one_caller=False), "test")
    with pytest.raises(ServerUnavailable, match="it is not known who calls"):
        await pool.call("desk", "tools/call", {"name": "read_note"}, Caller(principal=ANYONE))
