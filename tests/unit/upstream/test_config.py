"""Server files as people have them: every client's shape, comments, variables, and one bad entry among good ones."""

from __future__ import annotations

import contextlib
import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.config.serverfile.parser import parse_server_file, read_server_file
from mcp_optimizer.config.serverfile.spec import ServerSpec, Transport
from mcp_optimizer.errors import ConfigurationError

FILE = Path("/home/ada/project/mcp.json")


def parse(text: str, **environment: str) -> list[ServerSpec]:
    return parse_server_file(text, FILE, environment)


def one(entry: Any, **environment: str) -> ServerSpec:
    """The spec of an entry next to a good one, which must never be affected."""
    document = {"mcpServers": {"it": entry, "good": {"command": "good"}}}
    it, good = parse(json.dumps(document), **environment)
    assert good == ServerSpec(name="good", transport=Transport.STDIO, command="good")
    assert it.name == "it"
    return it


ENTRY = {"command": "npx", "args": ["-y", "thing"], "env": {"LEVEL": "1"}}
SPEC = ServerSpec(name="it", transport=Transport.STDIO, command="npx", args=("-y", "thing"), env={"LEVEL": "1"})


@pytest.mark.parametrize(
    "document",
    [
        {"mcpServers": {"it": ENTRY}},
        {"servers": {"it": ENTRY}, "inputs": []},
        {"mcp": {"servers": {"it": ENTRY}}, "editor.fontSize": 12},
        {"mcpServers": {"it": {**ENTRY, "type": "stdio"}}, "globalShortcut": ""},
    ],
    ids=["Claude Desktop", "VS Code mcp.json", "VS Code settings.json", "with a type"],
)
def test_the_shapes_of_all_clients_are_read(document: dict[str, Any]) -> None:
    assert parse(json.dumps(document)) == [SPEC]


def test_servers_keep_the_order_of_their_file() -> None:
    names = ["zeta", "alpha", "mid"]
    text = json.dumps({"mcpServers": {name: {"command": "x"} for name in names}})
    assert [found.name for found in parse(text)] == names


def test_comments_and_trailing_commas_are_read_over() -> None:
    text = """
    // the servers
    {
      "mcpServers": { /* just
                         one */
        "it": {
          "command": "npx", // how to start it
          "args": ["-y", "thing", /* more? */ ],
          "env": {"LEVEL": "1",},   // the last one
        }, /* no more */
      },
    }
    // the end"""
    assert parse(text) == [SPEC]


@pytest.mark.parametrize(
    "value",
    ["https://example.com//a", "a // b", "/* not a comment */", ",]", ", }", 'say "//"', "back\\slash\\", "/*", "*/"],
)
def test_what_looks_like_a_comment_or_a_comma_inside_a_string_stays(value: str) -> None:
    arguments = f'[{json.dumps(value)}, /* c */ "b",], // d\n'
    text = '{"mcpServers": {"it": {"command": "x", "args": ' + arguments + "}}}"
    assert parse(text)[0].args == (value, "b")


def test_a_comma_between_two_comments_is_no_trailing_one() -> None:
    text = '{"mcpServers": {"it": {"command": "npx", /* a */ "args": ["-y", /* b */ "thing" /* c */ ] /* d */ } } }'
    assert parse(text)[0].args == ("-y", "thing")


def test_many_comments_in_a_row_are_read_quickly() -> None:
    began = time.perf_counter()
    parse('{"mcpServers": {"it": {"command": "npx", ' + "/* c */ " * 24 + '"args": []}}}')
    assert time.perf_counter() - began < 1


@pytest.mark.slow
@given(
    document=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=12,
    )
)
def test_plain_json_is_read_as_json_and_any_document_gives_servers_or_a_clear_error(document: Any) -> None:
    text = json.dumps({"mcpServers": {"it": {"command": "x", "args": [json.dumps(document)]}}}, ensure_ascii=False)
    (found,) = parse(text.replace("${", "$"))
    assert found.args == (json.dumps(document).replace("${", "$"),)
    with contextlib.suppress(ConfigurationError):
        parse(json.dumps(document))


