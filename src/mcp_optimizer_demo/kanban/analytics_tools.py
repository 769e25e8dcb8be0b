"""Tools that report on the flow of work: cycle time, throughput, cumulative flow and age."""

from datetime import date, timedelta
from typing import Any

from mcp_optimizer_demo.json_schema import array, boolean, integer, nullable, number, one_of, record, string
from mcp_optimizer_demo.kanban.analytics import (
    blocked_days,
    cards_per_column,
    days_between,
    finishes,
    periods,
    started_at,
    summary,
)
from mcp_optimizer_demo.kanban.card_filters import cards_in_scope, is_overdue
from mcp_optimizer_demo.kanban.card_outputs import card_row_with
from mcp_optimizer_demo.kanban.declaration import kanban_tool
from mcp_optimizer_demo.kanban.parameters import BOARD_ID, FOR_USER, IN_BOARD, IN_WORKSPACE, PERIOD, identifiers
from mcp_optimizer_demo.kanban.records import SECTIONS
from mcp_optimizer_demo.kanban.state import Kanban
from mcp_optimizer_demo.kanban.views import card_row, parse_day, plain
from mcp_optimizer_demo.toolserver import Arguments, ToolFault

DEFAULT_PERIOD = timedelta(days=89)
LONGEST_PERIOD = timedelta(days=731)
SCOPE = {"board_id": IN_BOARD, "workspace_id": IN_WORKSPACE, "user_id": FOR_USER}
TYPE_IDS = identifiers("Only consider cards of these types, as in get_board_structure.", maxItems=20)
EXCLUDE_BLOCKED = boolean("Set to true to subtract the time the cards were blocked.", default=False)
STATISTICS = {
    "count": integer("Number of finished cards measured.", minimum=0),
    "average": nullable(number("Mean cycle time in days.")),
    "median": nullable(number("Median cycle time in days.")),
    "p50": nullable(number("Half of the cards were finished within this many days.")),
    "p85": nullable(number("85 percent of the cards were finished within this many days.")),
    "p95": nullable(number("95 percent of the cards were finished within this many days.")),
}


def period_of(kanban: Kanban, args: Arguments) -> tuple[date, date]:
    """The first and last day asked for; by default the last 90 days."""
    last = parse_day("date_to", args["date_to"]) if "date_to" in args else kanban.now().date()
    first = parse_day("date_from", args["date_from"]) if "date_from" in args else last - DEFAULT_PERIOD
    if first > last:
        raise ToolFault(f"date_from {first} is after date_to {last}. Swap them or omit one.")
    if last - first > LONGEST_PERIOD:
        raise ToolFault("The period is longer than two years. Choose a shorter one.")
    return first, last


