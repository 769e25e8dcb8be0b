"""Callers who try to get at what is not theirs through scripts, and scripts whose worker or client goes away.

Over HTTP, with a gateway that takes only keys. Nothing of one reaches another, and everything is freed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client

from tests.hostile.script_gateway import Gateway, run, text
from tests.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning"),
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for the workers in /proc"),
]

SPELLINGS = (
    "read_attic",
    "attic.read_attic",
    "attic__read_attic",
    "attic/read_attic",
    "attic:read_attic",
    "READ_ATTIC",
    " read_attic ",
    "read_attic\u200b",
    "ｒead_attic",
    "vault__attic__read_attic",
    "vault.attic.read_attic",
    "vault.read_attic",
    "log_vault",
    "vault.log_vault",
    "vault__log_vault",
    "write_vault",
    "vault.delete_vault",
    "call_tool",
    "run_script",
    "read_result",
    "find_tool",
    "peek",
    "scripts.peek",
    "scripts__peek",
    "",
    ".",
    "__",
    "*",
    "vault.*",
    "vault.__class__",
)
TRIES = f"""
names = {json.dumps(SPELLINGS)}
for name in names:
    for way in (lambda: call(name), lambda: call(name, text='x'), lambda: parallel(name, [{{'text': 'x'}}])):
        try:
            way()
            print('CALLED', name)
        except (ToolError, ValueError):
            pass
for one in find('read write delete log the note of attic'):
    if 'attic' in str(one):
        print('FOUND', one)
