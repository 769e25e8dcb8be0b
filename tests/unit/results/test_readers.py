"""Who reads the rest of a cut result: the caller that got it, in any session, and nobody else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_optimizer.domain.caller import ANYONE, LOCAL, Caller, Principal
from mcp_optimizer.errors import InvalidRequest
from tests.unit.results.test_limits import PEOPLE, gate, id_of, text_result

ADA, BOB = Principal("key:1", "key:ada"), Principal("key:2", "key:bob")


async def test_nobody_reads_another_callers_result(place: Path | str) -> None:
    async with gate(max_rows=10, place=place) as opened:
        result = await opened.pass_through(text_result(json.dumps(PEOPLE)), caller=Caller("me", "here", principal=ADA))
        await opened.results.read(id_of(result), Caller("another client", "another session", principal=ADA))
        for stranger in (LOCAL, Caller("me", "here", principal=BOB), Caller("me", "here", principal=ANYONE)):
            with pytest.raises(InvalidRequest, match=r"No result 'r\w+' is kept"):
                await opened.results.read(id_of(result), stranger)


async def test_at_an_open_gateway_the_id_opens_a_result_in_any_session_and_cannot_be_guessed() -> None:
    async with gate(max_rows=10) as opened:
        anyone = Caller("me", "http:first session", principal=ANYONE)
        result = await opened.pass_through(text_result(json.dumps(PEOPLE)), caller=anyone)
        await opened.results.read(id_of(result), Caller("me", "http:second session", principal=ANYONE))
        assert len(id_of(result)) > 20, "80 random bits"
