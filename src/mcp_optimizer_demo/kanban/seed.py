"""Builds the instances the demo starts with from the seed data, replaying each card's past move by move.

The past ends yesterday, so that the analytics always show a living company; nothing here is random.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from mcp_optimizer_demo.kanban import seed_cards, seed_data
from mcp_optimizer_demo.kanban.card_parts import add_link
from mcp_optimizer_demo.kanban.placement import close_gap, enter_cell, log_move
from mcp_optimizer_demo.kanban.records import (
    NEW,
    Blocker,
    Board,
    Card,
    CardType,
    Column,
    Comment,
    CustomField,
    FieldValue,
    Lane,
    Subtask,
    Tag,
    User,
    Workspace,
)
from mcp_optimizer_demo.kanban.seed_data import SeedBoard, SeedCard
from mcp_optimizer_demo.kanban.state import Clock, Installation, Kanban, utc_now
from mcp_optimizer_demo.kanban.views import subtasks_of


def seeded_installation(clock: Clock = utc_now) -> Installation:
    """Two instances: the company's own, and a small one to try things in."""
    main = Seeding("Brightwater Furniture", clock)
    main.build(seed_data.BOARDS, seed_cards.CARDS, seed_cards.ARCHIVED)
    sandbox = Seeding("Brightwater Furniture (sandbox)", clock)
    sandbox.build(seed_data.BOARDS[:1], seed_cards.SANDBOX_CARDS, ())
    return Installation({"main": main.kanban, "sandbox": sandbox.kanban}, default="main")