print('tried')
"""
ASKS = "vault.ask_vault(text='of ada')\nprint('answered')"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    made = Gateway(tmp_path_factory.mktemp("callers"))
    asyncio.run(until(made.answers, timeout=30))
    yield made
    made.end()


async def test_no_spelling_reaches_a_tool_that_is_denied_filtered_or_not_permitted(gateway: Gateway) -> None:
    async with gateway.client("bob") as bob:
        assert text(await run(bob, TRIES)) == "tried"
        assert "CALLED read_vault" in text(await run(bob, "vault.read_vault(text='x')\nprint('CALLED read_vault')"))
        for named in SPELLINGS:
            asked = await run(bob, f"call({named!r}, text='x')", may_change=[named])
            assert asked.is_error, named
        for given in (["*"], ["vault.*"], ["vault"], [""], ["write_vault", "*"]):
            assert (await run(bob, "vault.write_vault(text='x')", may_change=given)).is_error, given


async def test_a_filtered_connection_filters_scripts(gateway: Gateway) -> None:
    async with gateway.client("ada", "?servers=vault") as ada:
        said = text(await run(ada, TRIES))
        assert "attic" not in said
        assert "peek" not in said
        assert (await run(ada, "attic.read_attic(text='x')")).is_error


async def test_a_changing_tool_needs_its_own_name_in_may_change(gateway: Gateway) -> None:
    async with gateway.client("ada") as ada:
        for given in ([], ["vault.touch_vault"], ["read_vault"]):
            assert (await run(ada, "call('write' + '_vault', text='x')", may_change=given)).is_error, given
        assert not (await run(ada, "call('write' + '_vault', text='x')", may_change=["vault.write_vault"])).is_error


async def test_a_stored_script_gives_nobody_what_they_may_not_do(gateway: Gateway) -> None:
    async with gateway.client("ada") as ada, gateway.client("bob") as bob, gateway.client("carl") as carl:
        asked = {"tool_name": "scripts__peek", "parameters": {"what": "x"}}
        assert not (await ada.call_tool("call_tool", asked)).is_error
        for client in (bob, carl):
            told = await client.call_tool("call_tool", asked)
            assert told.is_error
            assert '"x"' not in text(told)
        assert "peek" not in text(await bob.call_tool("list_tools", {}))


@pytest.mark.parametrize(
    "what",
    [
        "\ud800",
        "\u2028\x00\x85\x1b",
        "'''\"\"\"\\",
        10**400,
        float("inf"),
        float("nan"),
        [[[]]] * 1_000,
        {"a": {}},
        None,
    ],
    ids=range(9),
)
async def test_no_argument_of_a_stored_script_breaks_its_gateway(gateway: Gateway, what: Any) -> None:
    said = await gateway.post("ada", "call_tool", {"tool_name": "scripts__peek", "parameters": {"what": what}})
    assert "nternal" not in said, said[:500]
    assert "Traceback" not in said
    assert '"2"' in await gateway.post("ada", "run_script", {"script": "1 + 1"})


async def test_deeply_nested_and_huge_arguments_of_a_stored_script_are_refused_or_run(gateway: Gateway) -> None:
    deep: Any = []
    for _ in range(150):
        deep = [deep]
    for what in (deep, "x" * 2_000_000, list(range(50_000))):
        said = await gateway.post("ada", "call_tool", {"tool_name": "scripts__peek", "parameters": {"what": what}})
        assert "nternal" not in said, said[:500]
    assert '"2"' in await gateway.post("ada", "run_script", {"script": "1 + 1"})


async def test_the_rest_of_a_result_is_for_the_caller_of_its_script(gateway: Gateway) -> None:
    async with gateway.client("ada") as ada, gateway.client("bob") as bob:
        cut = await run(ada, "[{'n': n, 'secret': f'of ada {n}'} for n in range(5_000)]")
        found = re.search(r'"?result_id"?[:=] ?\\?"?([\w-]+)', text(cut) + json.dumps(cut.meta or {}))
        assert found, text(cut)[-500:]
        own = await ada.call_tool("read_result", {"result_id": found[1]})
        assert "of ada" in text(own)
        others = await bob.call_tool("read_result", {"result_id": found[1]})
        assert others.is_error
        assert "of ada" not in text(others)


async def test_only_its_caller_answers_the_question_of_a_script_and_only_once(gateway: Gateway) -> None:
    may = {"script": ASKS, "may_change": ["ask_vault"]}
    given: Any = {"q1": types.ElicitResult(action="accept", content={})}

    async def answer(client: Client, state: str, arguments: dict[str, Any]) -> Any:
        return await client.session.call_tool(
            "run_script", arguments, input_responses=given, request_state=state, allow_input_required=True
        )

    async with gateway.client("ada") as ada, gateway.client("carl") as carl:
        asked = await ada.session.call_tool("run_script", may, allow_input_required=True)
        assert isinstance(asked, types.InputRequiredResult)
        state = asked.request_state
        assert state is not None
        for client, given_state in (
            (carl, state),
            (ada, state[:-1]),
            (ada, state[1:]),
            (ada, state.upper()),
            (ada, f"{state}.{state}"),
            (ada, state.replace(".", "\0")),
            (ada, f"{state} "),
        ):
            told = await answer(client, given_state, may)
            assert isinstance(told, types.CallToolResult)
            assert told.is_error
        assert (await answer(ada, state, {**may, "script": f"{ASKS}\nvault.delete_vault()"})).is_error
        assert (await answer(ada, state, {**may, "may_change": ["ask_vault", "delete_vault"]})).is_error
        assert text(await answer(ada, state, may)) == "answered"
        assert (await answer(ada, state, may)).is_error


async def test_a_hundred_clients_run_scripts_at_once(gateway: Gateway) -> None:
    script = {"script": "vault.read_vault(text='x')\nprint('done')"}
    who = ["ada", "bob", "carl"]
    said = await asyncio.gather(*(gateway.post(who[number % 3], "run_script", script) for number in range(100)))
    assert all("done" in one or "Too many scripts" in one for one in said)
    assert sum("done" in one for one in said) >= 50
    assert len(gateway.workers()) <= 6
    assert '"2"' in await gateway.post("bob", "run_script", {"script": "1 + 1"})


async def killed_in_a_script(gateway: Gateway) -> str:
    """What is said about a script whose worker is killed while it sleeps after a call."""
    audit = Path(gateway.env["MCP_OPTIMIZER_DATABASE"]).with_name("audit.jsonl")
    # No other test calls this tool, so that none of its entries is of another script.
    before = audit.read_text().count('"read_vault_book"')
    script = {"script": "import asyncio\nvault.read_vault_book()\nawait asyncio.sleep(6)\nprint('slept')"}
    running = asyncio.create_task(gateway.post("ada", "run_script", script))
    await until(lambda: audit.read_text().count('"read_vault_book"') > before, timeout=30)
    for pid in gateway.workers():
        os.kill(pid, signal.SIGKILL)
    return await asyncio.wait_for(running, 25)


async def test_a_worker_that_the_system_kills_ends_one_script(gateway: Gateway) -> None:
    for _ in range(2):
        said = await killed_in_a_script(gateway)
        assert "slept" not in said
        assert "1 call was made" in said, said
        # Workers that wait for work were killed too.
        assert '"2"' in await gateway.post("bob", "run_script", {"script": "1 + 1"})


async def test_scripts_whose_client_is_gone_leave_their_workers_to_others(gateway: Gateway) -> None:
    sleeping = {"script": "import asyncio\nawait asyncio.sleep(50)"}
    calling = {"script": "vault.ask_vault(text='x')", "may_change": ["ask_vault"]}
    for script in (sleeping, calling):
        gone = [gateway.post("ada", "run_script", script, timeout=1) for _ in range(12)]
        await asyncio.gather(*gone, return_exceptions=True)
        async with asyncio.timeout(9):
            assert '"2"' in await gateway.post("ada", "run_script", {"script": "1 + 1"})
    assert len(gateway.workers()) <= 6


async def test_no_worker_outlives_its_gateway(gateway: Gateway) -> None:
    assert '"2"' in await gateway.post("ada", "run_script", {"script": "1 + 1"})
    workers = gateway.workers()
    assert workers
    running = asyncio.create_task(gateway.post("ada", "run_script", {"script": "while True: pass"}))
    await asyncio.wait({running}, timeout=0.5)
    gateway.process.kill()
    await asyncio.to_thread(gateway.process.wait, 20)
    await asyncio.gather(running, return_exceptions=True)
    await until(lambda: _none_left(workers), timeout=20)


async def _none_left(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)
