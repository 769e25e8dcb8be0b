"""Skills through the gateway: one list of all servers' skills, read as they were announced, and found beside tools."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.conftest import WriteServers, plain_server
from tests.e2e.extended import APPS, SKILLS, TASKS, called, declaring, entry, extended_gateway, listed, text_of
from tests.e2e.raw_clients import HELLO, LEGACY, MODERN, HttpClient, http_client, stdio_client

REPORT = "skill://acme/expense-report/SKILL.md"
FORM = "skill://acme/expense-report/references/form.md"
OWN = "skill://travel/SKILL.md"
FILES = {
    OWN: "---\nname: travel\ndescription: Plan a trip as this company does.\n---\n\nAsk for the budget first.\n",
    "skill://travel/forms/trip.md": "# Trip\n",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A gateway in front of two servers with the same skills, and one with a skill of its own."""
    folder = tmp_path_factory.mktemp("skills")
    own = folder / "own.json"
    own.write_text(json.dumps(FILES))
    servers = {"one": entry("one"), "two": entry("two"), "three": entry("three", "--skills", str(own))}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    async with extended_gateway(folder / "mcp.json", "--database", "none") as at:
        yield at


async def skills_of(client: HttpClient) -> dict[str, dict[str, Any]]:
    result = (await client.ask("skills/list"))["result"]
    return {one["uri"]: one for one in result["skills"]}


async def read(client: HttpClient, uri: str) -> dict[str, Any]:
    """The only content of a resource, or the error."""
    answer = await client.ask("resources/read", {"uri": uri})
    return dict(answer["result"]["contents"][0] if "result" in answer else answer["error"])


@pytest.mark.parametrize("era", [MODERN, LEGACY])
async def test_skills_of_all_servers_are_one_list_with_their_origin(address: str, era: str) -> None:
    async with http_client(address, era) as client:
        skills = await skills_of(client)
    assert list(skills) == [
        f"one+{REPORT}",
        "one+skill://git-workflow/SKILL.md",
        OWN,
        f"two+{REPORT}",
        "two+skill://git-workflow/SKILL.md",
    ]
    assert [one["_meta"]["mcp-optimizer/server"] for one in skills.values()] == ["one", "one", "three", "two", "two"]