class Seeding:
    """Fills one instance; its clock is set to each moment of the past while that moment is replayed."""

    def __init__(self, company: str, clock: Clock) -> None:
        self._clock = clock
        self._today = clock().replace(hour=0, minute=0, second=0, microsecond=0)
        self.kanban = Kanban(company, clock)
        self._cards: dict[str, int] = {}
        self._boards: dict[str, int] = {}

    def build(self, boards: tuple[SeedBoard, ...], cards: tuple[SeedCard, ...], archived: tuple[str, ...]) -> None:
        self._add_people()
        for board in boards:
            self._add_board(board)
        self._add_tags_and_fields()
        self._replay(cards)
        self._add_parts()
        for title in archived:
            card = self.kanban.cards.get(self._cards[title])
            self.kanban.cards.put(replace(card, is_archived=True))
            close_gap(self.kanban, card.column_id, card.lane_id)
        self.kanban.use_clock(self._clock)

    def _at(self, days_ago: int, hour: int = 10) -> datetime:
        """Set the instance's clock to an hour of a past day."""
        moment = self._today - timedelta(days=days_ago) + timedelta(hours=hour)
        self.kanban.use_clock(lambda: moment)
        return moment

    def _add_people(self) -> None:
        kanban = self.kanban
        for name, description, kind in seed_data.WORKSPACES:
            kanban.workspaces.add(Workspace(NEW, name, description, kind))
        for login, name, role, spaces in seed_data.USERS:
            email, enabled = f"{login}@brightwater.example", login not in seed_data.DISABLED_USERS
            user = User(NEW, login, name, email, role, spaces, enabled)
            kanban.users.add(user)
        for name, color in seed_data.CARD_TYPES:
            kanban.card_types.add(CardType(NEW, name, color))

    def _add_board(self, seed: SeedBoard) -> None:
        kanban = self.kanban
        board = kanban.boards.add(Board(NEW, seed.workspace_id, seed.name, seed.description))
        self._boards[seed.key] = board.id
        for index, column in enumerate(seed.columns):
            counts = column.section == "progress"
            new = Column(NEW, board.id, column.name, column.section, index, column.wip_limit, counts, column.policy)
            kanban.columns.add(new)
        for index, (name, wip_limit, color) in enumerate(seed.lanes):
            lane = Lane(NEW, board.id, name, index, wip_limit, color)
            kanban.lanes.add(lane)

    def _add_tags_and_fields(self) -> None:
        for name, color, workspace_id, board in seed_data.TAGS:
            tag = Tag(NEW, name, color, workspace_id, self._boards.get(board or ""))
            self.kanban.tags.add(tag)
        for name, kind, description, options, workspace_id, board in seed_data.CUSTOM_FIELDS:
            field = CustomField(NEW, name, kind, description, options, workspace_id, self._boards.get(board or ""))
            self.kanban.custom_fields.add(field)

    def _replay(self, seeds: tuple[SeedCard, ...]) -> None:
        """Create the cards, then make every move of all of them in the order of time."""
        steps = [
            (-days_ago, index, step) for index, seed in enumerate(seeds) for step, days_ago in enumerate(seed.path)
        ]
        for seed in seeds:
            self._add_card(seed)
        for minus_days, index, step in sorted(steps):
            now = self._at(-minus_days, hour=9 + (index + step) % 8)
            card = self.kanban.cards.get(self._cards[seeds[index].title])
            column = self.kanban.columns_of(card.board_id)[step]
            lane = self.kanban.lanes.get(card.lane_id)
            if step == 0:
                card = replace(card, created_at=now, is_archived=False)
            moved = enter_cell(self.kanban, replace(card, updated_at=now, entered_column_at=now), column, lane, None)
            close_gap(self.kanban, card.column_id, card.lane_id)
            actor = seeds[index].owner or self.kanban.acting_user_id
            if step == 0:
                self.kanban.record(card.id, "created", card.title)
            log_move(self.kanban, moved, card.column_id if step else None, actor)

    def _add_card(self, seed: SeedCard) -> None:
        """Store the card out of sight, until the replay brings it onto the board."""
        kanban = self.kanban
        board_id = self._boards[seed.board]
        lane = kanban.lanes_of(board_id)[seed.lane]
        card_type = next(t for t in kanban.card_types if t.name == seed.kind)
        created = self._at(seed.path[0])
        card = Card(
            id=NEW,
            board_id=board_id,
            column_id=kanban.columns_of(board_id)[0].id,
            lane_id=lane.id,
            position=0,
            title=seed.title,
            created_at=created,
            updated_at=created,
            entered_column_at=created,
            description=seed.description,
            custom_id=seed.custom_id,
            deadline=None if seed.due_in is None else (self._today + timedelta(days=seed.due_in)).date(),
            size=seed.size,
            priority=seed.priority,
            color=card_type.color,
            type_id=card_type.id,
            owner_user_id=seed.owner,
            reporter_user_id=kanban.acting_user_id,
            co_owner_ids=seed.co_owners,
            tag_ids=tuple(tag.id for tag in kanban.tags if tag.name in seed.tags),
            class_of_service="expedite" if lane.name == "Expedite" else "standard",
            release=seed.release,
            parent_card_id=self._cards.get(seed.parent or ""),
            is_archived=True,
        )
        self._cards[seed.title] = kanban.cards.add(card).id

    def _add_parts(self) -> None:
        """Comments, subtasks, links, blockers and field values of the cards that this instance has."""
        kanban, cards = self.kanban, self._cards
        for title, user_id, text, days_ago in seed_data.COMMENTS:
            if title in cards:
                at = self._at(days_ago, hour=15)
                comment = Comment(NEW, cards[title], user_id, text, at, at)
                kanban.comments.add(comment)
                kanban.record(cards[title], "comment_added", text[:80], user_id)
        for title, description, owner, finished in seed_data.SUBTASKS:
            if title in cards:
                position = len(subtasks_of(kanban, cards[title]))
                done = self._at(2) if finished else None
                subtask = Subtask(NEW, cards[title], position, description, owner, None, done)
                kanban.subtasks.add(subtask)
        for title, user_id, reason, began, ended in seed_data.BLOCKERS:
            if title in cards:
                start, end = self._at(began, hour=11), None if ended is None else self._at(ended, hour=11)
                blocker = Blocker(NEW, cards[title], user_id, reason, None, start, end)
                kanban.blockers.add(blocker)
        for title, kind, other in seed_data.LINKS:
            if title in cards and other in cards:
                add_link(kanban, cards[title], kind, cards[other])
        for title, field_name, value in seed_data.FIELD_VALUES:
            if title in cards:
                field_id = next(f.id for f in kanban.custom_fields if f.name == field_name)
                held = FieldValue(NEW, cards[title], field_id, value)
                kanban.field_values.add(held)
