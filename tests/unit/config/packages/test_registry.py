"""A registry is asked over HTTP, whatever it answers; downloads are bounded and stay where they were sent."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_optimizer.config.packages.fetching import SourceUnanswered, checked_address, downloaded, fetched_json, is_near
from mcp_optimizer.config.packages.registry import Registry, ServerCondition, listed_server
from mcp_optimizer.errors import ConfigurationError, OptimizerError
from mcp_optimizer.runtime.outgoing import Outgoing
from tests.servers.registry import RegistryContents, running_registry

NAME = "io.github.acme/weather"
PATH = "/v0.1/servers/io.github.acme%2Fweather/versions/latest"


@pytest.fixture
def contents() -> Iterator[RegistryContents]:
    with running_registry() as running:
        yield running


def document(name: str = NAME, version: str = "1.0.0") -> dict[str, str]:
    return {"name": name, "version": version, "description": "Weather  for\nall"}


@pytest.mark.slow
async def test_servers_are_found_over_several_pages(contents: RegistryContents) -> None:
    for number in range(5):
        contents.add(document(f"io.github.acme/weather-{number}"))
    contents.add(document("io.github.other/time"))
    registry = Registry(contents.address + "/")
    found = await registry.search("weather")
    assert [one.name for one in found] == [f"io.github.acme/weather-{number}" for number in range(5)]
    assert found[0].description == "Weather for all"
    assert len(await registry.search("weather", 3)) == 3
    assert await registry.search("nothing of the sort") == []


async def test_one_server_is_found_in_its_newest_or_a_given_version(contents: RegistryContents) -> None:
    contents.add(document(version="1.0.0"), "deprecated", statusMessage="Use the other")
    contents.add(document(version="2.0.0"))
    registry = Registry(contents.address)
    assert (await registry.server(NAME)).version == "2.0.0"
    old = await registry.server(NAME, "1.0.0")
    assert (old.condition, old.message) == (ServerCondition.DEPRECATED, "Use the other")
    with pytest.raises(ConfigurationError, match="has no server"):
        await registry.server("io.github.acme/nothing")
    with pytest.raises(ConfigurationError, match=r"in version 9\.9"):
        await registry.server(NAME, "9.9")


async def test_a_name_cannot_ask_for_another_path(contents: RegistryContents) -> None:
    with pytest.raises(ConfigurationError):
        await Registry(contents.address).server("../../x?y#z")
    assert contents.asked == ["/v0.1/servers/..%2F..%2Fx%3Fy%23z/versions/latest"]


async def test_endless_pages_end(contents: RegistryContents) -> None:
    contents.raw["/v0.1/servers"] = (200, {}, b'{"servers": [], "metadata": {"nextCursor": "same"}}')
    assert await Registry(contents.address).search("x") == []
    assert len(contents.asked) == 2


@pytest.mark.slow
async def test_pages_with_ever_new_cursors_end(contents: RegistryContents) -> None:
    contents.is_endless = True
    assert await Registry(contents.address).search("x") == []
    assert len(contents.asked) == 10


@pytest.mark.cases_in_check(3)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"<html>",
        b'{"server": 1}',
        b'{"server": {"name": 1, "version": "1"}}',
        b'{"server": {"name": "another", "version": "1"}}',
        b'{"server": {"name": "\\u001b[31m", "version": "1"}}',
        b"[" * 100_000,
        b'{"server":"' + b"x" * 5_000_000 + b'"}',
    ],
    ids=range(10),
)
async def test_a_reply_that_is_no_server_is_an_error(contents: RegistryContents, body: bytes) -> None:
    contents.raw[PATH] = (200, {}, body)
    with pytest.raises(SourceUnanswered):
        await Registry(contents.address).server(NAME)


@pytest.mark.slow
async def test_a_small_reply_that_unpacks_to_a_large_one_is_an_error(contents: RegistryContents) -> None:
    contents.raw[PATH] = (200, {"content-encoding": "gzip"}, gzip.compress(b"x" * 50_000_000))
    with pytest.raises(SourceUnanswered, match="sends more"):
        await Registry(contents.address).server(NAME)


async def test_a_registry_does_not_send_us_elsewhere(contents: RegistryContents) -> None:
    contents.raw[PATH] = (302, {"location": f"{contents.address}/other"}, b"")
    with pytest.raises(SourceUnanswered, match="302"):
        await Registry(contents.address).server(NAME)
    assert len(contents.asked) == 1


async def test_what_does_not_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceUnanswered, match=r"127\.0\.0\.1 does not answer"):
        await fetched_json("http://127.0.0.1:1/x")
    with pytest.raises(SourceUnanswered, match="does not answer"):
        await downloaded("http://127.0.0.1:1/x", tmp_path / "x", 10)


@pytest.mark.slow
async def test_a_download_is_bounded_and_follows_few_redirects(contents: RegistryContents, tmp_path: Path) -> None:
    contents.raw["/file"] = (200, {}, b"x" * 100)
    contents.raw["/moved"] = (302, {"location": "/file"}, b"")
    contents.raw["/round"] = (302, {"location": "/round"}, b"")
    path = tmp_path / "x"
    digest = await downloaded(f"{contents.address}/moved", path, 100)
    assert len(digest) == 64
    assert path.read_bytes() == b"x" * 100
    with pytest.raises(SourceUnanswered, match="larger than 99"):
        await downloaded(f"{contents.address}/file", path, 99)
    with pytest.raises(SourceUnanswered, match="more than 5 times"):
        await downloaded(f"{contents.address}/round", path, 100)
    with pytest.raises(SourceUnanswered, match="404"):
        await downloaded(f"{contents.address}/none", path, 100)


@pytest.mark.parametrize(
    "location", ["http://example.com/x", "file:///etc/passwd", "https://user:pass@example.com/", "https://\x00"]
)
async def test_a_download_is_not_sent_to_what_is_no_safe_address(
    contents: RegistryContents, tmp_path: Path, location: str
) -> None:
    contents.raw["/moved"] = (302, {"location": location.replace("\x00", "%00 ")}, b"")
    with pytest.raises(OptimizerError):
        await downloaded(f"{contents.address}/moved", tmp_path / "x", 100)


@pytest.mark.parametrize(
    "url", ["http://example.com", "ftp://x", "https://", "https://a b", "https://ü.example", "x" * 5_000]
)
def test_only_encrypted_addresses_are_asked(url: str) -> None:
    with pytest.raises(ConfigurationError):
        checked_address(url)


def test_addresses_of_this_machine_and_network_are_known() -> None:
    here = [
        "http://localhost/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://10.0.0.1/",
        "https://[::ffff:10.0.0.1]/",
    ]
    assert all(is_near(url) for url in here)
    assert not is_near("https://example.com/")


@pytest.mark.parametrize("target", ["here.example", "localhost", "[::1]", "10.0.0.1", "169.254.169.254"])
async def test_a_download_from_elsewhere_is_not_sent_to_this_machine_by_whatever_name(
    contents: RegistryContents, tmp_path: Path, target: str
) -> None:
    names = {"public.example": ["93.184.216.34"], "here.example": ["127.0.0.1"]}
    looked_up: list[str] = []

    async def resolve(host: str, _port: int) -> list[str]:
        looked_up.append(host)
        return names.get(host, ["127.0.0.1"] if host == "localhost" else [host])

    named_by = "https://public.example/registry"
    with pytest.raises(ConfigurationError, match="on this"):
        await downloaded(f"https://{target}/file", tmp_path / "x", 100, named_by, Outgoing(resolve))
    assert looked_up == [target.strip("[]"), "public.example"]
    assert not contents.asked


async def test_a_download_goes_to_the_address_that_its_name_had_when_it_was_judged(
    contents: RegistryContents, tmp_path: Path
) -> None:
    contents.raw["/file"] = (200, {}, b"x")
    looked_up: list[str] = []

    async def resolve(host: str, _port: int) -> list[str]:
        looked_up.append(host)
        return ["127.0.0.1"]

    port = contents.address.rpartition(":")[2]
    address = f"http://files.localhost:{port}/file"
    await downloaded(address, tmp_path / "x", 100, outgoing=Outgoing(resolve))
    assert looked_up == ["files.localhost"]


async def test_nothing_is_fetched_from_the_gateway_itself(contents: RegistryContents, tmp_path: Path) -> None:
    outgoing = Outgoing()
    outgoing.listening(int(contents.address.rpartition(":")[2]))
    with pytest.raises(ConfigurationError, match="this gateway itself"):
        await fetched_json(f"{contents.address}/x", outgoing)
    with pytest.raises(ConfigurationError, match="this gateway itself"):
        await downloaded(f"{contents.address}/x", tmp_path / "x", 10, outgoing=outgoing)
    assert not contents.asked


def test_an_unknown_condition_and_odd_metadata_do_no_harm() -> None:
    found = listed_server(
        {"server": document(), "_meta": {"io.modelcontextprotocol.registry/official": {"status": ["x"]}}}
    )
    assert found is not None
    assert found.condition is ServerCondition.ACTIVE
    assert listed_server({"server": document(), "_meta": 5}) is not None
