"""A kept result as an argument: a large result goes from one tool to another without passing through the model."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from mcp_optimizer import Optimizer
from mcp_optimizer.domain.caller import Caller, Principal
from mcp_optimizer.errors import InvalidArguments, InvalidRequest
from tests.conftest import WriteServers, plain_server

pytestmark = pytest.mark.slow

ROWS = [{"id": number, "name": f"row {number}"} for number in range(4_000)]


def texts(result: dict[str, Any]) -> list[str]:
    return [block["text"] for block in result["content"]]


async def test_a_result_or_a_part_of_it_is_an_argument_of_the_next_call(write_servers: WriteServers) -> None:
    config = write_servers({"one": plain_server("one")})
    options: Any = {"database": "none", "encoder": "none"}
    async with Optimizer.from_config(config, **options) as optimizer:
        await optimizer.wait_for_servers(20)
        cut = texts(await optimizer.call("echo", {"value": json.dumps(ROWS)}))
        [result_id] = set(re.findall(r"r[0-9a-f]{20}", cut[-1]))
        assert '{"$result": result_id}' in cut[-1]

        async def passed_on(reference: Any) -> str:
            return texts(await optimizer.call("echo", {"value": reference}, select="arguments.value"))[0]

        # The parameter is a text, so it gets the JSON of a result that is none.
        whole = await optimizer.call("echo", {"value": {"$result": result_id}}, select="length(arguments.value)")
        assert int(texts(whole)[0]) > 100_000
        part = {"$result": result_id, "select": "tool"}
        assert await passed_on(part) == '"echo"'
        # In a list of calls, too; and what is put in is checked like any argument.
        both = await optimizer.call("echo", [{"value": part}, {"value": "b"}], select="arguments.value")
        assert texts(both)[0] == '["echo","b"]'
        with pytest.raises(InvalidArguments, match="seconds"):
            await optimizer.call("sleep", {"seconds": part})
        # Any other object is the tool's own, and a reference inside a result means nothing.
        own = json.dumps({"$result": "mine"})
        assert json.loads(json.loads(await passed_on(own))) == {"$result": "mine"}

        for reference, why in (
            ({"$result": "r" + "0" * 20}, "No result"),
            ({"$result": result_id, "select": "nothing"}, "no key nothing"),
            ({"$result": result_id, "select": "["}, "not a JMESPath expression"),
        ):
            with pytest.raises(InvalidRequest, match=why):
                await optimizer.call("echo", {"value": reference})
        other = Caller(principal=Principal("somebody else", "somebody else"))
        with pytest.raises(InvalidRequest, match="No result"):
            await optimizer.gateway.call("echo", {"value": {"$result": result_id}}, caller=other)


async def test_a_list_of_a_result_is_the_arguments_of_many_calls(write_servers: WriteServers) -> None:
    config = write_servers({"one": plain_server("one")})
    options: Any = {"database": "none", "encoder": "none"}
    async with Optimizer.from_config(config, **options) as optimizer:
        await optimizer.wait_for_servers(20)

        async def kept(*values: str) -> str:
            """The id of a result that holds arguments of echo."""
            given = [{"value": value} for value in values]
            noted = texts(await optimizer.call("echo", given, select="[].tool"))
            return str(re.findall(r"r[0-9a-f]{20}", noted[-1])[0])

        rows = [f"{number} {'x' * 1_000}" for number in range(3)]
        named = {"$result": await kept(*rows), "select": "rows[*][2]"}
        for reference in (named, json.dumps(named)):
            many = await optimizer.call("echo", reference, select="[].arguments.value")
            assert json.loads(texts(many)[0]) == rows

        no_objects = named | {"select": "rows[*][0]"}
        one_object = named | {"select": "rows[0][2]"}
        # Whoever wrote the result must not choose which other results the calls get.
        hostile = await kept(json.dumps(named), *rows)
        for reference, why in (
            (no_objects, "a list of objects"),
            (one_object, "a list of objects"),
            ({"$result": hostile, "select": "rows[*][2]"}, "cannot be used as parameters"),
        ):
            with pytest.raises(InvalidRequest, match=why):
                await optimizer.call("echo", reference)
        other = Caller(principal=Principal("somebody else", "somebody else"))
        with pytest.raises(InvalidRequest, match="No result"):
            await optimizer.gateway.batches.listed(named, other)
