"""Tasks through the gateway: for clients that ask for them, and awaited in the call for all others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from mcp_optimizer.domain.caller import Risk
from tests.conftest import WriteServers
from tests.e2e.extended import TASKS, called, declaring, entry, extended_gateway, text_of, until_ready
from tests.e2e.made_keys import made_key
from tests.e2e.raw_clients import LEGACY, MODERN, HttpClient, http_client, message, stdio_client
from tests.e2e.running import gateway_at
from tests.waiting import until

PROGRESS = "notifications/progress"
WITH = declaring(TASKS)
ASKED = declaring(TASKS, elicitation={"form": {}})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    config = tmp_path_factory.mktemp("tasks") / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"one": entry("one"), "two": entry("two")}}))
    async with extended_gateway(config, "--database", "none", "--scripts", "write") as at:
        yield at


async def made(client: HttpClient, tool: str, params: dict[str, Any] | None = None, **arguments: Any) -> str:
    """The id of a task that a call of the server `one` became."""
    given = {"tool_name": f"one__{tool}", "parameters": arguments}
    result = await called(client, "call_tool", params or WITH, **given)
    assert result["resultType"] == "task", result
    return str(result["taskId"])


async def got(client: HttpClient, task: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    answer = await client.ask("tasks/get", {"taskId": task, **(params or WITH)})
    found: dict[str, Any] = answer.get("result") or answer
    return found


async def ended(client: HttpClient, task: str, status: str = "completed") -> dict[str, Any]:
    return await in_status(client, task, {"completed", "failed", "cancelled"}, status)


async def in_status(client: HttpClient, task: str, awaited: set[str], status: str) -> dict[str, Any]:
    async def is_there() -> bool:
        return (await got(client, task))["status"] in awaited

    await until(is_there, timeout=30)
    found = await got(client, task)
    assert found["status"] == status, found
    return found


async def test_a_client_with_tasks_gets_one_under_an_id_of_the_gateway_and_asks_for_its_result(address: str) -> None:
    async with http_client(address, MODERN) as client:
        result = await called(
            client, "call_tool", WITH, tool_name="one__slow_compute", parameters={"seconds": 0.2, "label": "x"}
        )
        assert result["resultType"] == "task"
        assert {"status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"} <= result.keys()
        first = await got(client, result["taskId"])
        assert first["resultType"] == "complete"
        assert first["taskId"] == result["taskId"]
        done = await ended(client, result["taskId"])
        assert text_of(done["result"]) == "computed x"
        assert done["result"]["_meta"]["mcp-optimizer/tool"]["server"] == "one"
        assert "tokens" in done["result"]["_meta"]


@pytest.mark.parametrize("era", [MODERN, LEGACY])
async def test_a_client_without_tasks_waits_in_its_call(address: str, era: str) -> None:
    async with http_client(address, era) as client:
        result = await called(client, "call_tool", tool_name="one__slow_compute", parameters={"seconds": 0.2})
        assert text_of(result) == "computed "
        failed = await called(client, "call_tool", tool_name="one__failing_job", parameters={})
        assert failed["isError"]
        assert text_of(failed) == "the job failed"
        broken = await called(client, "call_tool", tool_name="one__protocol_error_job", parameters={})
        assert "the job broke" in json.dumps(broken)


async def test_a_task_that_fails_or_breaks_says_which(address: str) -> None:
    async with http_client(address, MODERN) as client:
        failed = await ended(client, await made(client, "failing_job"))
        assert failed["result"]["isError"]
        broken = await ended(client, await made(client, "protocol_error_job"), "failed")
        assert broken["error"]["message"] == "the job broke"
        assert "result" not in broken


async def test_a_task_is_cancelled_at_its_server(address: str) -> None:
    async with http_client(address, MODERN) as client:
        task = await made(client, "endless")
        cancelled = await client.ask("tasks/cancel", {"taskId": task, **WITH})
        assert cancelled["result"]["resultType"] == "complete"
        await ended(client, task, "cancelled")


async def test_a_tasks_questions_name_their_server_and_are_answered(address: str) -> None:
    async with http_client(address, MODERN) as client:
        task = await made(client, "confirm_delete", ASKED)
        found = await in_status(client, task, {"input_required"}, "input_required")
        message = found["inputRequests"]["sure"]["params"]["message"]
        assert message == 'The server "one" asks: Delete it?'
        answers = {"sure": {"action": "accept", "content": {"confirm": "yes"}}}
        await client.ask("tasks/update", {"taskId": task, "inputResponses": answers, **ASKED})
        assert text_of((await ended(client, task))["result"]) == "deleted: accept"


async def test_a_client_without_tasks_that_can_be_asked_is_asked_by_a_result(address: str) -> None:
    async with http_client(address, MODERN) as client:
        can = declaring(elicitation={"form": {}})
        call = {"name": "call_tool", "arguments": {"tool_name": "one__confirm_delete", "parameters": {}}}
        asking = (await client.ask("tools/call", {**call, **can}))["result"]
        assert asking["resultType"] == "input_required"
        [key] = asking["inputRequests"]
        answers = {key: {"action": "accept", "content": {"confirm": "yes"}}}
        again = {**call, **can, "inputResponses": answers, "requestState": asking["requestState"]}
        result = (await client.ask("tools/call", again))["result"]
        assert text_of(result) == "deleted: accept"


async def test_scripts_wait_for_tasks(address: str) -> None:
    async with http_client(address, MODERN) as client:
        script = 'return one.slow_compute(seconds=0.1, label="s")'
        result = await called(client, "run_script", WITH, script=script, may_change=["one__slow_compute"])
        assert "computed s" in text_of(result), result


async def test_ids_that_the_gateway_did_not_give_to_this_caller_are_unknown(address: str) -> None:
    async with http_client(address, MODERN) as client:
        task = await made(client, "endless")
        name, own, signature = task.split(".")
        forged = [
            "", "x", "a.b.c", "task..", f"{name}.{own}.", f"{name}.{own}x.{signature}",
            f"{name}.{own}.{signature[:-2]}aa", f"{task}.more", "task." + "x" * 10_000 + ".y", f"{name}.{own}.é",
        ]  # fmt: skip
        for one in forged:
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                body = {"taskId": one, "inputResponses": {}, **WITH}
                answer = await client.ask(method, body)
                assert answer["error"]["code"] in (-32602, -32020), (one, answer)
        for params in ({"taskId": 7}, {"taskId": None}, {"taskId": [task]}, {}):
            assert (await client.ask("tasks/get", {**params, **WITH}))["error"]["code"] in (-32602, -32020)
        await client.ask("tasks/cancel", {"taskId": task, **WITH})


async def test_the_extension_must_be_declared_and_the_header_must_name_the_task(address: str) -> None:
    async with http_client(address, MODERN) as client:
        task = await made(client, "slow_compute", seconds=0)
        undeclared = (await client.ask("tasks/get", {"taskId": task}))["error"]
        assert undeclared["code"] == -32021
        assert undeclared["data"]["requiredCapabilities"]["extensions"] == {TASKS: {}}
        listening = {"notifications": {"taskIds": [task]}}
        assert (await client.ask("subscriptions/listen", listening))["error"]["code"] == -32021
        body = message("tasks/get", {"taskId": task, **WITH}, 1, MODERN)
        wrong = await client.post(body, **{"Mcp-Name": "another"})
        assert wrong.status_code == 400
        assert wrong.json()["error"]["code"] == -32020
        assert (await client.ask("tasks/result", {"taskId": task, **WITH}))["error"]["code"] == -32601


async def test_a_client_that_listens_is_told_of_its_task_and_of_no_other(address: str) -> None:
    async with http_client(address, MODERN) as client:
        task = await made(client, "slow_compute", seconds=0.5)
        told: list[dict[str, Any]] = []
        body = message("subscriptions/listen", {"notifications": {"taskIds": [task, "task.x.y"]}, **WITH}, 9, MODERN)
        headers = {**client.headers, "Mcp-Method": "subscriptions/listen"}
        async with (
            asyncio.timeout(30),
            client.http.stream("POST", client.address, json=body, headers=headers) as response,
        ):
            async for line in response.aiter_lines():
                if line.startswith("data: ") and len(line) > 6:
                    told.append(json.loads(line[6:]))
                    if told[-1].get("params", {}).get("status") == "completed":
                        break
        assert told[0]["method"] == "notifications/subscriptions/acknowledged"
        assert told[0]["params"]["notifications"]["taskIds"] == [task]
        assert {one["method"] for one in told[1:]} == {"notifications/tasks"}
        assert all(one["params"]["taskId"] == task for one in told[1:])
        assert text_of(told[-1]["params"]["result"]) == "computed "


async def test_a_client_that_waits_is_told_of_progress_and_cancels_the_task_with_its_call(
    write_servers: WriteServers, tmp_path: Path
) -> None:
    state = tmp_path / "tasks.json"
    config, options = write_servers({"one": entry("one", "--state", str(state))}), ("--encoder", "none")
    async with stdio_client(config, *options, "--database", "none", era=MODERN) as client:
        call = {"name": "call_tool", "arguments": {"tool_name": "endless", "parameters": {}}}
        await client.send(message("tools/call", {**call, "_meta": {"progressToken": "p"}}, 5, MODERN))
        assert client.process.stdout is not None
        async with asyncio.timeout(30):
            while (line := json.loads(await client.process.stdout.readline())).get("method") != PROGRESS:
                pass
        assert line["params"]["progressToken"] == "p"
        assert line["params"]["message"].startswith("step ")
        await client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}})

        def is_cancelled() -> bool:
            [task] = json.loads(state.read_text()).values()
            return bool(task["status"] == "cancelled")

        await until(is_cancelled)


async def test_a_task_survives_a_restart_of_the_gateway(write_servers: WriteServers, tmp_path: Path) -> None:
    config = write_servers({"one": entry("one", "--state", str(tmp_path / "tasks.json"))})
    database = ("--database", tmp_path / "catalog.db")
    async with extended_gateway(config, *database) as at, http_client(at, MODERN) as client:
        given = {"tool_name": "slow_compute", "parameters": {"seconds": 0}}
        task = (await called(client, "call_tool", WITH, **given))["taskId"]
        await ended(client, task)
    async with extended_gateway(config, *database) as at, http_client(at, MODERN) as client:
        assert text_of((await ended(client, task))["result"]) == "computed "


async def test_beyond_the_number_of_tasks_that_a_caller_may_have_calls_wait(
    write_servers: WriteServers, tmp_path: Path
) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("[limits]\ntasks = 3\n")
    config = write_servers({"one": entry("one")})
    async with (
        extended_gateway(config, "--database", "none", "--settings", settings) as at,
        http_client(at, MODERN) as client,
    ):
        given = {"tool_name": "slow_compute", "parameters": {"seconds": 0, "label": "n"}}
        results = [await called(client, "call_tool", WITH, **given) for _ in range(6)]
        assert [one["resultType"] for one in results] == ["task"] * 3 + ["complete"] * 3
        assert text_of(results[-1]) == "computed n"


async def test_a_task_belongs_to_the_key_that_made_it(write_servers: WriteServers) -> None:
    ada, ben = await made_key("ada", Risk.DESTRUCTIVE), await made_key("ben", Risk.DESTRUCTIVE)
    async with (
        gateway_at(write_servers({"one": entry("one")}), "--encoder", "none", "--require-auth") as at,
        http_client(at, MODERN) as client,
    ):
        await until_ready(at)
        client.headers["Authorization"] = f"Bearer {ada}"
        task = (await called(client, "call_tool", WITH, tool_name="slow_compute", parameters={}))["taskId"]
        assert (await ended(client, task))["status"] == "completed"
        client.headers["Authorization"] = f"Bearer {ben}"
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            answer = await client.ask(method, {"taskId": task, "inputResponses": {}, **WITH})
            assert answer["error"]["code"] == -32602, answer
        client.headers["Authorization"] = f"Bearer {ada}"
        assert (await got(client, task))["status"] == "completed"


async def test_transparent_mode_passes_tasks_and_their_results_unchanged(write_servers: WriteServers) -> None:
    config = write_servers({"one": entry("one")})
    async with (
        extended_gateway(config, "--database", "none", "--mode", "transparent") as at,
        http_client(at, MODERN) as client,
    ):
        result = await called(client, "slow_compute", WITH, seconds=0, label="t")
        assert result["resultType"] == "task"
        done = await ended(client, result["taskId"])
        assert text_of(done["result"]) == "computed t"
        waited = await called(client, "failing_job")
        assert text_of(waited) == "the job failed"
