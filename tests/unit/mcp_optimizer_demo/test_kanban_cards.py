"""Cards on the kanban server can be created, found, moved and limited, and everything on them is kept."""

from typing import Any

from tests.unit.mcp_optimizer_demo.calling import Caller, SetClock

IDEAS, READY, DEVELOPMENT, REVIEW, TESTING, DONE = range(11, 17)
STANDARD, EXPEDITE = 51, 52
ADDRESS_CARD = 119
BANK_CARD = 121


async def titles_in(kanban: Caller, column_id: int, lane_id: int = STANDARD) -> list[str]:
    found = await kanban("list_cards", column_ids=[column_id], lane_ids=[lane_id])
    assert [card["position"] for card in found["cards"]] == list(range(found["total"]))
    return [card["title"] for card in found["cards"]]


async def test_a_moved_card_leaves_its_column_and_pushes_others_down(kanban: Caller) -> None:
    before = await titles_in(kanban, TESTING)
    left_behind = await titles_in(kanban, REVIEW)
    moved = await kanban("move_card", card_id=ADDRESS_CARD, column_id=TESTING, position=0)
    assert (moved["from_column_id"], moved["to_column_id"], moved["position"]) == (REVIEW, TESTING, 0)
    title = "Remember the last used delivery address"
    assert await titles_in(kanban, TESTING) == [title, *before]
    assert await titles_in(kanban, REVIEW) == [other for other in left_behind if other != title]


async def test_moving_inside_a_column_changes_only_the_order(kanban: Caller) -> None:
    before = await titles_in(kanban, DEVELOPMENT)
    await kanban("move_card", card_id=BANK_CARD, column_id=DEVELOPMENT, position=2)
    after = await titles_in(kanban, DEVELOPMENT)
    assert after == [before[1], before[2], before[0]]


async def test_a_card_moves_to_another_board_and_into_its_top_lane(kanban: Caller) -> None:
    moved = await kanban("move_card", card_id=ADDRESS_CARD, column_id=17)
    assert (moved["board_id"], moved["lane_id"]) == (2, 53)
    assert (await kanban("health_check"))["status"] == "ok"


async def test_a_full_column_refuses_a_card_until_a_reason_is_given(kanban: Caller) -> None:
    await kanban("set_wip_limit", board_id=1, column_id=TESTING, wip_limit=2)
    message = await kanban.fault("move_card", card_id=ADDRESS_CARD, column_id=TESTING)
    assert "WIP limit reached: column 15 'Testing' holds 2 of 2 cards" in message
    assert "exceeding_reason" in message
    assert "needs an exceeding_reason" in await kanban.fault(
        "move_card", card_id=ADDRESS_CARD, column_id=TESTING, ignore_wip_limit=True
    )
    await kanban(
        "move_card", card_id=ADDRESS_CARD, column_id=TESTING, ignore_wip_limit=True, exceeding_reason="Release today"
    )
    history = await kanban("get_card_history", card_id=ADDRESS_CARD, actions=["moved"])
    assert history["events"][0]["detail"] == "from 'Code Review' to 'Testing'; over the limit: Release today"


async def test_a_lane_limit_counts_all_columns_in_progress(kanban: Caller) -> None:
    await kanban("set_wip_limit", board_id=1, lane_id=EXPEDITE, wip_limit=1)
    message = await kanban.fault("create_card", title="Urgent", column_id=DEVELOPMENT, lane_id=EXPEDITE)
    assert "WIP limit reached: lane 52 'Expedite' holds 1 of 1 cards" in message
    await kanban("create_card", title="Not started yet", column_id=READY, lane_id=EXPEDITE)


async def test_a_created_card_has_everything_that_was_asked_for(kanban: Caller) -> None:
    created = await kanban(
        "create_card",
        title="Show the order history",
        column_id=READY,
        position=0,
        custom_id="SHOP-1500",
        deadline="2026-04-30",
        type_id=1,
        owner_user_id=3,
        co_owner_ids_to_add=[4],
        tag_ids_to_add=[1, 5],
        parent_card_id=101,
        subtasks=[{"description": "Draw it"}, {"description": "Build it", "owner_user_id": 3}],
        custom_fields=[{"field_id": 1, "value": "Hotel Seeblick"}],
        links=[{"linked_card_id": ADDRESS_CARD, "type": "blocks", "note": "Same page"}],
        comment="From the customer meeting.",
        block_reason="Waiting for the design",
    )
    card = await kanban("get_card", custom_id="SHOP-1500")
    assert card == created["card"]
    assert (card["position"], card["color"], card["reporter_user_id"]) == (0, "#42AD49", 1)
    assert [subtask["description"] for subtask in card["subtasks"]] == ["Draw it", "Build it"]
    assert card["custom_fields"] == [{"field_id": 1, "name": "Customer", "value": "Hotel Seeblick"}]
    assert card["comments"][0]["text"] == "From the customer meeting."
    assert card["is_blocked"]
    linked = await kanban("list_card_links", card_id=ADDRESS_CARD)
    assert [(link["type"], link["linked_card_id"]) for link in linked["links"]] == [("is_blocked_by", card["card_id"])]


