"""Every named hostile input of a client, at a gateway in a process of its own: nobody else is hurt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.hostile.client_inputs import CLIENT_INPUTS, ClientInput
from tests.hostile.gateway import GatewayProcess, HttpWitness
from tests.hostile.hostile_client import HostileClient
from tests.hostile.witness import NAME, watching, witness_server


class Standing:
    """One gateway for all inputs; a new one after each that hurt it, so that each failure is its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._config = folder / "mcp.json"
        self._config.write_text(json.dumps({"mcpServers": {NAME: witness_server()}}), encoding="utf-8")
        self._gateway: GatewayProcess | None = None

    def gateway(self) -> GatewayProcess:
        if self._gateway is None:
            self._gateway = GatewayProcess(self._folder, self._config)
        return self._gateway

    def end(self) -> None:
        if self._gateway is not None:
            self._gateway.stop()
            self._gateway = None


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    made = Standing(tmp_path_factory.mktemp("gateway"))
    yield made
    made.end()


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