def test_a_byte_order_mark_is_read_over(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"it": ENTRY}}), encoding="utf-8-sig")
    assert read_server_file(path, {}) == [SPEC]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${TOKEN}", "t0k"),
        ("${env:TOKEN}", "t0k"),
        ("Bearer ${TOKEN}!", "Bearer t0k!"),
        ("${TOKEN}${TOKEN}", "t0kt0k"),
        ("${TOKEN:-none}", "t0k"),
        ("${UNSET:-none}", "none"),
        ("${env:UNSET:-none}", "none"),
        ("${UNSET:-}", ""),
        ("${EMPTY:-none}", "none"),
        ("${EMPTY:-}", ""),
        ("${UNSET:-http://x:1/-}", "http://x:1/-"),
        ("$TOKEN", "$TOKEN"),
        ("no variable", "no variable"),
    ],
)
def test_variables_are_filled_in(text: str, expected: str) -> None:
    entry = {"command": "x", "args": [text], "env": {"A": text}}
    found = one(entry, TOKEN="t0k", EMPTY="")
    assert (found.args, found.env) == ((expected,), {"A": expected})
    found = one({"url": "https://example.com", "headers": {"Authorization": text}}, TOKEN="t0k", EMPTY="")
    assert found.headers == {"Authorization": expected}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${MISSING}", '"env.A" uses ${MISSING}, but the environment variable MISSING is not set'),
        ("${env:MISSING}", '"env.A" uses ${MISSING}, but the environment variable MISSING is not set'),
        ("Bearer ${EMPTY}", "the environment variable EMPTY is empty; set it where your client is started"),
        ("${EMPTY}", "run `mcp-optimizer secret set EMPTY` and write ${secret:EMPTY}"),
        ("${UNFOUND}", "the environment variable UNFOUND is not set"),
        (
            "${command:token}",
            '"env.A" uses ${command:token}, which only the original client can replace; '
            "use ${VAR}, ${VAR:-default}, ${env:VAR} or ${secret:NAME}",
        ),
        ("${workspaceFolder}/x", "the folder that is open in an editor"),
    ],
)
def test_a_variable_that_cannot_be_filled_in_is_the_problem_of_its_entry_alone(text: str, reason: str) -> None:
    found = one({"command": "x", "env": {"A": text}}, EMPTY="", UNFOUND="$UNFOUND")
    assert reason in found.problem
    assert str(FILE) in found.problem


@pytest.mark.parametrize(
    ("switch", "disabled"),
    [
        ({}, False),
        ({"disabled": True}, True),
        ({"disabled": False}, False),
        ({"enabled": False}, True),
        ({"enabled": True}, False),
        ({"enabled": True, "disabled": True}, True),
    ],
)
def test_an_entry_can_be_switched_off(switch: dict[str, bool], disabled: bool) -> None:
    assert one({"command": "x", **switch}).disabled is disabled


@pytest.mark.parametrize(
    ("entry", "admitted"),
    [
        ({}, {"get", "set", "delete_all"}),
        ({"tools": ["*"]}, {"get", "set", "delete_all"}),
        ({"tools": ["get"]}, {"get"}),
        ({"includeTools": ["get", "delete_*"], "excludeTools": ["delete_all"]}, {"get"}),
        ({"disabledTools": ["delete_*"]}, {"get", "set"}),
        ({"enabledTools": ["set"], "tools": ["get"]}, {"get", "set"}),
        ({"tools": []}, set()),
    ],
)
def test_an_entry_says_which_tools_are_used(entry: dict[str, Any], admitted: set[str]) -> None:
    tools = one({"command": "x", **entry}).tools
    assert {name for name in ("get", "set", "delete_all") if tools.admits(name)} == admitted
    assert bool(tools) == (len(admitted) < 3)


def test_another_selection_of_tools_is_another_server_to_the_catalog() -> None:
    assert one({"command": "x"}).fingerprint == one({"command": "x", "tools": ["*"]}).fingerprint
    assert one({"command": "x"}).fingerprint != one({"command": "x", "tools": ["a"]}).fingerprint


def test_an_entry_that_is_switched_off_has_no_problem_whatever_it_lacks() -> None:
    found = one({"command": "x", "env": {"TOKEN": "${MISSING}"}, "disabled": True})
    assert (found.disabled, found.problem) == (True, "")


@pytest.mark.parametrize(
    ("given", "seconds"), [(None, None), (30, 30.0), (0.5, 0.5), (3600, 3600.0), (5000, 5.0), (600_000, 600.0)]
)
def test_a_timeout_is_in_seconds_or_when_too_large_for_that_in_milliseconds(
    given: float | None, seconds: float | None
) -> None:
    assert one({"command": "x", "timeout": given}).timeout == seconds


