"""The company the demo starts with: Brightwater, a web shop for furniture, its people, boards and cards.

Pure data, read by seed. A card's path holds how many days ago it entered each column of its board, from the
first column on; a path that ends early is a card that still stands there.
"""

from dataclasses import dataclass

from mcp_optimizer_demo.kanban.records import Section


@dataclass(frozen=True, slots=True)
class SeedColumn:
    name: str
    section: Section
    wip_limit: int = 0
    policy: str = ""


@dataclass(frozen=True, slots=True)
class SeedBoard:
    key: str
    workspace_id: int
    name: str
    description: str
    columns: tuple[SeedColumn, ...]
    lanes: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True, slots=True)
class SeedCard:
    board: str
    title: str
    kind: str
    size: float | None
    priority: str
    owner: int | None
    tags: tuple[str, ...]
    path: tuple[int, ...]
    lane: int = 0
    description: str = ""
    due_in: int | None = None
    custom_id: str | None = None
    parent: str | None = None
    co_owners: tuple[int, ...] = ()
    release: str | None = None


WORKSPACES = (
    ("Product Development", "Teams that build and run the web shop.", "team"),
    ("Marketing and Strategy", "Campaigns, content and the portfolio of initiatives.", "management"),
)

USERS = (
    ("elena", "Elena Marković", "owner", (1, 2)),
    ("tom", "Tom Becker", "manager", (1, 2)),
    ("aisha", "Aisha Rahman", "member", (1,)),
    ("luca", "Luca Ferri", "member", (1,)),
    ("mei", "Mei Tanaka", "member", (1,)),
    ("jonas", "Jonas Lind", "member", (1,)),
    ("sofia", "Sofía Álvarez", "manager", (2,)),
    ("daniel", "Daniel Okafor", "member", (2,)),
    ("petr", "Petr Novák", "viewer", (1,)),
)
DISABLED_USERS = ("petr",)

CARD_TYPES = (
    ("Feature", "#42AD49"),
    ("Bug", "#D9344A"),
    ("Task", "#2A6FBB"),
    ("Improvement", "#F2A33A"),
    ("Initiative", "#7A4FB5"),
)

TAGS = (
    ("checkout", "#2A6FBB", None, None),
    ("search", "#42AD49", None, None),
    ("performance", "#F2A33A", None, None),
    ("accessibility", "#7A4FB5", None, None),
    ("customer-request", "#D9344A", None, None),
    ("security", "#8B0000", None, None),
    ("tech-debt", "#6B778C", 1, None),
    ("newsletter", "#E07BB5", 2, None),
    ("spring-campaign", "#9ACD32", None, "marketing"),
)

CUSTOM_FIELDS = (
    ("Customer", "text", "Who asked for it.", (), None, None),
    ("Severity", "dropdown", "How bad the defect is.", ("minor", "major", "critical"), 1, None),
    ("Story points confirmed", "checkbox", "Whether the team has agreed on the size.", (), 1, None),
    ("Budget", "number", "Planned spending in euros.", (), 2, None),
    ("Publication date", "date", "When the piece goes out.", (), None, "marketing"),
)

BOARDS = (
    SeedBoard(
        "web",
        1,
        "Web Shop",
        "Storefront, checkout and customer account.",
        (
            SeedColumn("Ideas", "backlog"),
            SeedColumn("Ready", "requested", 8, "Described, sized and accepted by the team."),
            SeedColumn("Development", "progress", 5, "One owner; a test for every change."),
            SeedColumn("Code Review", "progress", 4, "Reviewed by somebody who did not write it."),
            SeedColumn("Testing", "progress", 3, "Tried on the staging shop."),
            SeedColumn("Done", "done"),
        ),
        (("Standard", 0, "#D5D5D5"), ("Expedite", 2, "#D9344A")),
    ),
    SeedBoard(
        "platform",
        1,
        "Platform",
        "Servers, delivery pipeline, data and monitoring.",
        (
            SeedColumn("Backlog", "backlog"),
            SeedColumn("Ready", "requested", 6),
            SeedColumn("In Progress", "progress", 4),
            SeedColumn("Review", "progress", 3),
            SeedColumn("Done", "done"),
        ),
        (("New Work", 0, "#D5D5D5"), ("Maintenance", 3, "#6B778C")),
    ),
    SeedBoard(
        "marketing",
        2,
        "Marketing Campaigns",
        "Campaigns, newsletters and events, from idea to publication.",
        (
            SeedColumn("Ideas", "backlog"),
            SeedColumn("Planned", "requested", 5),
            SeedColumn("In Production", "progress", 3),
            SeedColumn("Approval", "progress", 2, "Needs the approval of Sofía or Elena."),
            SeedColumn("Published", "done"),
        ),
        (("Content", 0, "#D5D5D5"), ("Events", 0, "#E07BB5")),
    ),
    SeedBoard(
        "portfolio",
        2,
        "Portfolio",
        "Initiatives of the company over several quarters.",
        (
            SeedColumn("Proposed", "backlog"),
            SeedColumn("Committed", "requested", 4),
            SeedColumn("In Delivery", "progress", 3),
            SeedColumn("Completed", "done"),
        ),
        (("Initiatives", 0, "#7A4FB5"),),
    ),
)