async def test_a_card_that_cannot_be_created_leaves_nothing_behind(kanban: Caller) -> None:
    before = await kanban("health_check")
    message = await kanban.fault(
        "create_card",
        title="Half a card",
        column_id=READY,
        subtasks=[{"description": "First"}],
        links=[{"linked_card_id": 9999, "type": "blocks"}],
    )
    assert "no card with id 9999" in message
    assert await kanban("health_check") == before


async def test_a_template_gives_its_fields_without_those_to_remove(kanban: Caller) -> None:
    created = await kanban(
        "create_card", title="Again", column_id=IDEAS, template_card_id=ADDRESS_CARD, tag_ids_to_remove=[5], size=1
    )
    card = created["card"]
    assert (card["tag_ids"], card["size"]) == ([1], 1)
    assert [s["description"] for s in card["subtasks"]] == [
        "Preselect it in the checkout",
        "Test with several addresses",
    ]


async def test_an_update_changes_only_what_is_named_and_says_so(kanban: Caller) -> None:
    answer = await kanban(
        "update_card", card_id=ADDRESS_CARD, size=5, deadline=None, priority="average", tag_ids_to_remove=[5]
    )
    assert sorted(answer["changed_fields"]) == ["deadline", "size", "tag_ids"]
    unchanged = await kanban("update_card", card_id=ADDRESS_CARD, size=5)
    assert not unchanged["is_changed"]


async def test_an_update_that_expects_an_older_card_is_refused(kanban: Caller, clock: SetClock) -> None:
    seen = (await kanban("get_card", card_id=ADDRESS_CARD))["updated_at"]
    clock.advance(minutes=5)
    await kanban("update_card", card_id=ADDRESS_CARD, size=8)
    message = await kanban.fault("update_card", card_id=ADDRESS_CARD, size=2, expected_updated_at=seen)
    assert "Read it again with get_card" in message


async def test_comments_are_kept_edited_by_their_author_and_deleted(kanban: Caller) -> None:
    comment = (await kanban("create_comment", card_id=ADDRESS_CARD, text="Ship it", user_id=4))["comment"]
    assert (await kanban("list_comments", card_id=ADDRESS_CARD))["comments"][-1] == comment
    ids = {"card_id": ADDRESS_CARD, "comment_id": comment["comment_id"]}
    assert "only they may edit it" in await kanban.fault("update_comment", **ids, text="No", user_id=3)
    await kanban("update_comment", **ids, text="Ship it on Monday", user_id=4)
    found = await kanban("search_cards", query="Ship Monday", search_in=["comments"])
    assert [card["card_id"] for card in found["cards"]] == [ADDRESS_CARD]
    await kanban("delete_comment", **ids)
    assert comment["comment_id"] not in {
        c["comment_id"] for c in (await kanban("list_comments", card_id=ADDRESS_CARD))["comments"]
    }


async def test_search_forgives_a_misspelt_word_and_says_where_it_found_it(kanban: Caller) -> None:
    found = await kanban("search_cards", query="invoce rounding")
    assert [(hit["custom_id"], hit["found_in"]) for hit in found["cards"]] == [("SHOP-1401", ["title"])]
    assert (await kanban("search_cards", query="zeppelin"))["total"] == 0


async def test_a_board_is_found_by_part_of_its_name_and_otherwise_all_are_suggested(kanban: Caller) -> None:
    assert [board["name"] for board in (await kanban("search_board", name="shop"))["boards"]] == ["Web Shop"]
    missed = await kanban("search_board", name="zeppelin")
    assert missed["total"] == 0
    assert "Platform" in missed["suggestions"]


async def test_filters_of_list_cards_are_combined(kanban: Caller) -> None:
    overdue = await kanban("list_cards", is_overdue=True)
    assert {card["title"] for card in overdue["cards"]} == {
        "Let customers pay with instant bank transfer",
        "Rotate the signing keys of the shop",
    }
    mine = await kanban("list_cards", is_overdue=True, user_id=6)
    assert [card["title"] for card in mine["cards"]] == ["Rotate the signing keys of the shop"]
    paged = await kanban("list_cards", sort_by="size", sort_order="desc", per_page=3, page=2)
    assert (paged["total"], len(paged["cards"])) == (56, 3)


async def test_an_archived_card_frees_its_place_and_can_come_back(kanban: Caller) -> None:
    before = await titles_in(kanban, DEVELOPMENT)
    await kanban("archive_card", card_id=BANK_CARD)
    assert await titles_in(kanban, DEVELOPMENT) == before[1:]
    assert "is archived and cannot move" in await kanban.fault("move_card", card_id=BANK_CARD, column_id=DONE)
    await kanban("archive_card", card_id=BANK_CARD, restore=True)
    assert await titles_in(kanban, DEVELOPMENT) == [*before[1:], before[0]]