@kanban_tool(
    "Get Cycle Time",
    'Get how long finished cards took from the first cycle time column to "done": count, average, median and the '
    "50th, 85th and 95th percentile in days, also per card type. The 85th percentile is a good basis for answering "
    "when a new card will be finished. Computed from the recorded moves of the cards finished in the period, by "
    "default the last 90 days. See get_workflow_cycle_time_columns for what counts.",
    {
        **SCOPE,
        **PERIOD,
        "type_ids": TYPE_IDS,
        "exclude_blocked_time": EXCLUDE_BLOCKED,
        "include_cards": boolean("Set to true to list every measured card.", default=False),
    },
    output={
        "date_from": string("First day of the period.", format="date"),
        "date_to": string("Last day of the period.", format="date"),
        **STATISTICS,
        "by_type": array(
            record({"type_id": integer("ID of the card type."), **STATISTICS}, required=("type_id", "count")),
            "The same measures per card type.",
        ),
        "cards": array(
            record(
                {
                    "card_id": integer("ID of the card."),
                    "title": string("Title of the card."),
                    "started_at": string("When work began.", format="date-time"),
                    "finished_at": string("When it was finished.", format="date-time"),
                    "days": number("Cycle time in days."),
                }
            ),
            "The measured cards, when include_cards is true.",
        ),
    },
    output_required=("date_from", "date_to", "count", "by_type"),
)
def get_cycle_time(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    first, last = period_of(kanban, args)
    cards = cards_of_types(kanban, args)
    exclude = args.get("exclude_blocked_time", False)
    measured = finishes(kanban, cards, first, last, exclude_blocked=exclude)
    types = sorted({finish.card.type_id for finish in measured})
    answer = {
        "date_from": plain(first),
        "date_to": plain(last),
        **summary([finish.days for finish in measured]),
        "by_type": [
            {"type_id": type_id, **summary([f.days for f in measured if f.card.type_id == type_id])}
            for type_id in types
        ],
    }
    if args.get("include_cards", False):
        answer["cards"] = [
            {
                "card_id": f.card.id,
                "title": f.card.title,
                "started_at": plain(f.started_at),
                "finished_at": plain(f.finished_at),
                "days": round(f.days, 2),
            }
            for f in measured
        ]
    return answer


@kanban_tool(
    "Get Throughput",
    "Get how many cards were finished per day, week or month, and the sum of their sizes. Weeks begin on Monday; the "
    "first and the last interval may be shorter. Computed from the recorded moves.",
    {
        **SCOPE,
        **PERIOD,
        "type_ids": TYPE_IDS,
        "interval": one_of(("day", "week", "month"), "Length of the intervals to count in.", default="week"),
    },
    output={
        "interval": string("Length of the intervals."),
        "total": integer("Number of cards finished in the whole period."),
        "average_per_interval": number("Mean number of finished cards per interval."),
        "intervals": array(
            record(
                {
                    "from": string("First day of the interval.", format="date"),
                    "to": string("Last day of the interval.", format="date"),
                    "finished": integer("Number of cards finished."),
                    "size": number("Sum of their sizes."),
                },
                required=("from", "to", "finished", "size"),
            ),
            "The intervals in order, empty ones included.",
        ),
    },
)
def get_throughput(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    first, last = period_of(kanban, args)
    done = finishes(kanban, cards_of_types(kanban, args), first, last, exclude_blocked=False)
    interval = args.get("interval", "week")
    rows = []
    for start, end in periods(first, last, interval):
        inside = [finish.card for finish in done if start <= finish.finished_at.date() <= end]
        size = sum(card.size or 0 for card in inside)
        rows.append({"from": plain(start), "to": plain(end), "finished": len(inside), "size": size})
    return {
        "interval": interval,
        "total": len(done),
        "average_per_interval": round(len(done) / len(rows), 2),
        "intervals": rows,
    }


@kanban_tool(
    "Get Cumulative Flow",
    "Get the data of a cumulative flow diagram: how many cards stood in each column of a board at the end of every day "
    "(or of every 7th day) of the period. Widening bands show where work piles up. Computed by replaying the recorded "
    "moves; archived cards are included in the past.",
    {
        "board_id": BOARD_ID,
        **PERIOD,
        "step_days": integer(
            "Report every this many days; 7 gives one point a week.", minimum=1, maximum=31, default=7
        ),
    },
    required=("board_id",),
    output={
        "board_id": integer("ID of the board."),
        "columns": array(
            record(
                {
                    "column_id": integer("ID of the column."),
                    "name": string("Column heading."),
                    "section": one_of(SECTIONS, "Section of the column."),
                },
                required=("column_id", "name", "section"),
            ),
            "The columns from left to right.",
        ),
        "points": array(
            record(
                {
                    "date": string("The day.", format="date"),
                    "cards": array({"type": "integer"}, "Number of cards per column, in the order of columns."),
                },
                required=("date", "cards"),
            ),
            "One point per reported day; the last day of the period is always reported.",
        ),
    },
)
def get_cumulative_flow(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    board = kanban.boards.get(args["board_id"])
    first, last = period_of(kanban, args)
    columns = kanban.columns_of(board.id)
    cards = [card for card in kanban.cards if card.board_id == board.id]
    step = timedelta(days=args.get("step_days", 7))
    points = []
    day = first
    while day <= last:
        counts = cards_per_column(kanban, cards, day)
        points.append({"date": plain(day), "cards": [counts.get(column.id, 0) for column in columns]})
        day = min(day + step, last) if day < last else day + step
    return {
        "board_id": board.id,
        "columns": [{"column_id": c.id, "name": c.name, "section": c.section} for c in columns],
        "points": points,
    }


@kanban_tool(
    "Get Aging Work",
    "Get the cards in progress with their age since work on them began, oldest first, compared with the 85th "
    "percentile of the cycle time of cards finished in the last 90 days. Cards that are older than that, blocked or "
    "past their deadline need attention first.",
    {
        **SCOPE,
        "min_age_days": number("Only return cards that are at least this many days old.", minimum=0, default=0),
        "exclude_blocked_time": EXCLUDE_BLOCKED,
    },
    output={
        "p85_cycle_time_days": nullable(number("85th percentile of the cycle time to compare with, or null.")),
        "total": integer("Number of cards found."),
        "cards": array(
            card_row_with(
                {
                    "age_days": number("Days since work on the card began."),
                    "is_older_than_p85": boolean("Whether it is older than 85 percent of finished cards were."),
                    "is_overdue": boolean("Whether its deadline has passed."),
                }
            ),
            "The cards in progress, oldest first.",
        ),
    },
)
def get_aging_work(kanban: Kanban, args: Arguments) -> dict[str, Any]:
    cards = cards_in_scope(kanban, args)
    first, last = period_of(kanban, {})
    exclude, now = args.get("exclude_blocked_time", False), kanban.now()
    typical = summary([f.days for f in finishes(kanban, cards, first, last, exclude_blocked=exclude)])["p85"]
    rows = []
    for card in cards:
        start = started_at(kanban, kanban.moves_of(card.id))
        if start is None or kanban.columns.get(card.column_id).section != "progress":
            continue
        age = days_between(start, now) - (blocked_days(kanban, card, start, now) if exclude else 0)
        if age >= args.get("min_age_days", 0):
            flags = {"is_older_than_p85": typical is not None and age > typical}
            flags["is_overdue"] = is_overdue(kanban, card)
            rows.append({**card_row(kanban, card), "age_days": round(age, 2), **flags})
    rows.sort(key=lambda row: -row["age_days"])
    return {"p85_cycle_time_days": typical, "total": len(rows), "cards": rows}


def cards_of_types(kanban: Kanban, args: Arguments) -> list[Any]:
    """The cards in scope, of the wanted types; finished work counts even when it is archived by now."""
    wanted = args.get("type_ids")
    return [c for c in cards_in_scope(kanban, args, archived=True) if not wanted or c.type_id in wanted]


TOOLS = (get_cycle_time, get_throughput, get_cumulative_flow, get_aging_work)
