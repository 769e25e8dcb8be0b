"""Every limit on input from outside, defined once: its name, its default, and what happens beyond it.

Servers and clients are not trusted: every input that could grow without end has a limit here. They are the `[limits]`
table of the settings file, and `docs/limits.md` is generated from here. Values only.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

MEGABYTE = 1_000_000


class Limits(BaseModel):
    """How much the gateway accepts from one server, one client, or in one request."""

    # Built with the settings that it is a part of: by itself, it would be built twice at each start.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    message_bytes: int = Field(
        default=128 * MEGABYTE,
        ge=100_000,
        description="Bytes of one message from a server, after decompression. A longer one is dropped while it "
        "arrives, and its call fails.",
    )
    request_bytes: int = Field(
        default=64 * MEGABYTE,
        ge=10_000,
        description="Bytes of one message from a client. A longer one is refused.",
    )
    error_text: int = Field(
        default=10_000,
        ge=200,
        description="Characters of a server's error message that are passed on; the rest is cut off. Error data may "
        "be ten times as long; larger data is dropped.",
    )
    learned_pairs: int = Field(
        default=50_000,
        ge=100,
        description="Pairs of a word and a tool that are counted to learn from use. Beyond them the rarest are "
        "forgotten.",
    )
    learned_shapes: int = Field(
        default=10_000,
        ge=100,
        description="Tools whose results' keys are remembered, for each caller. Beyond them the oldest are forgotten.",
    )
    request_values: int = Field(
        default=500_000,
        ge=1_000,
        description="Values (numbers, texts, lists, objects) in one message from a client. A message with more is "
        "refused.",
    )
    request_seconds: float = Field(
        default=30.0,
        gt=0,
        description="Seconds an HTTP client has to send the headers of a request, and again to send its body.",
    )
    header_bytes: int = Field(
        default=64_000, ge=8_000, description="Bytes of the headers of an HTTP request. Longer ones are refused."
    )
    unread_seconds: float = Field(
        default=60.0,
        gt=0,
        description="Seconds an HTTP client may leave data unread before its connection is closed.",
    )
    connections: int = Field(
        default=8_000,
        ge=1,
        description="Open connections from HTTP clients. Further ones get 503 with Retry-After and are closed.",
    )
    requests: int = Field(
        default=2_000,
        ge=1,
        description="Requests of one client in progress. Further ones are refused until some are answered.",
    )
    introduction_bytes: int = Field(
        default=50_000,
        ge=2_000,
        description="Bytes of an `initialize` request, which is kept for the length of its session. A longer one is "
        "refused.",
    )
    client_name: int = Field(
        default=256, ge=16, description="Characters of a client's name. A client with a longer one is refused."
    )
    identifier: int = Field(
        default=4_000,
        ge=100,
        description="Characters of a name, URI, cursor, method or id in a client's request. A request with a longer "
        "one is refused.",
    )
    own_text: int = Field(
        default=10_000,
        ge=100,
        description="Characters of a text argument of the gateway's own tools, such as `tool_description`. A longer "
        "one is refused.",
    )
    subscriptions: int = Field(
        default=1_000,
        ge=1,
        description="Resources one client may subscribe to, or names in one `subscriptions/listen`. More are refused.",
    )
    watched_resources: int = Field(
        default=10_000, ge=1, description="Resources all clients together may subscribe to. More are refused."
    )
    kept_events: int = Field(
        default=32 * MEGABYTE,
        ge=0,
        description="Bytes of events kept for HTTP clients that lose a stream. The oldest are dropped.",
    )
    waiting_results: int = Field(
        default=64 * MEGABYTE, ge=0, description="Bytes of cut results that wait for the database. The oldest are lost."
    )
    batch_messages: int = Field(
        default=1_000, ge=1, description="Messages in one batch from a server. The rest of a longer batch is dropped."
    )
    stderr_line: int = Field(
        default=500,
        ge=80,
        description="Characters kept of one line that a server writes to stderr. The rest is dropped.",
    )
    stderr_lines: int = Field(default=50, ge=1, description="Lines kept of a server's stderr. The oldest are dropped.")
    log_lines: int = Field(
        default=200,
        ge=1,
        description="Lines kept of a server's log: its stderr and its events. The oldest are dropped.",
    )
    log_bytes: int = Field(
        default=100_000, ge=1_000, description="Bytes kept of a server's log. The oldest lines are dropped."
    )
    pending_questions: int = Field(
        default=64,
        ge=1,
        description="Questions of one server that wait for a client's answer. Further ones are refused at once.",
    )
    pending_replies: int = Field(
        default=64,
        ge=1,
        description="Replies that one server, or the client on stdio, has not read yet. While there are more, nothing"
        " is read from it.",
    )
    pending_notifications: int = Field(
        default=1_000,
        ge=1,
        description="Notifications waiting for one client or one server. Beyond that, the oldest are dropped.",
    )
    sessions: int = Field(
        default=10_000,
        ge=1,
        description="Open sessions of HTTP clients. Beyond them, the caller with most sessions loses one, preferably "
        "an unused one, to a caller with fewer; other callers are refused until later.",
    )
    tools: int = Field(
        default=20_000,
        ge=1,
        description="Tools of one server. The rest of a longer list is left out, and `doctor` reports it.",
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
        description="Bytes of a tool's complete definition. A tool with a larger one is left out.",
    )
    schema_depth: int = Field(
        default=100,
        ge=10,
        description="Levels of nesting in a tool's definition. A tool with a deeper one is left out.",
    )
    listed_items: int = Field(
        default=20_000,
        ge=1,
        description="Prompts, resources or resource templates of one server. The rest of a longer list is left out.",
    )
    list_seconds: float = Field(
        default=5.0,
        gt=0,
        description="Seconds that a list made from all servers waits for one server. The list is then sent without it.",
    )
    answer_header_bytes: int = Field(
        default=256_000,
        ge=10_000,
        description="Bytes of the headers of one HTTP response from a server. Beyond that, its connection is closed.",
    )
    tasks: int = Field(
        default=1_000,
        ge=0,
        description="Tasks of one caller that can be asked for at a time. A call that would make one more waits for "
        "its task instead.",
    )
    call_seconds: float = Field(
        default=3_600.0,
        gt=0,
        description="Seconds after which a call ends, even if it reports progress or waits for a client's answer.",
    )
    failed_checks: int = Field(
        default=3,
        ge=1,
        description="Failed checks in a row, with no other sign of life, after which an HTTP server counts as dead.",
    )
    expression: int = Field(
        default=2_000, ge=100, description="Characters of a `select` expression. A longer one is refused."
    )
    expression_depth: int = Field(
        default=100,
        ge=10,
        description="Levels of a `select` expression; each pipe or operator is one. A deeper one is refused.",
    )
    expression_steps: int = Field(
        default=2_000_000,
        ge=1_000,
        description="Steps a `select` expression may take per megabyte of a result. Beyond that, nothing is selected;"
        " the result stays readable.",
    )
    expression_output: int = Field(
        default=10 * MEGABYTE,
        ge=10_000,
        description="Characters a `select` expression may produce. Beyond that, nothing is selected; the result stays"
        " readable.",
    )
    check_steps: int = Field(
        default=5_000_000,
        ge=10_000,
        description="Steps for checking arguments, or a structured result, against a tool's schema. Beyond that, the "
        "gateway skips the check and leaves it to the server.",
    )
    query: int = Field(
        default=10_000,
        ge=100,
        description="Characters of a request to find_tool. A longer one is refused. Tools are found by its beginning: "
        "384 words, 2,000 characters.",
    )
    waiting_searches: int = Field(
        default=200,
        ge=1,
        description="Searches of one caller that wait for their turn. Further ones are refused until some are done.",
    )
    reply_tokens: int = Field(
        default=10_000,
        ge=1_000,
        description="Tokens of a reply of the gateway's own tools. A longer one is abbreviated, and says so.",
    )
    result_argument_characters: int = Field(
        default=4 * MEGABYTE,
        ge=1_000,
        description="Characters of kept results that the arguments of one call may refer to, together. Beyond that, "
        "the call is refused.",
    )
    batch_calls: int = Field(
        default=200,
        ge=1,
        description="Calls that one call_tool with a list of arguments makes. A longer list is refused.",
    )
    batch_parallel: int = Field(
        default=16, ge=1, description="Calls of one list that are in progress at a time. Further ones wait."
    )
    batch_seconds: float = Field(
        default=60.0,
        gt=0,
        description="Seconds after which no further call of a list begins, not counting the time a person takes to "
        "answer. Calls in progress end; the reply says which were not made.",
    )
    batch_result_bytes: int = Field(
        default=16 * MEGABYTE,
        ge=10_000,
        description="Bytes of all results of one list of calls. A result beyond that is not returned; its call was "
        "made.",
    )
    script_characters: int = Field(
        default=20_000, ge=500, description="Characters of a script. A longer one is refused."
    )
    script_calls: int = Field(
        default=200, ge=1, description="Calls of tools that one script makes. Beyond that, the script ends."
    )
    script_parallel: int = Field(
        default=16, ge=1, description="Calls of one script that are in progress at a time. Further ones wait."
    )
    script_seconds: float = Field(
        default=60.0,
        gt=0,
        description="Seconds that a script may take, not counting the time a person takes to answer a question. It "
        "is then ended; its output is returned.",
    )
    script_cpu_seconds: float = Field(
        default=5.0, gt=0, description="Seconds that a script may compute, not counting its calls. It is then ended."
    )
    script_memory: int = Field(
        default=128 * MEGABYTE, ge=4 * MEGABYTE, description="Bytes of a script's values. It is ended if it needs more."
    )
    script_argument_bytes: int = Field(
        default=MEGABYTE,
        ge=1_000,
        description="Bytes of the arguments of one call of a script, or of all calls of one `parallel`. Larger ones "
        "are refused.",
    )
    script_result_bytes: int = Field(
        default=16 * MEGABYTE,
        ge=10_000,
        description="Bytes of a result that a script receives, or of all results of one `parallel`. A larger one is an "
        "error in the script; the calls were made. A script that lets more than twice that wait is ended.",
    )
    script_output: int = Field(
        default=MEGABYTE,
        ge=1_000,
        description="Characters that a script prints and returns. The rest is left out, and the reply says so.",
    )
    script_error: int = Field(
        default=2_000, ge=200, description="Characters of the error that ended a script. The rest is cut off."
    )
    script_workers: int = Field(
        default=4,
        ge=1,
        description="Scripts that run at a time; one caller has at most one less. Further ones wait, and are refused "
        "after 10 seconds. As many more may wait for a person's answer; questions of further scripts are refused.",
    )
    stored_scripts: int = Field(default=200, ge=1, description="Scripts kept under a name. Further ones are not saved.")
    stored_script_description: int = Field(
        default=300, ge=20, description="Characters of a stored script's description. A longer one is refused."
    )
    stored_script_parameters: int = Field(
        default=20, ge=1, description="Parameters of a stored script; more are refused."
    )


# Defaults need no check, which would build the model.
DEFAULT_LIMITS = Limits.model_construct()