async def test_a_card_is_deleted_only_when_its_title_is_repeated(kanban: Caller) -> None:
    assert "Nothing was deleted" in await kanban.fault("delete_card", card_id=ADDRESS_CARD, confirm_title="Remember")
    await kanban("delete_card", card_id=ADDRESS_CARD, confirm_title="Remember the last used delivery address")
    assert "no card with id 119" in await kanban.fault("get_card", card_id=ADDRESS_CARD)
    assert (await kanban("health_check"))["status"] == "ok"


async def test_a_card_cannot_become_its_own_ancestor(kanban: Caller) -> None:
    message = await kanban.fault("set_card_parent", card_id=101, parent_card_id=ADDRESS_CARD)
    assert "one of its descendants" in message


async def test_wrong_ids_say_which_and_what_to_call(kanban: Caller) -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("get_card", {"card_id": 9999}, "There is no card with id 9999. Call list_cards"),
        ("get_board", {"board_id": 77}, "There is no board with id 77. Call list_boards"),
        ("list_cards", {"workspace_id": 9}, "There is no workspace with id 9. Call list_workspaces"),
        ("assign_card", {"card_id": 119, "user_id": 7}, "is not a member of workspace 1"),
        ("assign_card", {"card_id": 119, "user_id": 9}, "is disabled"),
        ("add_tag_to_card", {"card_id": 119, "tag_id": 9}, "cannot be used on board 1"),
        ("set_card_custom_field", {"card_id": 119, "field_id": 2, "value": "huge"}, "minor, major, critical"),
        ("move_card", {"card_id": 119, "column_id": 13, "lane_id": 57}, "belongs to board 4"),
        ("update_column", {"board_id": 2, "column_id": 13}, "is on board 1, not on board 2"),
        ("unblock_card", {"card_id": 119}, "is not blocked"),
        ("list_boards", {"instance": "test"}, "Configured instances: main, sandbox"),
        ("get_throughput", {"date_from": "2026-03-01", "date_to": "2026-02-01"}, "is after date_to"),
    ]
    for tool, arguments, expected in cases:
        assert expected in await kanban.fault(tool, **arguments)


async def test_instances_are_separate(kanban: Caller) -> None:
    await kanban("create_card", title="Only here", column_id=IDEAS, instance="sandbox")
    assert (await kanban("search_cards", query="Only here", instance="sandbox"))["total"] == 1
    assert (await kanban("list_cards", title_contains="Only here"))["total"] == 0


async def test_a_column_with_cards_is_deleted_only_when_another_takes_them(kanban: Caller) -> None:
    assert "still holds 2 cards" in await kanban.fault("delete_column", board_id=1, column_id=REVIEW)
    deleted = await kanban("delete_column", board_id=1, column_id=REVIEW, move_cards_to_column_id=TESTING)
    assert ADDRESS_CARD in deleted["moved_card_ids"]
    assert (await kanban("get_card", card_id=ADDRESS_CARD))["column_id"] == TESTING
    assert (await kanban("health_check"))["status"] == "ok"


async def test_columns_stay_in_the_order_of_their_sections(kanban: Caller) -> None:
    assert "ordered by section" in await kanban.fault(
        "create_column", board_id=1, name="Early", section="done", position=0
    )
    created = await kanban("create_column", board_id=1, name="Staging", section="progress")
    names = [column["name"] for column in (await kanban("list_columns", board_id=1))["columns"]]
    assert names == ["Ideas", "Ready", "Development", "Code Review", "Testing", "Staging", "Done"]
    assert created["column"]["counts_in_cycle_time"]
    columns = [{"name": "Done", "section": "done"}, {"name": "Doing", "section": "progress"}]
    assert "order of sections" in await kanban.fault("create_board", workspace_id=1, name="New", columns=columns)


async def test_a_board_with_a_copied_structure_starts_empty(kanban: Caller) -> None:
    copy = await kanban("create_board", workspace_id=1, name="Mobile App", copy_from_board_id=1)
    assert [column["name"] for column in copy["columns"]][-1] == "Done"
    assert (copy["card_count"], len(copy["lanes"])) == (0, 2)
    card = await kanban("create_card", title="First", column_id=copy["columns"][0]["column_id"])
    assert card["card"]["board_id"] == copy["board_id"]


async def test_a_workspace_is_archived_only_after_its_boards(kanban: Caller) -> None:
    assert "still has active boards: [3, 4]" in await kanban.fault("archive_workspace", workspace_id=2)
    for board_id in (3, 4):
        await kanban("archive_board", board_id=board_id)
    await kanban("archive_workspace", workspace_id=2)
    assert [row["workspace_id"] for row in (await kanban("list_workspaces"))["workspaces"]] == [1]
    assert "is archived" in await kanban.fault("create_card", title="Late", column_id=22)
