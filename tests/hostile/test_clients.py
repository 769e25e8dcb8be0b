"""Every named hostile input from a client, at a gateway in its own process: no other client is affected."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from tests.hostile.client_inputs import CLIENT_INPUTS, ClientInput
from tests.hostile.gateway import HttpWitness, Standing
from tests.hostile.hostile_client import HostileClient
from tests.hostile.witness import NAME, watching, witness_server


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    made = Standing(tmp_path_factory.mktemp("gateway"), {NAME: witness_server()})
    yield made
    made.end()


@pytest.mark.promise("inputs-limited")
@pytest.mark.parametrize("shown", CLIENT_INPUTS, ids=lambda shown: shown.name)
async def test_a_hostile_request_is_answered_and_hurts_no_other_client(shown: ClientInput, standing: Standing) -> None:
    gateway = standing.gateway()
    problems: list[str] = []
    async with httpx2.AsyncClient(timeout=25) as http:
        witnesses = [HttpWitness(http, gateway.url, is_modern=is_modern) for is_modern in (False, True)]
        for witness in witnesses:
            await witness.connect()
            await witness.until_up()
        async with watching(*witnesses):
            hostile = HostileClient(gateway.origin)
            await hostile.connect()
            if wrong := await hostile.show(shown):
                problems.append(wrong)
            for witness in witnesses:
                await witness.call_once()
    for witness in witnesses:
        problems += [f"the witness was not answered: {lost}" for lost in witness.lost[:2]]
    problems += await gateway.problems()
    if problems:
        standing.end()
    assert problems == []
