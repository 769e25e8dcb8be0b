"""Our entry in every client's file: as the client spells it, and gone again without a trace."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mcp_optimizer.config.clients.applying import Backups, exact_undo, shown_change, take_out, write
from mcp_optimizer.config.clients.connecting import (
    DEFAULT_NAME,
    CannotConnect,
    FileChange,
    connecting,
    disconnecting,
    is_temporary,
)
from mcp_optimizer.config.clients.files import Machine
from mcp_optimizer.config.known_clients.entry_spelling import OurGateway
from mcp_optimizer.config.known_clients.program import ClientProgram
from mcp_optimizer.config.known_clients.table import CLIENTS
from mcp_optimizer.config.textfiles.reading import parsed
from mcp_optimizer.config.textfiles.writing import FileChanged

GOLDEN = Path(__file__).parents[3] / "golden" / "connect"
GATEWAY = OurGateway("/opt/bin/mcp-optimizer", ("serve", "--config", "/home/a/mcp.json"))
REMOTE = OurGateway(url="http://127.0.0.1:8765/mcp")
WITHOUT_URL = {"claude-desktop"}


def golden(client: str, stage: str) -> Path:
    (found,) = GOLDEN.glob(f"{client}.{stage}.*")
    return found


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    project = tmp_path / "project"
    project.mkdir()
    return Machine(tmp_path / "home", {}, "linux", project)


@pytest.fixture
def backups(tmp_path: Path) -> Backups:
    return Backups(tmp_path / "state" / "clients")


def place(client: str, machine: Machine) -> Path:
    return CLIENTS[client].files(machine.home, machine.environment, machine.platform)[0].path


def installed(client: str, machine: Machine, content: bytes | None = None) -> Path:
    path = place(client, machine)
    path.parent.mkdir(parents=True, exist_ok=True)
    CLIENTS[client].folders(machine.home, machine.environment, machine.platform)[0].mkdir(parents=True, exist_ok=True)
    path.write_bytes(golden(client, "before").read_bytes() if content is None else content)
    return path


def plan(client: str, machine: Machine, gateway: OurGateway = GATEWAY, name: str = DEFAULT_NAME) -> FileChange:
    return connecting(CLIENTS[client], machine, gateway, name, in_project=False)


def undo(client: str, machine: Machine, backups: Backups, name: str = DEFAULT_NAME) -> None:
    change = disconnecting(CLIENTS[client], machine, name, in_project=False)
    assert change is not None
    take_out(exact_undo(change, backups), backups)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_is_connected_in_its_own_spelling_and_disconnected_byte_for_byte(
    client: str, machine: Machine, backups: Backups
) -> None:
    path = installed(client, machine)
    before = path.read_bytes()
    write(plan(client, machine), backups)
    assert path.read_bytes().decode() == golden(client, "after").read_bytes().decode()
    assert plan(client, machine).connected_as == DEFAULT_NAME, "connecting twice changes nothing"
    undo(client, machine, backups)
    assert path.read_bytes() == before


@pytest.mark.cases_in_check(6)
@pytest.mark.parametrize("gateway", [GATEWAY, REMOTE], ids=["command", "url"])
@pytest.mark.parametrize("client", CLIENTS)
def test_without_a_copy_the_text_edit_alone_restores_every_byte(
    client: str, gateway: OurGateway, machine: Machine, backups: Backups
) -> None:
    if gateway.url and client in WITHOUT_URL:
        pytest.skip("it knows only commands")
    path = installed(client, machine)
    before = path.read_bytes()
    write(plan(client, machine, gateway), backups)
    assert plan(client, machine, gateway).connected_as == DEFAULT_NAME
    change = disconnecting(CLIENTS[client], machine, DEFAULT_NAME, in_project=False)
    assert change is not None
    assert change.text.encode() == before


@pytest.mark.parametrize("client", CLIENTS)
def test_what_others_changed_in_between_stays(client: str, machine: Machine, backups: Backups) -> None:
    path = installed(client, machine)
    before = path.read_bytes()
    write(plan(client, machine), backups)
    comment = b"\n# later" if path.suffix in (".toml", ".yaml") else b"\n// later"
    path.write_bytes(path.read_bytes() + comment)
    undo(client, machine, backups)
    # A file that was empty cannot hold a comment alone.
    assert path.read_bytes() == (before or b"{}\n") + comment


def test_a_client_that_is_not_installed_gets_no_file(machine: Machine) -> None:
    for client in CLIENTS:
        with pytest.raises(CannotConnect, match="is not installed here"):
            plan(client, machine)
    assert not machine.home.exists()


def test_a_file_that_we_created_is_removed_again(machine: Machine, backups: Backups) -> None:
    path = installed("cursor", machine)
    path.unlink()
    write(plan("cursor", machine), backups)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    undo("cursor", machine, backups)
    assert not path.exists()


def test_a_project_s_file_comes_and_goes_with_its_folder(machine: Machine, backups: Backups) -> None:
    change = connecting(CLIENTS["cursor"], machine, GATEWAY, DEFAULT_NAME, in_project=True)
    write(change, backups)
    assert (machine.folder / ".cursor" / "mcp.json").exists()
    gone = disconnecting(CLIENTS["cursor"], machine, DEFAULT_NAME, in_project=True)
    assert gone is not None
    take_out(exact_undo(gone, backups), backups)
    assert list(machine.folder.iterdir()) == []
    with pytest.raises(CannotConnect, match="no file for projects"):
        connecting(CLIENTS["goose"], machine, GATEWAY, DEFAULT_NAME, in_project=True)


def test_an_update_is_undone_to_before_the_first_entry(machine: Machine, backups: Backups) -> None:
    path = installed("codex", machine)
    before = path.read_bytes()
    write(plan("codex", machine), backups)
    update = plan("codex", machine, OurGateway("/opt/bin/mcp-optimizer", ("serve", "--config", "/other.json")))
    assert update.is_update
    write(update, backups)
    assert b"/other.json" in path.read_bytes()
    undo("codex", machine, backups)
    assert path.read_bytes() == before


def test_another_server_of_our_name_is_neither_replaced_nor_removed(machine: Machine) -> None:
    installed("cursor", machine, b'{"mcpServers": {"mcp-optimizer": {"command": "other"}}}')
    with pytest.raises(CannotConnect, match="--name"):
        plan("cursor", machine)
    with pytest.raises(CannotConnect, match="not removed"):
        disconnecting(CLIENTS["cursor"], machine, DEFAULT_NAME, in_project=False)


def test_other_servers_that_are_on_are_named(machine: Machine) -> None:
    installed("roo", machine, b'{"mcpServers": {"a": {"command": "b", "disabled": true}, "c": {"command": "d"}}}')
    assert plan("roo", machine).others == ("c",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{\n  "mcpServers": {\n    oops\n  }\n}', "at line 3, column 5"),
        (b"[]", "not a JSON object"),
        (b"\xff\xfe{}", "UTF-8"),
        (b'{"mcpServers": []}', "not an object"),
        (b'{"mcpServers": {}, "mcpServers": {}}', "twice"),
        (b"[" * 100_000, "nested too deeply"),
        (b" " * 40_000_000 + b"{}", "larger than 32 MB"),
    ],
    ids=["invalid", "list", "bytes", "wrong type", "twice", "deep", "large"],
)
def test_a_file_that_is_not_understood_is_left_alone(content: bytes, words: str, machine: Machine) -> None:
    path = installed("cursor", machine, content)
    with pytest.raises(CannotConnect, match=words):
        plan("cursor", machine)
    assert path.read_bytes() == content


def test_a_folder_in_the_place_of_the_file_is_left_alone(machine: Machine) -> None:
    path = installed("cursor", machine)
    path.unlink()
    path.mkdir()
    with pytest.raises(CannotConnect, match=r"not a plain file|cannot be read"):
        plan("cursor", machine)


def test_a_read_only_file_is_not_replaced(machine: Machine, backups: Backups) -> None:
    path = installed("cursor", machine)
    path.chmod(0o444)
    with pytest.raises(PermissionError):
        write(plan("cursor", machine), backups)
    assert path.read_bytes() == golden("cursor", "before").read_bytes()
    assert [one.name for one in path.parent.iterdir()] == ["mcp.json"]


def test_a_link_stays_a_link_and_modes_stay(machine: Machine, backups: Backups, tmp_path: Path) -> None:
    path = installed("cursor", machine)
    target = tmp_path / "dotfiles.json"
    path.rename(target)
    target.chmod(0o640)
    path.symlink_to(target)
    write(plan("cursor", machine), backups)
    assert path.is_symlink()
    assert b"mcp-optimizer" in target.read_bytes()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_file_that_changes_after_the_preview_is_not_written(machine: Machine, backups: Backups) -> None:
    path = installed("cursor", machine)
    change = plan("cursor", machine)
    path.write_bytes(b'{"mcpServers": {}}')
    with pytest.raises(FileChanged):
        write(change, backups)
    assert path.read_bytes() == b'{"mcpServers": {}}'


def test_copies_are_private_and_bounded(machine: Machine, backups: Backups, tmp_path: Path) -> None:
    installed("cursor", machine)
    for number in range(25):
        write(
            plan("cursor", machine, name=f"n{number}", gateway=OurGateway("/x/mcp-optimizer", ("serve", str(number)))),
            backups,
        )
    kept = list((tmp_path / "state" / "clients").iterdir())
    assert len(kept) <= 40
    assert {stat.S_IMODE(one.stat().st_mode) for one in kept} == {0o600}
    assert stat.S_IMODE((tmp_path / "state" / "clients").stat().st_mode) == 0o700


@pytest.mark.parametrize("client", ["claude-code", "cursor", "codex", "goose", "continue"])
def test_the_preview_shows_our_entry_and_no_secret_of_others(client: str, machine: Machine) -> None:
    installed(client, machine)
    change = plan(client, machine)
    kind = change.place.kind
    everything = "\n".join(shown_change(change.before, change.text, "f", kind, [change.name, change.entry]))
    assert "/opt/bin/mcp-optimizer" in everything
    assert "+" in everything
    assert "hunter2" not in everything
    turned = "\n".join(shown_change(change.text, change.before, "f", kind, [change.name, change.entry]))
    assert "hunter2" not in turned


def test_a_key_is_a_reference_or_refused(machine: Machine) -> None:
    gateway = OurGateway(url="https://gateway.example/mcp", key_variable="GATEWAY_KEY")
    installed("codex", machine)
    assert plan("codex", machine, gateway).entry["bearer_token_env_var"] == "GATEWAY_KEY"
    installed("cursor", machine)
    assert plan("cursor", machine, gateway).entry["headers"] == {"Authorization": "Bearer ${env:GATEWAY_KEY}"}
    installed("cline", machine)
    with pytest.raises(CannotConnect, match="cannot read a key from a variable"):
        plan("cline", machine, gateway)


def test_programs_of_uvx_and_pipx_run_are_recognised() -> None:
    assert is_temporary(f"{os.sep}home/a/.cache/uv/archive-v0/x/bin/mcp-optimizer")
    assert is_temporary("/home/a/.local/share/pipx/.cache/x/bin/mcp-optimizer")
    assert not is_temporary("/home/a/.local/bin/mcp-optimizer")


@pytest.mark.parametrize("client", CLIENTS.values(), ids=lambda client: client.name)
def test_the_documentation_shows_the_entry_that_is_written(client: ClientProgram) -> None:
    docs = Path(__file__).parents[4] / "docs"
    if (own := docs / "clients" / f"{client.name}.md").exists():
        section = own.read_text(encoding="utf-8").partition("## The entry\n")[2]
    else:
        page = (docs / "connecting.md").read_text(encoding="utf-8")
        section = page.partition(f"## {client.title}\n")[2].partition("\n## ")[0]
    assert f"`mcp-optimizer connect {client.name}`" in section
    shown = parsed(section.partition(f"```{client.kind.lower()}\n")[2].partition("```")[0], client.kind)
    for key in client.known_files[0].servers[0]:
        shown = shown[key]
    gateway = OurGateway("/path/to/mcp-optimizer-gateway", ("serve", "--config", "/path/to/mcp.json"))
    (entry,) = shown if isinstance(shown, list) else shown.values()
    assert entry == client.writing.entry(gateway, DEFAULT_NAME)
