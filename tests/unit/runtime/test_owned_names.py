"""Names that tell which gateway has what they name."""

from __future__ import annotations

import pytest

from mcp_optimizer.runtime.signatures import (
    OwnedNames,
    Signatures,
    is_whole_name,
    new_owner,
    owner_of_event,
    owner_of_question,
)


async def key() -> bytes:
    return b"shared"


async def test_another_gateway_of_the_installation_reads_the_owner_and_only_for_the_same_caller() -> None:
    owner = new_owner()
    state = await OwnedNames(owner, Signatures(key)).waiting_call("ada")
    other = OwnedNames(new_owner(), Signatures(key))
    assert await other.owner_of_call(state, "ada") == owner
    assert await other.owner_of_call(f"{state}.life.3.1.seal", "ada") == owner
    assert await other.owner_of_call(state, "bob") == ""
    assert await OwnedNames(new_owner(), Signatures()).owner_of_call(state, "ada") == ""


async def test_two_calls_have_two_names() -> None:
    names = OwnedNames(new_owner(), Signatures(key))
    assert await names.waiting_call("ada") != await names.waiting_call("ada")
    assert names.question() != names.question()


@pytest.mark.parametrize("state", [None, 7, "", "g1", "g1.", "g1...", "g1....", "g1.a.b.c", "g1." + "x" * 10_000, "ü."])
async def test_anything_else_names_nobody(state: object) -> None:
    assert await OwnedNames(new_owner(), Signatures(key)).owner_of_call(state, "ada") == ""
    assert owner_of_question(state) == ""
    assert owner_of_event(str(state)) == ""


async def test_questions_and_events_name_their_gateway() -> None:
    names = OwnedNames(new_owner(), Signatures(key))
    assert owner_of_question(names.question()) == names.owner
    assert owner_of_event(f"{names.owner}-12") == names.owner
    assert owner_of_question(f"{names.owner}-12") == owner_of_event(names.question()) == ""


async def test_a_scripts_state_has_more_in_it() -> None:
    state = await OwnedNames(new_owner(), Signatures(key)).waiting_call("ada")
    assert is_whole_name(state)
    assert not is_whole_name(f"{state}.life.3.1.seal")
