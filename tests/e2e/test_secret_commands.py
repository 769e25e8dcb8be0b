"""`secret` as a user runs it: values come from a terminal or stdin, and are never shown."""

from __future__ import annotations

import asyncio
import os
import pty
from pathlib import Path

import pytest

from mcp_optimizer.identity.vault import new_key
from tests.e2e.running import COMMAND, WARM, Finished, command

VALUE = "planted-5d41402abc4b"


async def given(value: bytes, *arguments: object) -> Finished:
    """A command with this on its stdin."""
    process = await asyncio.create_subprocess_exec(
        *WARM,
        *map(str, arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(value)
    process.stdin.close()
    out, err = await asyncio.gather(process.stdout.read(), process.stderr.read())
    return Finished(await process.wait(), out.decode(), err.decode())


async def test_secrets_are_set_listed_and_deleted_without_starting_any_server(tmp_path: Path) -> None:
    database = tmp_path / "catalog.db"
    (tmp_path / "mcp.json").write_text("not JSON: no command below reads it")
    done = await given(f"{VALUE}\r\n".encode(), "secret", "set", "api", "--database", database)
    assert (done.code, done.err) == (0, "")
    assert "${secret:api}" in done.out
    listed = await command("secret", "list", "--json", "--database", database, cold=True)
    [secret] = listed.json["secrets"]
    assert (secret["name"], secret["set_at"][:2]) == ("api", "20")
    shown = await command("secret", "list", "--database", database, "--log-level", "debug")
    assert "api" in shown.out
    assert VALUE not in done.out + listed.out + shown.out + shown.err
    rotated = await command("secret", "rotate", "--database", database, "--log-level", "debug", cold=True)
    assert rotated.out == "Encrypted 1 secret with a new key.\n"
    assert (await command("secret", "delete", "api", "--database", database, cold=True)).code == 0
    missing = await command("secret", "delete", "api", "--database", database)
    assert (missing.code, missing.out) == (2, "")
    assert "no secret 'api'" in missing.err
    assert (await command("secret", "list", "--database", database)).out == "0 secrets\n"


async def test_a_value_is_typed_without_being_shown(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    arguments = ("secret", "set", "api", "--database", str(tmp_path / "catalog.db"))
    process = await asyncio.create_subprocess_exec(
        *COMMAND, *arguments, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    seen = await asyncio.to_thread(read_until, ours, b"not shown")
    os.write(ours, f"{VALUE}\n".encode())
    seen += await asyncio.to_thread(read_until, ours, b"Stored")
    assert await process.wait() == 0
    os.close(ours)
    assert b"Value of api" in seen
    assert VALUE.encode() not in seen


def read_until(terminal: int, text: bytes) -> bytes:
    seen = b""
    while text not in seen:
        seen += os.read(terminal, 1024)
    return seen


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"", "empty"),
        pytest.param(b"\n", "empty", marks=pytest.mark.full),
        (b"x" * 10_000_000, "at most 65,536 bytes"),
        pytest.param("é".encode() * 40_000, "at most 65,536 bytes", marks=pytest.mark.full),
        (b"\xff\xfe", "UTF-8"),
    ],
)
async def test_a_value_that_cannot_be_used_is_refused(tmp_path: Path, value: bytes, said: str) -> None:
    done = await given(value, "secret", "set", "api", "--database", tmp_path / "catalog.db")
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err


async def test_a_value_is_never_an_argument(tmp_path: Path) -> None:
    done = await command("secret", "set", "api", VALUE, "--database", tmp_path / "catalog.db")
    assert done.code == 2
    assert not (tmp_path / "catalog.db").exists()


async def test_without_a_database_the_reason_is_said(tmp_path: Path) -> None:
    for arguments in (["set", "a"], ["list"], ["delete", "a"], ["rotate"]):
        done = await command("secret", *arguments, "--database", "none")
        assert (done.code, done.out) == (2, "")
        assert "--database none stores nothing" in done.err


async def test_a_lost_key_is_an_error_that_says_which_secrets_it_locks(tmp_path: Path) -> None:
    database = tmp_path / "catalog.db"
    await given(VALUE.encode(), "secret", "set", "api", "--database", database)
    (tmp_path / "secrets-catalog.db.key").write_text(f"{new_key().text}\n")
    done = await command("secret", "rotate", "--database", database)
    assert (done.code, done.out) == (1, "")
    assert "No key opens the secret 'api'" in done.err
    assert (await command("secret", "list", "--json", "--database", database)).json["secrets"]