@pytest.mark.parametrize("given", [0, -1, "60", True, []])
def test_a_timeout_that_is_no_positive_number_is_a_problem(given: object) -> None:
    assert '"timeout" must be a positive number' in one({"command": "x", "timeout": given}).problem


URL = {"url": "https://example.com/mcp"}


@pytest.mark.parametrize(
    ("entry", "transport", "certain"),
    [
        ({"command": "x"}, Transport.STDIO, True),
        ({"type": "stdio", "command": "x"}, Transport.STDIO, True),
        (URL, Transport.HTTP, False),
        ({**URL, "type": "http"}, Transport.HTTP, True),
        ({**URL, "type": "streamable-http"}, Transport.HTTP, True),
        ({**URL, "type": "streamableHttp"}, Transport.HTTP, True),
        ({**URL, "transport": "streamable_http"}, Transport.HTTP, True),
        ({**URL, "type": "sse"}, Transport.SSE, True),
        ({**URL, "type": "SSE"}, Transport.SSE, True),
        ({"url": "https://example.com/sse"}, Transport.SSE, True),
        ({"url": "https://example.com/sse/"}, Transport.SSE, True),
        ({"url": "https://example.com/sse?key=1"}, Transport.SSE, True),
        ({"url": "https://example.com/sse", "type": "http"}, Transport.HTTP, True),
        ({"url": "https://example.com/assess"}, Transport.HTTP, False),
        ({"httpUrl": "https://example.com/mcp"}, Transport.HTTP, True),
        ({"serverUrl": "https://example.com/mcp"}, Transport.HTTP, False),
        ({"transportType": "sse", **URL}, Transport.SSE, True),
        ({**URL, "alwaysAllow": [], "autoApprove": [], "description": "x", "envFile": ".env"}, Transport.HTTP, False),
    ],
)
def test_the_transport_is_what_the_entry_says_or_what_its_url_suggests(
    entry: dict[str, Any], transport: Transport, certain: bool
) -> None:
    found = one(entry)
    assert (found.transport, found.transport_is_certain, found.problem) == (transport, certain, "")


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({}, 'needs a "command" or a "url"'),
        ({"args": ["x"]}, 'needs a "command" or a "url"'),
        ({"comand": "npx"}, '"comand" is not a key of a server; did you mean "command"?'),
        ({"command": "npx", "arg": ["-y"]}, '"arg" is not a key of a server; did you mean "args"?'),
        ({"URL": "https://example.com/mcp"}, '"URL" is not a key of a server; did you mean "url"?'),
        ({"type": "stdio"}, '"command" is missing or empty'),
        ({"command": ""}, '"command" is missing or empty'),
        ({"command": ["npx", "x"]}, '"command" must be a string'),
        ({"type": "http"}, '"url" must start with http:// or https://'),
        ({"url": "example.com"}, '"url" must start with http:// or https://'),
        ({"url": "ftp://example.com"}, '"url" must start with http:// or https://'),
        ({"url": 7}, '"url" must be a string'),
        ({"type": "websocket", **URL}, "unknown \"type\" 'websocket'"),
        ({"command": "x", "args": "-y"}, '"args" must be a list'),
        ({"command": "x", "args": [["-y"]]}, '"args" must be a list'),
        ({"command": "x", "env": ["A=1"]}, '"env" must be an object'),
        ({"command": "x", "env": {"A": {}}}, '"env" must be an object'),
        ({**URL, "headers": "A: 1"}, '"headers" must be an object'),
        ({"command": "x", "cwd": 7}, '"cwd" must be a string'),
        ({"command": "x", "tools": {"a": True}}, '"tools" must be a list of tool names'),
        ({"command": "x", "disabledTools": "a"}, '"disabledTools" must be a list of tool names'),
        ("npx", "the entry is not an object"),
        (None, "the entry is not an object"),
        ([], "the entry is not an object"),
    ],
)
def test_an_entry_that_cannot_be_used_says_why_and_leaves_the_others_alone(entry: Any, reason: str) -> None:
    found = one(entry)
    assert reason in found.problem
    assert str(FILE) in found.problem


def test_numbers_and_switches_in_arguments_and_variables_become_text() -> None:
    found = one({"command": "x", "args": ["--port", 80], "env": {"DEBUG": True, "LEVEL": 2, "NONE": None}})
    assert (found.args, found.env) == (("--port", "80"), {"DEBUG": "true", "LEVEL": "2"})