COMMENTS = (
    ("Fix rounding in the invoice total", 4, "Reproduced with three items at 19.99 and a 15 percent voucher.", 24),
    ("Fix rounding in the invoice total", 2, "The total is rounded per line; it must be rounded once.", 23),
    ("Remember the last used delivery address", 3, "Should guests see this as well?", 9),
    ("Remember the last used delivery address", 1, "No, signed-in customers only for now.", 8),
    ("Let customers pay with instant bank transfer", 2, "The bank promised the test account for Friday.", 6),
    ("Filter search results by delivery time", 4, "Sorting is wrong when the time is unknown.", 3),
    ("Upgrade the database to the next major version", 5, "Dry run on the copy took 41 minutes.", 7),
    ("Upgrade the database to the next major version", 6, "Then we need the maintenance window on Sunday.", 6),
    ("Alert when checkout errors rise", 6, "Threshold: more than 2 percent over five minutes.", 12),
    ("Spring garden furniture campaign", 7, "Photos arrive next week, texts are ready.", 5),
    ("March newsletter", 8, "Subject line A won the test with 31 percent opened.", 18),
    ("Faster checkout", 1, "Goal: fewer than 20 percent abandoned carts.", 70),
)

SUBTASKS = (
    ("Remember the last used delivery address", "Store the address with the account", 3, True),
    ("Remember the last used delivery address", "Preselect it in the checkout", 3, False),
    ("Remember the last used delivery address", "Test with several addresses", 4, False),
    ("Let customers pay with instant bank transfer", "Sign the contract with the bank", 1, True),
    ("Let customers pay with instant bank transfer", "Connect the payment interface", 2, False),
    ("Upgrade the database to the next major version", "Dry run on a copy", 5, True),
    ("Upgrade the database to the next major version", "Announce the maintenance window", 6, False),
    ("Spring garden furniture campaign", "Book the photographer", 8, True),
    ("Spring garden furniture campaign", "Write the landing page", 8, False),
)

LINKS = (
    ("Upgrade the database to the next major version", "blocks", "Keep full-text search index up to date"),
    ("Show stock per warehouse", "relates_to", "Filter search results by delivery time"),
    ("Cart is emptied after signing in", "is_duplicated_by", "Items vanish from the cart"),
    ("Spring garden furniture campaign", "is_blocked_by", "Landing pages without a developer"),
)

BLOCKERS = (
    ("Let customers pay with instant bank transfer", 2, "Waiting for the bank's test account", 7, None),
    ("Rotate the signing keys of the shop", 6, "The hardware token is at the other office", 4, None),
    ("Fix rounding in the invoice total", 4, "Staging shop was down", 25, 24),
    ("Product photos load slowly on phones", 3, "Waiting for the image service upgrade", 35, 32),
)

FIELD_VALUES: tuple[tuple[str, str, str | float | bool], ...] = (
    ("Fix rounding in the invoice total", "Severity", "major"),
    ("Cart is emptied after signing in", "Severity", "critical"),
    ("Remember the last used delivery address", "Customer", "Hotel Seeblick"),
    ("Spring garden furniture campaign", "Budget", 12000),
    ("Faster checkout", "Budget", 80000),
)
