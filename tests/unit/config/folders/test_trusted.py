"""Files of a working folder: which are used, and what a hostile folder can do about it."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest

from mcp_optimizer.app.servers import server_specs
from mcp_optimizer.config.serverfile.file_edits import change_file, with_entry
from mcp_optimizer.config.settings import Settings, load_settings, own_server_file
from mcp_optimizer.config.trusted_files import (
    carry_over,
    digest_of,
    folder_file,
    forget,
    notes_file,
    refuse_untrusted,
    trust,
    trusted_files,
)
from mcp_optimizer.errors import ConfigurationError

SERVERS = b'{"mcpServers": {"theirs": {"command": "true"}}}'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone, in which the user works."""
    made = tmp_path / "clone"
    made.mkdir()
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def theirs(folder: Path) -> Path:
    path = folder / "mcp.json"
    path.write_bytes(SERVERS)
    return path


def names(settings: Settings) -> list[str]:
    return [spec.name for spec in server_specs(settings)]


def test_a_file_of_the_folder_is_used_only_after_a_yes_to_what_it_says(theirs: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"not used: it is not trusted; .*Nothing was started.*folder trust"):
        names(Settings())
    own_server_file().parent.mkdir(parents=True)
    own_server_file().write_text('{"mcpServers": {"mine": {"command": "true"}}}')
    assert names(Settings()) == ["mine"]
    trust({theirs: SERVERS})
    assert names(Settings()) == ["theirs"]
    theirs.write_bytes(SERVERS.replace(b"true", b"evil"))
    assert names(Settings()) == ["mine"]
    theirs.write_bytes(SERVERS)
    forget([str(theirs)])
    assert names(Settings()) == ["mine"]
    assert names(Settings(config=Path("mcp.json"))) == ["theirs"]


def test_a_file_that_is_replaced_between_check_and_use_is_not_used(theirs: Path) -> None:
    trust({theirs: SERVERS})
    settings = Settings()
    chosen = settings.server_file
    theirs.write_bytes(SERVERS.replace(b"true", b"evil"))
    assert chosen == theirs
    with pytest.raises(ConfigurationError, match="changed since it was trusted"):
        settings.check_server_file(chosen, theirs.read_bytes())


def test_settings_are_what_was_compared_even_if_the_file_is_another_by_now(folder: Path) -> None:
    content = b"find_limit = 3\n"
    path = folder / "mcp-optimizer.toml"
    path.write_bytes(content)
    trust({path: content})
    here = folder_file("mcp-optimizer.toml", own_server_file())
    path.write_bytes(b"encoder = 'https://evil.example/v1#m'\n")
    assert here is not None
    assert here.content == content
    assert load_settings({}, {}).encoder == "bundled"


def test_a_yes_is_for_one_place_and_links_do_not_move_it(theirs: Path, tmp_path: Path) -> None:
    trust({theirs: SERVERS})
    other = tmp_path / "other"
    other.mkdir()
    # With the same text, `./server.py` means another program there.
    (other / "mcp.json").symlink_to(theirs)
    found = folder_file("mcp.json", own_server_file(), other)
    assert found is not None
    assert (found.content, found.problem) == (None, "it is not trusted")
    linked = tmp_path / "linked"
    linked.symlink_to(theirs.parent)
    same = folder_file("mcp.json", own_server_file(), linked)
    assert same is not None
    assert same.content == SERVERS


def test_the_users_own_file_needs_no_yes_in_its_own_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = own_server_file()
    own.parent.mkdir(parents=True)
    own.write_bytes(SERVERS)
    monkeypatch.chdir(own.parent)
    assert folder_file("mcp.json", own) is None
    assert names(Settings()) == ["theirs"]
    # Nor does one that is the own one by a link, as people have it who keep their files in a repository.
    monkeypatch.chdir(folder)
    (folder / "mcp.json").symlink_to(own)
    assert Settings().server_file == own
    assert folder_file("mcp.json", own) is None


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_not_used_whatever_it_says(theirs: Path) -> None:
    trust({theirs: SERVERS})
    os.chown(theirs, 12345, 12345)
    found = folder_file("mcp.json", own_server_file())
    assert found is not None
    assert (found.content, found.problem) == (None, "it belongs to another user")
    os.chown(theirs, 0, 0)
    os.chown(notes_file(), 12345, 12345)
    with pytest.raises(ConfigurationError, match="belongs to another user"):
        trusted_files()
    assert Settings().server_file == own_server_file()