def test_a_relative_folder_is_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert one({"command": "x"}).cwd is None
    assert one({"command": "x", "cwd": "tools"}).cwd == "/home/ada/project/tools"
    assert one({"command": "x", "cwd": "../other"}).cwd == "/home/ada/other"
    assert one({"command": "x", "cwd": "/srv"}).cwd == "/srv"
    assert one({"command": "x", "cwd": "~/tools"}).cwd == str(tmp_path / "tools")


def test_no_file_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    with pytest.raises(ConfigurationError) as raised:
        read_server_file(path, {})
    assert f"No server file at {path}" in str(raised.value)
    for way_out in ("mcp-optimizer init", "--config", "--demo"):
        assert way_out in str(raised.value)


def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"Cannot read the server file {tmp_path}"):
        read_server_file(tmp_path, {})
    (tmp_path / "mcp.json").write_bytes(b"\xff\xfe{\x00}\x00")
    with pytest.raises(ConfigurationError, match=r"Cannot read the server file .*mcp\.json"):
        read_server_file(tmp_path / "mcp.json", {})


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ('{"mcpServers": {"it": {"command": "x" "args": []}}}', 1, 39),
        ('{\n  "mcpServers": {\n    "it": }\n}', 3, 11),
        ('{ // one\n  /* two\n     three */ "mcpServers": {\n    "it": /* four */ }\n}', 4, 22),
        ('{"mcpServers": {"it": {"args": ["a", /* x */ /* y */],, "command": "x"}}}', 1, 55),
        ("", 1, 1),
    ],
)
def test_invalid_json_is_an_error_at_the_place_the_user_sees_in_the_file(text: str, line: int, column: int) -> None:
    with pytest.raises(ConfigurationError, match=f"{FILE} is not valid JSON.*line {line}, column {column}"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "must contain a JSON object"),
        ('"x"', "must contain a JSON object"),
        ("{}", 'has no "mcpServers".*it has nothing'),
        ('{"mcpservers": {}}', "it has 'mcpservers'"),
        ('{"mcpServers": []}', "must be an object of servers by name"),
        ('{"servers": "x"}', "must be an object of servers by name"),
        ('{"mcp": {"servers": 1}}', "must be an object of servers by name"),
    ],
)
def test_a_file_without_servers_is_an_error_that_says_what_it_holds(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        parse(text)


def test_a_file_with_no_server_in_it_is_fine() -> None:
    assert parse('{"mcpServers": {}}') == []


SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x", "env": {"TOKEN": "${SECRET}"}},
        {"command": "x", "args": ["--token", "${SECRET}", "--key=${SECRET}"]},
        {**URL, "headers": {"Authorization": "Bearer ${SECRET}"}},
        {"url": "https://example.com/mcp?key=${SECRET}"},
        {"url": "https://ada:${SECRET}@example.com/mcp"},
        {"url": "https://example.com/mcp#${SECRET}"},
    ],
    ids=["env", "args", "headers", "query", "password", "fragment"],
)
def test_a_secret_never_shows_in_what_is_printed_of_a_server(entry: dict[str, Any]) -> None:
    found = one(entry, SECRET=SECRET)
    assert not found.problem
    assert SECRET not in repr(found)
    assert SECRET not in found.target
    assert SECRET not in found.fingerprint


@pytest.mark.parametrize(
    "entry",
    [{"command": ["x", "${SECRET}"]}, {"url": "ftp://ada:${SECRET}@x"}],
)
def test_a_secret_never_shows_in_what_is_wrong_with_an_entry(entry: dict[str, Any]) -> None:
    found = one(entry, SECRET=SECRET)
    assert found.problem
    assert SECRET not in found.problem


def test_the_target_is_what_is_started_or_reached() -> None:
    assert one(ENTRY).target == "npx"
    assert one({"url": "https://ada:pw@example.com:8080/mcp?key=1"}).target == "https://example.com:8080/mcp"
    assert one({"url": "https://example.com?mail=ada@example.org"}).target == "https://example.com"


