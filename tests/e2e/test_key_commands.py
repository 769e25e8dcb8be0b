"""`key` as a user runs it: a key is shown once, and never again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import WriteServers, plain_server
from tests.e2e.made_keys import made_key
from tests.e2e.running import command


async def test_a_key_is_made_shown_once_listed_and_revoked_without_starting_a_server(tmp_path: Path) -> None:
    database = tmp_path / "catalog.db"
    made = await command("key", "create", "--name", "ci", "--risk", "write", "--database", database)
    assert (made.code, made.err) == (0, "")
    key = made.out.splitlines()[0]
    assert key.startswith("mcpo_")
    assert f"Authorization: Bearer {key}" in made.out
    entry = json.loads(made.out[made.out.index("{\n") :])
    assert entry["mcpServers"]["mcp-optimizer"]["headers"] == {"Authorization": f"Bearer {key}"}
    listed = await command("key", "list", "--json", "--database", database, "--log-level", "debug")
    [one] = listed.json["keys"]
    assert (one["name"], one["state"], one["risk"], one["role"], one["servers"]) == (
        "ci",
        "in use",
        "write",
        "none",
        None,
    )
    shown = await command("key", "list", "--database", database)
    assert "1 key in use" in shown.out
    assert key.split("_", 2)[2] not in listed.out + listed.err + shown.out
    assert (await command("key", "revoke", "ci", "--database", database)).code == 0
    again = await command("key", "revoke", "ci", "--database", database)
    assert (again.code, "revoked already" in again.err) == (2, True)
    assert (await command("key", "create", "--name", "ci", "--database", database, "--json")).json["key"] != key
    audited = await command("audit", "--json", "--database", database)
    acts = [json.loads(line) for line in audited.out.splitlines()]
    assert [(act["method"], act["tool"]) for act in acts] == [
        ("key/create", "ci"),
        ("key/revoke", "ci"),
        ("key/create", "ci"),
    ]
    assert key.split("_", 2)[2] not in audited.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", "--name", "ci", "--expires", "soon"], "12h, 90d, 8w"),
        (["create", "--name", "ci", "--expires", "2020-01-31"], "not in the future"),
        (["create", "--name", "a\x1b[31mb"], "printable"),
        (["create", "--name", "ci", "--servers", ","], "Leave it out"),
        (["create", "--name", "ci", "--profile", "huge"], "minimal, standard, full"),
        (["create", "--name", "ci", "--risk", "all"], "destructive"),
        (["create", "--name", "ci", "--database", "none"], "--database none"),
        (["create"], "--name"),
        (["revoke", "nobody"], "There is no key 'nobody'. Keys in use: taken."),
        (["create", "--name", "taken"], "There is a key 'taken' already"),
        (["create", "--name", "ci", "--holder", "ada lovelace"], "without spaces"),
        (["create", "--name", "ci", "--holder", "a" * 10_000], "at most 128 characters, not 10,000"),
        (["create", "--name", "ci", "--holder", "ada\x1b[31m"], "printable"),
        (["rotate", "nobody"], "There is no key 'nobody'"),
        (["rotate", "taken", "--overlap", "-1h"], "--overlap '-1h' is not a length of time"),
        (["rotate", "taken", "--overlap", "91d"], "over 90 days"),
        (["rotate", "taken", "--overlap", "soon"], "not a length of time"),
        (["rotate", "taken", "--expires", "soon"], "12h, 90d, 8w"),
        (["revoke"], "Name a key, or a person with --holder"),
        (["revoke", "taken", "--holder", "ada"], "one of the two"),
        (["revoke", "--holder", "ada"], "'ada' has no key in use. Holders with keys in use: none."),
    ],
)
async def test_a_wrong_request_says_what_to_do(arguments: list[str], message: str) -> None:
    await made_key("taken")
    done = await command("key", *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in " ".join(done.err.replace("│", " ").split())
    assert "\x1b[31m" not in done.err


async def test_a_server_that_does_not_exist_yet_is_only_warned_about(write_servers: WriteServers) -> None:
    config = write_servers({"one": plain_server("one")})
    made = await command("key", "create", "--name", "ci", "--servers", "one, two", "--config", config, "--json")
    assert made.json["servers"] == ["one", "two"]
    assert "no server is called two. Servers: one." in made.err


async def test_keys_of_a_person_are_made_replaced_and_revoked_together(tmp_path: Path) -> None:
    where = ("--database", tmp_path / "catalog.db")
    made = await command("key", "create", "--name", "laptop", "--holder", "ada@example.com", *where)
    assert "logins and limits of the other keys" not in made.out
    made = await command("key", "create", "--name", "phone", "--holder", "ada@example.com", *where)
    assert "It has the logins and limits of the other keys of ada@example.com: laptop." in made.out
    rotated = await command("key", "rotate", "laptop", "--overlap", "1h", *where)
    assert (rotated.code, rotated.err) == (0, "")
    assert rotated.out.startswith("mcpo_")
    assert "The old key is valid until" in rotated.out
    listed = (await command("key", "list", "--json", *where)).json["keys"]
    assert [(one["name"], one["holder"], one["state"]) for one in listed] == [
        ("laptop", "ada@example.com", "in use"),
        ("laptop", "ada@example.com", "in use"),
        ("phone", "ada@example.com", "in use"),
    ]
    assert [one["replaced_at"] is None for one in listed] == [False, True, True]
    assert "replaced" in (await command("key", "list", *where)).out
    tried = await command("policy", "test", "anything", "--caller", "phone", *where)
    assert "There is no caller" not in tried.err
    gone = await command("key", "revoke", "--holder", "ada@example.com", *where)
    assert gone.out.startswith("Revoked: laptop, phone.")
    assert {one["state"] for one in (await command("key", "list", "--json", *where)).json["keys"]} == {"revoked"}
    refused = await command("key", "rotate", "laptop", *where)
    assert "was revoked" in refused.err
    acts = [json.loads(line) for line in (await command("audit", "--json", *where)).out.splitlines()]
    assert [(act["method"], act["tool"]) for act in acts] == [
        ("key/create", "laptop of holder:ada@example.com"),
        ("key/create", "phone of holder:ada@example.com"),
        ("key/rotate", "laptop of holder:ada@example.com"),
        ("key/revoke", "laptop of holder:ada@example.com"),
        ("key/revoke", "phone of holder:ada@example.com"),
    ]
    assert rotated.out.splitlines()[0].split("_", 2)[2] not in json.dumps(acts)
