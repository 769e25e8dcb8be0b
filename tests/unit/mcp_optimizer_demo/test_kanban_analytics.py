"""The kanban analytics are calculated from the recorded moves and blockers."""

from tests.unit.mcp_optimizer_demo.calling import Caller, SetClock

READY, DEVELOPMENT, REVIEW, DONE = 12, 13, 14, 16


async def test_cycle_time_runs_from_the_first_work_to_done(kanban: Caller, clock: SetClock) -> None:
    before = await kanban("get_cycle_time", board_id=1)
    card_id = (await kanban("create_card", title="Measured", column_id=READY))["card"]["card_id"]
    clock.advance(days=5)
    await kanban("move_card", card_id=card_id, column_id=DEVELOPMENT)
    clock.advance(days=2)
    await kanban("move_card", card_id=card_id, column_id=REVIEW)
    clock.advance(days=1, hours=12)
    await kanban("move_card", card_id=card_id, column_id=DONE)
    after = await kanban("get_cycle_time", board_id=1, include_cards=True)
    assert after["count"] == before["count"] + 1
    assert after["cards"][-1]["card_id"] == card_id
    assert after["cards"][-1]["days"] == 3.5


async def test_blocked_time_can_be_left_out_of_cycle_time(kanban: Caller, clock: SetClock) -> None:
    card_id = (await kanban("create_card", title="Measured", column_id=DEVELOPMENT))["card"]["card_id"]
    clock.advance(days=1)
    await kanban("block_card", card_id=card_id, reason="Waiting")
    clock.advance(days=2)
    assert (await kanban("unblock_card", card_id=card_id))["blocker"]["blocked_hours"] == 48
    await kanban("move_card", card_id=card_id, column_id=DONE)
    measured = await kanban("get_cycle_time", include_cards=True, exclude_blocked_time=True)
    assert {card["card_id"]: card["days"] for card in measured["cards"]}[card_id] == 1


async def test_a_column_taken_out_of_cycle_time_no_longer_counts(kanban: Caller, clock: SetClock) -> None:
    await kanban("update_column", board_id=1, column_id=DEVELOPMENT, counts_in_cycle_time=False)
    counting = await kanban("get_workflow_cycle_time_columns", board_id=1)
    assert ([c["name"] for c in counting["columns"]], counting["is_default"]) == (["Code Review", "Testing"], False)
    card_id = (await kanban("create_card", title="Measured", column_id=DEVELOPMENT))["card"]["card_id"]
    clock.advance(days=4)
    await kanban("move_card", card_id=card_id, column_id=REVIEW)
    clock.advance(days=1)
    await kanban("move_card", card_id=card_id, column_id=DONE)
    measured = await kanban("get_cycle_time", include_cards=True)
    assert {card["card_id"]: card["days"] for card in measured["cards"]}[card_id] == 1


async def test_throughput_counts_the_card_in_the_interval_it_was_finished(kanban: Caller) -> None:
    before = await kanban("get_throughput", board_id=1, interval="day")
    await kanban("move_card", card_id=117, column_id=DONE)
    after = await kanban("get_throughput", board_id=1, interval="day")
    assert after["total"] == before["total"] + 1
    today = after["intervals"][-1]
    assert (today["to"], today["finished"], today["size"]) == ("2026-03-02", 1, 5)
    assert sum(interval["finished"] for interval in after["intervals"]) == after["total"]


async def test_a_card_taken_out_of_done_is_no_longer_finished(kanban: Caller) -> None:
    before = await kanban("get_throughput", board_id=1)
    await kanban("move_card", card_id=107, column_id=DEVELOPMENT)
    assert (await kanban("get_throughput", board_id=1))["total"] == before["total"] - 1


async def test_cumulative_flow_ends_with_the_board_as_it_stands(kanban: Caller) -> None:
    flow = await kanban("get_cumulative_flow", board_id=2)
    structure = await kanban("get_board_structure", board_id=2)
    assert flow["points"][-1]["date"] == "2026-03-02"
    archived = (await kanban("list_cards", board_id=2, state="archived"))["total"]
    standing = [column["card_count"] for column in structure["columns"]]
    standing[-1] += archived
    assert flow["points"][-1]["cards"] == standing
    totals = [sum(point["cards"]) for point in flow["points"]]
    assert totals == sorted(totals)


async def test_aging_work_lists_the_oldest_first_and_drops_finished_cards(kanban: Caller, clock: SetClock) -> None:
    aging = await kanban("get_aging_work", board_id=1)
    ages = [card["age_days"] for card in aging["cards"]]
    assert ages == sorted(ages, reverse=True)
    oldest = aging["cards"][0]
    clock.advance(days=1)
    later = await kanban("get_aging_work", board_id=1)
    assert later["cards"][0]["age_days"] == oldest["age_days"] + 1
    await kanban("move_card", card_id=oldest["card_id"], column_id=DONE)
    assert oldest["card_id"] not in {c["card_id"] for c in (await kanban("get_aging_work", board_id=1))["cards"]}


async def test_workload_follows_assignment(kanban: Caller) -> None:
    before = await kanban("get_user_workload", user_id=4)
    await kanban("assign_card", card_id=119, user_id=4)
    after = await kanban("get_user_workload", user_id=4)
    assert (after["card_count"], after["total_size"]) == (before["card_count"] + 1, before["total_size"] + 3)