async def test_uris_that_collide_are_rewritten_in_entries_and_manifests_and_keep_the_name(address: str) -> None:
    async with http_client(address, MODERN) as client:
        answer = await client.ask("skills/list")
        skill = (await skills_of(client))[f"one+{REPORT}"]
        [shown] = [one for one in answer["result"]["skills"] if one["uri"] == OWN]
        for file in skill["resources"]:
            content = (await read(client, file["uri"]))["text"].encode()
            assert file["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
            assert file["size"] == len(content)
    assert skill["uri"].split("/")[-2] == skill["frontmatter"]["name"] == "expense-report"
    assert [file["uri"] for file in skill["resources"]] == [f"one+{REPORT}", f"one+{FORM}"]
    assert [file["uri"] for file in shown["resources"]] == list(FILES)
    assert 0 < answer["result"]["ttlMs"] <= 300_000
    assert answer["result"]["cacheScope"] == "public"


async def test_one_skill_is_asked_for_by_its_uri(address: str) -> None:
    async with http_client(address, MODERN) as client:
        every = await skills_of(client)
        for uri, listed_one in every.items():
            got = (await client.ask("skills/get", {"uri": uri}))["result"]
            assert got["skill"] == listed_one
            assert got["resultType"] == "complete"
            assert {"ttlMs", "cacheScope"} <= got.keys()
        unknown = await client.ask("skills/get", {"uri": "one+skill://nothing/SKILL.md"})
        shared = await client.ask("skills/get", {"uri": REPORT})
    assert unknown["error"]["code"] == -32602
    assert f"one+{REPORT}, two+{REPORT}" in shared["error"]["message"]


async def test_folders_are_read_with_the_uris_that_clients_know(address: str) -> None:
    async with http_client(address, MODERN) as client:

        async def children(uri: str) -> list[str]:
            answer = await client.ask("resources/directory/read", {"uri": uri})
            return [one["uri"] for one in answer["result"]["resources"]]

        renamed, own = await children("two+skill://acme/expense-report"), await children("skill://travel/forms")
        wrong = await client.ask("resources/directory/read", {"uri": OWN})
    assert renamed == [f"two+{REPORT}", "two+skill://acme/expense-report/references"]
    assert own == ["skill://travel/forms/trip.md"]
    assert wrong["error"]["code"] == -32602


async def test_a_request_finds_a_skill_first_with_what_reading_it_costs(address: str) -> None:
    async with http_client(address, MODERN) as client:
        found = await called(client, "find_tool", tool_description="how do I file an expense report")
        plain = await listed(client)
    first, file = text_of(found).splitlines()[:2]
    assert first == (
        "one__skill_acme_expense-report [one; a skill: calling it reads its instructions, about 61 tokens]: "
        "File an expense report, from the receipts and the form to the approval of finance."
    )
    assert file.strip().startswith("file?")
    assert text_of(found).splitlines()[-1].startswith("Saved ")
    assert not [name for name in plain if "skill" in name]


@pytest.mark.parametrize("era", [MODERN, LEGACY])
async def test_a_model_reads_a_skill_and_its_files_by_calling_it(address: str, era: str) -> None:
    name = "two__skill_acme_expense-report"
    async with http_client(address, era) as client:
        whole = await called(client, "call_tool", tool_name=name)
        form = await called(client, "call_tool", tool_name=name, parameters={"file": "references/form.md"})
        wrong = await called(client, "call_tool", tool_name=name, parameters={"file": "../../git-workflow/SKILL.md"})
    heading, said = (block["text"] for block in whole["content"])
    assert heading == (
        "From the server 'two', the skill 'expense-report', SKILL.md. "
        'Its other files, to be read with "file": references/form.md.'
    )
    assert said.startswith("---\nname: expense-report")
    assert whole["_meta"]["mcp-optimizer/tool"]["server"] == "two"
    assert whole["_meta"]["tokens"]["estimated"] > 60
    assert form["content"][1]["text"] == "# The form\n\nDate, amount, purpose.\n"
    assert wrong["isError"]
    assert "Its files: SKILL.md, references/form.md" in text_of(wrong)


async def test_several_files_of_a_skill_are_read_by_one_call(address: str) -> None:
    wanted = [{}, {"file": "forms/trip.md"}, {"file": "../secret"}]
    async with http_client(address, MODERN) as client:
        result = await called(client, "call_tool", tool_name="three__skill_travel", parameters=wanted)
    said = json.dumps(result["content"])
    assert "Ask for the budget first." in said
    assert "# Trip" in said
    assert "has no file" in said


async def test_skills_are_listed_after_the_tools(address: str) -> None:
    async with http_client(address, MODERN) as client:
        page = json.loads(text_of(await called(client, "list_tools", server="three")))
    assert page["tools"][-1] == {
        "name": "three__skill_travel",
        "server": "three",
        "description": "Plan a trip as this company does.",
    }


async def test_skills_are_declared_with_reading_of_folders(address: str) -> None:
    async with http_client(address, MODERN) as client:
        answer = await client.ask("server/discover", declaring(SKILLS))
    assert answer["result"]["capabilities"]["extensions"][SKILLS] == {"directoryRead": True}


async def test_a_path_that_climbs_is_refused(address: str) -> None:
    async with http_client(address, MODERN) as client:
        for uri in (
            "skill://travel/../git-workflow/SKILL.md",
            "skill://travel/%2e%2e/secret",
            "one+skill://git-workflow/./../x",
        ):
            assert "must not contain" in (await read(client, uri))["message"]
        unlisted = await read(client, "skill://travel/forms/other.md")
    assert "not one of the files" in unlisted["message"]


@pytest.mark.parametrize("era", [MODERN, LEGACY])
async def test_a_client_that_starts_the_gateway_hears_of_extensions_that_servers_may_turn_out_to_have(
    write_servers: WriteServers, era: str
) -> None:
    config = write_servers({"one": entry("one")})
    async with stdio_client(config, "--database", "none", "--encoder", "none", era=MODERN) as client:
        method, params = ("server/discover", None) if era == MODERN else ("initialize", HELLO)
        client.era = era
        answer = await client.ask(method, params)
        assert answer["result"]["capabilities"]["extensions"] == {APPS: {}, SKILLS: {"directoryRead": True}, TASKS: {}}
        assert len((await client.ask("skills/list"))["result"]["skills"]) == 2


async def test_extensions_that_no_server_has_are_not_declared(write_servers: WriteServers) -> None:
    config = write_servers({"plain": plain_server("plain")})
    async with extended_gateway(config, "--database", "none") as at, http_client(at, MODERN) as client:
        assert "extensions" not in (await client.ask("server/discover"))["result"]["capabilities"]
        assert (await client.ask("skills/list"))["result"]["skills"] == []
        for method in ("skills/get", "resources/directory/read"):
            assert (await client.ask(method, {"uri": OWN}))["error"]["code"] == -32602
