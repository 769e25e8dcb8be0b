"""Arguments of `call` from the command line, files and stdin; and what of a result goes to stdout."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from tests.conftest import WriteServers, plain_server
from tests.e2e.running import WARM, command


@pytest.fixture
def config(write_servers: WriteServers) -> Path:
    return write_servers({"one": plain_server("one")})


async def with_stdin(given: bytes, *arguments: object) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *WARM,
        *map(str, arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(os.environ),
    )
    out, err = await asyncio.wait_for(process.communicate(given), 60)
    return process.returncode or 0, out.decode(), err.decode()


async def test_arguments_come_from_an_option_a_file_or_stdin(config: Path, tmp_path: Path) -> None:
    given = {"value": "schön"}
    path = tmp_path / "given.json"
    path.write_text(json.dumps(given))
    for how in (json.dumps(given), f"@{path}"):
        done = await command("call", "echo", "--args", how, "--config", config)
        assert json.loads(done.out)["arguments"] == given
    code, out, _ = await with_stdin(json.dumps(given).encode(), "call", "echo", "--args", "-", "--config", config)
    assert (code, json.loads(out)["arguments"]) == (0, given)


async def test_single_arguments_have_the_types_of_the_schema(config: Path) -> None:
    done = await command("call", "sleep", "--arg", "seconds=0", "--config", config)
    assert json.loads(done.out)["arguments"] == {"seconds": 0}
    both = await command("call", "echo", '{"value": "a"}', "--arg", "value=b=c", "--config", config)
    assert json.loads(both.out)["arguments"] == {"value": "b=c"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{}", "--args", "{}"], "given twice"),
        (["--args", "@absent.json"], "Cannot read the arguments from absent.json"),
        (["--arg", "value"], "--arg takes key=value"),
        (["[1]", "--arg", "value=1"], "not a JSON object"),
        (["{", "--arg", "value=1"], "not JSON"),
    ],
)
async def test_arguments_that_cannot_be_read_exit_with_2(config: Path, arguments: list[str], message: str) -> None:
    done = await command("call", "echo", *arguments, "--config", config)
    assert done.code == 2
    assert message in done.err


async def test_stdin_is_not_read_without_end(config: Path) -> None:
    code, _, err = await with_stdin(b"x" * 10_000_001, "call", "echo", "--args", "-", "--config", config)
    assert code == 2
    assert "longer than 10,000,000 bytes" in err


async def test_what_the_gateway_says_about_a_result_goes_to_stderr(config: Path) -> None:
    value = " ".join(f"word{number}" for number in range(2_000))
    given = ("call", "echo", json.dumps({"value": value}), "--config", config, "--max-tokens", "300")
    done = await command(*given)
    assert "[Cut:" not in done.out
    assert "[Cut:" in done.err
    whole = (await command(*given, "--json")).json
    assert "[Cut:" in whole["content"][-1]["text"]
    page = await command("read", whole["_meta"]["mcp-optimizer/result"]["resultId"], "--config", config)
    assert page.out.startswith("{")
    assert "of" in page.err
    assert "[" not in page.out


async def test_a_selection_that_matches_nothing_prints_nothing(config: Path) -> None:
    done = await command("call", "facts", "--select", "absent", "--config", config)
    assert (done.code, "select matched nothing" in done.out) == (0, False)
    assert "select matched nothing" in done.err
