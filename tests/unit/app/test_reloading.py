"""Edits of the server file and the settings file, taken in while everything runs; broken ones change nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.app.optimizer import Optimizer
from mcp_optimizer.app.reloading import Reloading, ReloadOutcome
from mcp_optimizer.config.serverfile.file_edits import change_file, with_entry
from mcp_optimizer.config.settings import Settings, load_settings
from mcp_optimizer.config.trusted_files import trust
from mcp_optimizer.domain.caller import Principal, Risk
from mcp_optimizer.domain.tools import ServerStatus
from mcp_optimizer.errors import ConfigurationError, UnknownTool
from tests.conftest import plain_server
from tests.waiting import until

OPTIONS = {"database": "none", "encoder": "none", "reload": False}
OFF = {"command": "nothing", "disabled": True}


def write(path: Path, servers: dict[str, Any]) -> None:
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mcp.json"
    write(path, {"one": OFF})
    return path


@asynccontextmanager
async def opened(file: Path, **options: Any) -> AsyncIterator[Optimizer]:
    async with Optimizer.from_config(file, **{**OPTIONS, **options}) as optimizer:
        yield optimizer


def names(optimizer: Optimizer) -> list[str]:
    return [state.name for state in optimizer.servers()]


@pytest.mark.process
async def test_tools_come_and_go_with_the_entries_of_their_servers(file: Path) -> None:
    write(file, {"one": plain_server("one", "--tools", 12)})
    async with opened(file) as optimizer:
        assert (await optimizer.call("echo", {"value": "x"}))["content"][0]["text"]
        write(file, {"two": plain_server("two", "--tools", 12)})
        assert await optimizer.reload() == ReloadOutcome(added=("two",), removed=("one",))
        assert list(optimizer.snapshot.states) == ["two"]
        assert not optimizer.snapshot.of_server("one")
        await optimizer.wait_for_servers(20)
        assert {tool.server for tool in optimizer.snapshot.running} == {"two"}
        with pytest.raises(UnknownTool, match="one_action_0"):
            await optimizer.call("one_action_0", {})


@pytest.mark.process
async def test_a_name_that_means_another_command_has_none_of_the_tools_it_had(file: Path) -> None:
    write(file, {"one": plain_server("one", "--tools", 12), "two": plain_server("two", "--tools", 12)})
    async with opened(file, trust_local="block") as optimizer:
        kept = optimizer.snapshot.by_name["two_action_0"].name
        write(file, {"one": plain_server("other", "--tools", 12), "two": plain_server("two", "--tools", 12)})
        assert (await optimizer.reload()).changed == ("one",)
        assert not optimizer.snapshot.of_server("one")
        await optimizer.wait_for_servers(20)
        # It is not what was approved under this name, so all of its tools wait for approval.
        assert not optimizer.snapshot.of_server("one")
        assert ("one", "other_action_0") in optimizer.snapshot.held
        assert optimizer.snapshot.by_name["two_action_0"].name == kept


@pytest.mark.process
async def test_a_description_and_a_selection_change_without_a_restart(file: Path) -> None:
    write(file, {"one": plain_server("one", "--tools", 12)})
    async with opened(file) as optimizer:
        write(file, {"one": {**plain_server("one", "--tools", 12), "disabledTools": ["die"], "description": "Sums"}})
        assert (await optimizer.reload()).changed == ("one",)
        await until(lambda: "die" not in optimizer.snapshot.by_name)
        assert (optimizer.servers()[0].restarts, optimizer.snapshot.states["one"].spec.description) == (0, "Sums")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"mcpServers": {\n "one": {]}}', r"mcp\.json is not valid JSON: .* at line 2, column 10"),
        (b"", "line 1, column 1"),
        (b"\0" * 1000, "line 1, column 1"),
        (b'{"mcpServers": {"one": \xff}}', "utf-8"),
        (b"[" * 1_000_000, "nested too deeply"),
        (b'{"mcpServers": ' + b"1" * 10_000 + b"}", "too many digits"),
        (b"[]", "must contain a JSON object"),
        (b" " * 10_000_001, "larger than 10,000,000 bytes"),
    ],
    ids=["syntax", "empty", "nuls", "encoding", "deep", "number", "list", "large"],
)
async def test_a_file_that_cannot_be_read_changes_nothing_and_is_named(file: Path, content: bytes, said: str) -> None:
    async with opened(file) as optimizer:
        file.write_bytes(content)
        outcome = await optimizer.reload()
        with pytest.raises(ConfigurationError, match=said):
            raise ConfigurationError(outcome.problem)
        assert (names(optimizer), optimizer.reload_problem) == (["one"], outcome.problem)
        write(file, {"two": OFF})
        assert (await optimizer.reload()).added == ("two",)
        assert optimizer.reload_problem == ""


@pytest.mark.parametrize("kind", ["folder", "pipe", "gone", "dangling"])
async def test_what_is_not_a_file_any_more_is_not_waited_for(file: Path, kind: str) -> None:
    async with opened(file) as optimizer:
        file.unlink()
        if kind == "folder":
            file.mkdir()
        elif kind == "pipe":
            os.mkfifo(file)
        elif kind == "dangling":
            file.symlink_to(file.with_name("nowhere"))
        outcome = await asyncio.wait_for(optimizer.reload(), 5)
        assert str(file) in outcome.problem
        assert names(optimizer) == ["one"]


async def test_a_problem_is_logged_once(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(file) as optimizer:
        file.write_text("{")
        with caplog.at_level(logging.WARNING, "mcp_optimizer.app.reloading"):
            for _ in range(3):
                await optimizer.reload()
        assert caplog.text.count("everything goes on as before") == 1


async def test_a_chosen_server_that_is_removed_is_gone(file: Path) -> None:
    write(file, {"one": OFF, "two": OFF, "three": OFF})
    async with opened(file, servers="one,two") as optimizer:
        write(file, {"two": OFF, "three": OFF})
        assert await optimizer.reload() == ReloadOutcome(removed=("one",))
        assert names(optimizer) == ["two"]


async def test_settings_take_effect_or_are_named(file: Path, tmp_path: Path) -> None:
    toml = tmp_path / "settings.toml"
    toml.write_text("find_limit = 5\n")
    write(file, {"one": OFF, "two": OFF})
    settings = load_settings({"config": file, **OPTIONS}, {}, toml)
    async with Optimizer.from_settings(settings) as optimizer:
        toml.write_text(
            'find_limit = 3\nmax_rows = 7\ncalls_per_minute = 2\nservers = "two"\nencoding = "o200k_base"\n'
            'servers_trust.two = "off"\n[tool_risks]\n"two/*" = "read"\n'
        )
        outcome = await optimizer.reload()
        live = ("calls_per_minute", "find_limit", "max_rows", "servers", "servers_trust", "tool_risks")
        assert outcome == ReloadOutcome(removed=("one",), settings=live, needs_restart=("encoding",))
        assert optimizer.keeper.modes == {"two": "off"}
        toml.write_text("find_limit = 'many'\n")
        outcome = await optimizer.reload()
        assert "find_limit" in outcome.problem
        assert str(toml) in outcome.problem
        assert names(optimizer) == ["two"]
        toml.write_text("")
        assert (await optimizer.reload()).settings == live


async def test_other_rules_hide_tools_at_once(file: Path, tmp_path: Path) -> None:
    toml = tmp_path / "settings.toml"
    toml.write_text("")
    async with Optimizer.from_settings(load_settings({"config": file, **OPTIONS}, {}, toml)) as optimizer:
        policy = optimizer.parts.policy
        everybody = Principal("key:1", "Ada", risk=Risk.DESTRUCTIVE)
        assert policy.is_open_for(everybody)
        toml.write_text('[[rules]]\ntool = "*"\neffect = "deny"\n')
        assert (await optimizer.reload()).settings == ("rules",)
        assert not policy.is_open_for(everybody)


async def test_given_servers_are_read_from_no_file() -> None:
    optimizer = Optimizer([], Settings(database="none", encoder="none"))
    with pytest.raises(ConfigurationError, match="not read from a file"):
        await optimizer.reload()


@asynccontextmanager
async def watching(file: Path) -> AsyncIterator[tuple[Optimizer, Reloading]]:
    settings = load_settings({"config": file, **OPTIONS, "reload": True}, {})
    async with Optimizer.from_settings(settings.model_copy(update={"reload": False})) as optimizer:
        reloading = Reloading(optimizer.parts, settings, interval=0.01, still=0.005)
        reloading.start()
        yield optimizer, reloading
        await reloading.stop()


async def test_an_edit_is_noticed_however_it_is_made(file: Path, tmp_path: Path) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
        write(folder / "mcp.json", {folder.name: OFF})
    async with watching(file) as (optimizer, reloading):
        write(file, {"rewritten": OFF})
        await until(lambda: names(optimizer) == ["rewritten"])
        other = file.with_name("temporary")
        write(other, {"replaced_": OFF})
        other.replace(file)
        await until(lambda: names(optimizer) == ["replaced_"])
        file.unlink()
        await until(lambda: "is gone" in reloading.problem)
        # As a config map is mounted: a link to a file in a folder that is itself a link.
        data = tmp_path / "..data"
        data.symlink_to(folders[0])
        file.symlink_to(data / "mcp.json")
        await until(lambda: names(optimizer) == ["first"])
        assert reloading.problem == ""
        (tmp_path / "new").symlink_to(folders[1])
        (tmp_path / "new").replace(data)
        await until(lambda: names(optimizer) == ["second"])


async def test_settings_that_are_being_written_anew_never_leave_callers_without_rules(
    file: Path, tmp_path: Path
) -> None:
    toml, rules = tmp_path / "settings.toml", '[[rules]]\ntool = "*"\neffect = "deny"\n'
    toml.write_text(rules)
    settings = load_settings({"config": file, **OPTIONS}, {}, toml)
    everybody = Principal("key:1", "Ada", risk=Risk.DESTRUCTIVE)
    async with Optimizer.from_settings(settings.model_copy(update={"reload": False})) as optimizer:
        policy = optimizer.parts.policy
        reloading = Reloading(optimizer.parts, settings.model_copy(update={"reload": True}), interval=0.2, still=0.005)
        reloading.start()
        toml.write_text("")
        with contextlib.suppress(TimeoutError):
            # Twice as long as it takes to notice any other edit.
            async with asyncio.timeout(0.5):
                await asyncio.Event().wait()
        assert not policy.is_open_for(everybody)
        toml.write_text(f"history_days = 7\n{rules}")
        await until(lambda: reloading.needs_restart != ())
        assert not policy.is_open_for(everybody)
        toml.write_text("")
        await until(lambda: policy.is_open_for(everybody))
        await reloading.stop()


async def test_an_edit_each_ten_milliseconds_is_taken_in_when_it_rests(file: Path) -> None:
    async with watching(file) as (optimizer, _):
        for number in range(100):
            file.write_text('{"mcpServers": {')
            write(file, {f"s{number}": OFF})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()
        await until(lambda: names(optimizer) == ["s99"])
        assert optimizer.servers()[0].status is ServerStatus.STOPPED


async def test_a_changed_file_of_the_folder_waits_for_a_yes(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toml = tmp_path / "mcp-optimizer.toml"
    toml.write_text('[[rules]]\ntool = "*"\neffect = "deny"\n')
    monkeypatch.chdir(tmp_path)
    trust({path: path.read_bytes() for path in (file, toml)})
    settings = load_settings({**OPTIONS, "reload": True}, {})
    everybody = Principal("key:1", "Ada", risk=Risk.DESTRUCTIVE)
    async with Optimizer.from_settings(settings.model_copy(update={"reload": False})) as optimizer:
        policy = optimizer.parts.policy
        reloading = Reloading(optimizer.parts, settings, interval=0.01, still=0.005)
        reloading.start()
        write(file, {"evil": OFF})
        toml.write_text("max_rows = 3\n")
        await until(lambda: reloading.problem.count("changed since it was trusted") == 2)
        assert (names(optimizer), policy.is_open_for(everybody)) == (["one"], False)
        trust({path: path.read_bytes() for path in (file, toml)})
        await until(lambda: names(optimizer) == ["evil"])
        assert policy.is_open_for(everybody)
        # What the user changes with a command needs no second yes.
        change_file(file, lambda text: with_entry(text, "mine", OFF))
        await until(lambda: names(optimizer) == ["evil", "mine"])
        await reloading.stop()