def test_a_fingerprint_tells_servers_apart_but_not_their_secrets() -> None:
    def fingerprint(**changes: Any) -> str:
        return one({**ENTRY, **changes}).fingerprint

    assert fingerprint() == fingerprint(env={"LEVEL": "another value"}) == fingerprint(timeout=5)
    different: list[dict[str, Any]] = [
        {"command": "uvx"},
        {"args": ["-y", "other"]},
        {"env": {"OTHER": "1"}},
        {"env": {}},
    ]
    assert len({fingerprint(), *(fingerprint(**changes) for changes in different)}) == 5
    assert one(URL).fingerprint != one({"url": "https://example.org/mcp"}).fingerprint


@pytest.mark.parametrize(
    ("entry", "idle"),
    [
        ({"command": "npx", "args": ["-y", "@playwright/mcp@latest"]}, math.inf),
        ({"command": "docker", "args": ["run", "-i", "mcp/puppeteer:1.2"]}, math.inf),
        ({"command": "npx", "args": ["@playwright/mcp"], "idle_timeout": 5}, 5),
        ({"command": "npx", "args": ["@playwright/mcp-other"]}, None),
        ({"command": "/srv/node_modules/.bin/playwright-mcp", "args": ["--headless"]}, math.inf),
        ({"command": "C:\\mcp\\chrome-devtools-mcp.cmd"}, math.inf),
        ({"command": "node", "args": ["/srv/node_modules/@playwright/mcp/cli.js"]}, math.inf),
        ({"command": "uvx", "args": ["jupyter-mcp-server==0.14"]}, math.inf),
        ({"command": "uvx", "args": ["mcp-server-sqlite", "--db-path", ":memory:"]}, math.inf),
        ({"command": "docker", "args": ["run", "-i", "--rm", "mcp/memory"]}, math.inf),
        ({"command": "docker", "args": ["run", "-i", "-v", "notes:/app/dist", "mcp/memory"]}, None),
        ({"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]}, None),
        ({"command": "npx", "args": ["server-filesystem", "/home/ada/desktop-commander"]}, None),
        ({"command": "npx", "idle_timeout": "never"}, math.inf),
        ({"command": "npx"}, None),
    ],
)
def test_servers_that_are_known_to_hold_state_never_stop_unless_their_entry_says_so(
    entry: dict[str, Any], idle: float | None, tmp_path: Path
) -> None:
    [spec] = parse_server_file(json.dumps({"mcpServers": {"a": entry}}), tmp_path / "mcp.json", {})
    assert (spec.problem, spec.idle_timeout) == ("", idle)


@pytest.mark.parametrize(
    ("entry", "session"),
    [
        ({"command": "npx", "args": ["-y", "@playwright/mcp@latest"]}, "own"),
        ({"command": "npx", "args": ["-y", "@playwright/mcp@latest"], "session": "shared"}, "shared"),
        ({"command": "npx", "args": ["-y", "@playwright/mcp@latest"], "idle_timeout": 5}, "own"),
        ({"command": "npx"}, "shared"),
        ({"command": "npx", "session": "own"}, "own"),
        ({"url": "https://example.org/mcp", "session": "own"}, "own"),
    ],
)
def test_clients_share_no_server_that_is_known_to_hold_state_unless_its_entry_says_so(
    entry: dict[str, Any], session: str, tmp_path: Path
) -> None:
    [spec] = parse_server_file(json.dumps({"mcpServers": {"a": entry}}), tmp_path / "mcp.json", {})
    assert (spec.problem, spec.session) == ("", session)


@pytest.mark.parametrize("said", [0, True, "mine", "OWN", "", [], {}, ["own"], "own\u0000", "x" * 10_000])
def test_a_wrong_session_is_named_with_what_it_may_be(said: Any, tmp_path: Path) -> None:
    entries = {"a": {"command": "npx", "session": said}, "b": {"command": "npx"}}
    wrong, right = parse_server_file(json.dumps({"mcpServers": entries}), tmp_path / "mcp.json", {})
    assert """"session" must be 'own' or 'shared', not""" in wrong.problem
    assert (wrong.name, len(wrong.problem) < 500, right.problem) == ("a", True, "")


@pytest.mark.parametrize("said", [0, -1, True, "soon", [], {}, 1e13])
@pytest.mark.parametrize("key", ["idle_timeout", "start"])
def test_a_wrong_start_or_idle_timeout_is_named(key: str, said: Any, tmp_path: Path) -> None:
    entry = {"command": "npx", key: said}
    [spec] = parse_server_file(json.dumps({"mcpServers": {"a": entry}}), tmp_path / "mcp.json", {})
    assert f'"{key}" must be' in spec.problem