@pytest.mark.parametrize("made", ["pipe", "device", "folder", "huge", "dangling"])
def test_what_became_of_a_trusted_file_is_neither_waited_for_nor_read_without_end(theirs: Path, made: str) -> None:
    trust({theirs: SERVERS})
    theirs.unlink()
    if made == "pipe":
        os.mkfifo(theirs)
    elif made == "device":
        theirs.symlink_to("/dev/zero")
    elif made == "folder":
        theirs.mkdir()
    elif made == "dangling":
        theirs.symlink_to("nowhere")
    else:
        with theirs.open("wb") as file:
            file.truncate(1_000_000_000_000)
    assert Settings().server_file == own_server_file()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"files": []}', '{"files": {"/x": 1}}', '{"files": {"/x": {}}}', "[" * 100_000, "\udcff"],
)
def test_damaged_notes_trust_nothing_and_say_what_to_do(theirs: Path, text: str) -> None:
    trust({theirs: SERVERS})
    notes_file().write_bytes(os.fsencode(text))
    assert Settings().server_file == own_server_file()
    with pytest.raises(ConfigurationError, match="Delete it"):
        trust({theirs: SERVERS})


def test_notes_are_private_and_those_that_others_can_write_are_not_believed(theirs: Path) -> None:
    trust({theirs: SERVERS})
    assert stat.S_IMODE(notes_file().stat().st_mode) == 0o600
    assert stat.S_IMODE(notes_file().parent.stat().st_mode) == 0o700
    assert "true" not in notes_file().read_text()
    notes_file().chmod(0o666)
    assert Settings().server_file == own_server_file()
    with pytest.raises(ConfigurationError, match="other users can write it"):
        refuse_untrusted(theirs, SERVERS)


async def test_many_commands_at_once_lose_no_yes(tmp_path: Path) -> None:
    places = [tmp_path / f"{number}" / "mcp.json" for number in range(8)]
    await asyncio.gather(*(asyncio.to_thread(trust, {place: b"{}"}) for place in places))
    assert trusted_files().keys() == {str(place) for place in places}


def test_a_path_that_is_no_text_is_remembered_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\nname"))
    made.mkdir()
    monkeypatch.chdir(made)
    (made / "mcp.json").write_bytes(SERVERS)
    trust({made / "mcp.json": SERVERS})
    assert names(Settings()) == ["theirs"]


def test_a_working_folder_that_is_gone_has_no_files(folder: Path) -> None:
    folder.rmdir()
    assert Settings().server_file == own_server_file()
    assert load_settings({"config": "/x/mcp.json"}, {}).origin.passed_over == ""


def test_a_yes_goes_along_with_the_users_own_edits_and_with_no_others(theirs: Path) -> None:
    trust({theirs: SERVERS})
    change_file(theirs, lambda text: with_entry(text, "new", {"command": "true"}))
    assert names(Settings()) == ["theirs", "new"]
    # Somebody changes the file just before a command of ours does.
    theirs.write_bytes(SERVERS.replace(b"true", b"evil"))
    change_file(theirs, lambda text: with_entry(text, "newer", {"command": "true"}))
    assert Settings().server_file == own_server_file()
    assert trusted_files()[str(theirs)].digest != digest_of(theirs.read_bytes())


def test_an_edit_of_a_file_that_nobody_trusted_is_no_yes(theirs: Path) -> None:
    carry_over(theirs, SERVERS, SERVERS)
    carry_over(theirs, None, SERVERS)
    assert not trusted_files()
    assert not notes_file().exists()
    trust({theirs: SERVERS})
    assert json.loads(notes_file().read_text())["files"].keys() == {str(theirs)}
