"""Every bound on what comes from outside, once: its name, its default, and what happens beyond it.

Servers and clients are strangers: whatever they can send without end stops at one of these. They are the
`[limits]` table of the settings file, and `docs/limits.md` is made from here. Values only.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

MEGABYTE = 1_000_000


class Limits(BaseModel):
    """How much the gateway takes from one server, one client, or one request."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    message_bytes: int = Field(
        default=128 * MEGABYTE,
        ge=100_000,
        description="Bytes of one message of a server, after decompression. A longer one is dropped while it arrives, "
        "and the call it would have answered fails.",
    )
    request_bytes: int = Field(
        default=64 * MEGABYTE,
        ge=10_000,
        description="Bytes of one message of a client. A longer one is refused.",
    )
    error_text: int = Field(
        default=10_000,
        ge=200,
        description="Characters of a server's error message that are passed on; the rest is cut off. An error's data "
        "may be ten times as long: larger data is left out.",
    )
    learned_pairs: int = Field(
        default=50_000,
        ge=100,
        description="Pairs of a word and a tool that are counted to learn from use. Beyond them the rarest are "
        "forgotten.",
    )
    request_values: int = Field(
        default=500_000,
        ge=1_000,
        description="Values (numbers, texts, lists, objects) in one message of a client. One with more is refused.",
    )
    request_seconds: float = Field(
        default=30.0,
        gt=0,
        description="Seconds that an HTTP client has to send the headers of a request, and again to send its body.",
    )
    header_bytes: int = Field(
        default=64_000, ge=8_000, description="Bytes of the headers of an HTTP request. Longer ones are refused."
    )
    unread_seconds: float = Field(
        default=60.0,
        gt=0,
        description="Seconds that an HTTP client may leave what it is sent unread. Its connection is then closed.",
    )
    connections: int = Field(
        default=8_000,
        ge=1,
        description="Open connections of HTTP clients. Further ones are answered 503 with Retry-After, and closed.",
    )
    requests: int = Field(
        default=2_000,
        ge=1,
        description="Requests of one client that are under way. More are refused until some are answered.",
    )
    introduction_bytes: int = Field(
        default=50_000,
        ge=2_000,
        description="Bytes of an `initialize` request, which is remembered for as long as its session lasts. "
        "A longer one is refused.",
    )
    client_name: int = Field(
        default=256, ge=16, description="Characters of a client's name. A client with a longer one is refused."
    )
    identifier: int = Field(
        default=4_000,
        ge=100,
        description="Characters of a name, a URI, a cursor, a method or an id in a client's request. A request with a "
        "longer one is refused.",
    )
    own_text: int = Field(
        default=10_000,
        ge=100,
        description="Characters of a text argument of the gateway's own tools, such as `tool_description`. "
        "A longer one is refused.",
    )
    subscriptions: int = Field(
        default=1_000,
        ge=1,
        description="Resources that one client watches, or names in one `subscriptions/listen`. More are refused.",
    )
    watched_resources: int = Field(
        default=10_000, ge=1, description="Resources that all clients together watch. More are refused."
    )
    kept_events: int = Field(
        default=32 * MEGABYTE,
        ge=0,
        description="Bytes of what was sent to HTTP clients and is kept for those that lost a stream. "
        "The oldest are dropped.",
    )
    batch_messages: int = Field(
        default=1_000, ge=1, description="Messages in one batch of a server. The rest of a longer batch is dropped."
    )
    stderr_line: int = Field(
        default=500,
        ge=80,
        description="Characters kept of one line that a server writes to stderr. The rest is dropped.",
    )
    stderr_lines: int = Field(
        default=20, ge=1, description="Lines of a server's stderr that are kept. The oldest are dropped."
    )
    pending_questions: int = Field(
        default=64,
        ge=1,
        description="Requests of one server that wait for a client's answer. More are refused at once.",
    )
    pending_replies: int = Field(
        default=64,
        ge=1,
        description="Replies that one server, or the client on stdio, has not read yet. While there are more, nothing "
        "is read from it.",
    )
    pending_notifications: int = Field(
        default=1_000,
        ge=1,
        description="Notifications that wait for one client, or for one server. Of more, the oldest are dropped.",
    )
    sessions: int = Field(
        default=10_000, ge=1, description="Open sessions of HTTP clients. Who comes then is told to come back later."
    )
    tools: int = Field(
        default=20_000,
        ge=1,
        description="Tools of one server. The rest of a longer list is left out, and `doctor` says so.",
    )
    tool_name: int = Field(
        default=256, ge=16, description="Characters of a tool's name. A tool with a longer one is left out."
    )
    description: int = Field(
        default=100_000,
        ge=1_000,
        description="Characters of a tool's description. A tool with a longer one is left out.",
    )
    definition_bytes: int = Field(
        default=MEGABYTE,
        ge=10_000,
        description="Bytes of a tool's whole definition. A tool with a larger one is left out.",
    )
    schema_depth: int = Field(
        default=100, ge=10, description="Levels of a tool's definition. A tool with a deeper one is left out."
    )
    listed_items: int = Field(
        default=20_000,
        ge=1,
        description="Prompts, resources or resource templates of one server. The rest of a longer list is left out.",
    )
    list_seconds: float = Field(
        default=5.0,
        gt=0,
        description="Seconds that lists made of all servers wait for one of them. The list then comes without it.",
    )
    answer_header_bytes: int = Field(
        default=256_000,
        ge=10_000,
        description="Bytes of the headers of one HTTP answer of a server. Beyond them its connection is closed.",
    )
    call_seconds: float = Field(
        default=3_600.0,
        gt=0,
        description="Seconds after which a call ends, whatever progress it reports and whoever is being asked.",
    )
    failed_checks: int = Field(
        default=3,
        ge=1,
        description="Checks in a row, without any other sign of life, after which an HTTP server counts as dead.",
    )
    expression: int = Field(
        default=2_000, ge=100, description="Characters of a `select` expression. A longer one is refused."
    )
    expression_depth: int = Field(
        default=100,
        ge=10,
        description="Levels of a `select` expression, where each pipe or operator is one. A deeper one is refused.",
    )
    expression_steps: int = Field(
        default=2_000_000,
        ge=1_000,
        description="Steps that a `select` expression may take for each megabyte of a result. Beyond them nothing is "
        "selected; the result can still be read.",
    )
    expression_output: int = Field(
        default=10 * MEGABYTE,
        ge=10_000,
        description="Characters that a `select` expression may make. Beyond them nothing is selected; the result can "
        "still be read.",
    )
    check_steps: int = Field(
        default=5_000_000,
        ge=10_000,
        description="Steps that it may take to check arguments, or a structured result, against a tool's schema. What "
        "takes more is not checked by the gateway; its server has the last word.",
    )
    query: int = Field(
        default=10_000, ge=100, description="Characters of a request to find_tool. A longer one is refused."
    )
    reply_tokens: int = Field(
        default=10_000,
        ge=1_000,
        description="Tokens of a reply of the gateway's own tools. A longer one is abbreviated, and says so.",
    )


DEFAULT_LIMITS = Limits()
