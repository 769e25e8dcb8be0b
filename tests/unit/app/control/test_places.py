"""The folder of a gateway's socket is private, and what others put there is not used."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_optimizer.app.control.wire import identity, socket_name, sockets
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.runtime.sharing.places import bound_socket, folders, is_private, made_folder


@pytest.fixture
def runtime() -> dict[str, str]:
    return {"XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"]}


def test_the_folder_and_the_socket_are_for_their_owner_only(runtime: dict[str, str]) -> None:
    folder = made_folder(runtime)
    assert folder is not None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    listening, path = bound_socket(folder, socket_name("a", 1))
    with listening:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert sockets("a", runtime) == [path]
        assert sockets("b", runtime) == []


def test_a_folder_that_others_can_enter_is_not_used(runtime: dict[str, str]) -> None:
    preferred = folders(runtime)[0]
    preferred.mkdir(mode=0o755)
    preferred.chmod(0o755)
    assert preferred not in (made_folder(runtime), *(path.parent for path in sockets("", runtime)))


def test_a_link_to_a_private_folder_is_not_followed(runtime: dict[str, str], tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    preferred = folders(runtime)[0]
    preferred.symlink_to(elsewhere)
    assert not is_private(preferred)
    assert made_folder(runtime) != preferred


def test_links_and_files_among_the_sockets_are_not_looked_at(runtime: dict[str, str], tmp_path: Path) -> None:
    folder = made_folder(runtime)
    assert folder is not None
    (folder / "a-1.sock").write_text("no socket")
    (folder / "a-2.sock").symlink_to(tmp_path)
    assert sockets("a", runtime) == []


def test_the_newest_socket_comes_first(runtime: dict[str, str]) -> None:
    folder = made_folder(runtime)
    assert folder is not None
    made = [bound_socket(folder, socket_name("a", pid)) for pid in (1, 2, 3)]
    for age, (listening, path) in enumerate(made):
        listening.close()
        os.utime(path, (1_000 - age, 1_000 - age))
    assert [path.name for path in sockets("a", runtime)] == ["a-1.sock", "a-2.sock", "a-3.sock"]


def test_what_a_dead_process_with_our_id_left_is_replaced(runtime: dict[str, str]) -> None:
    folder = made_folder(runtime)
    assert folder is not None
    old, path = bound_socket(folder, "a-1.sock")
    old.close()
    new, path = bound_socket(folder, "a-1.sock")
    with new, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


LOOKING = """
from mcp_optimizer.app.control import gateway_client
from mcp_optimizer.config.settings import Settings

gateway_client._HELLO_SECONDS = 0.001
print(flush=True)
while True:
    gateway_client.running_gateways(Settings(demo=True))
"""


@pytest.mark.process
def test_commands_that_look_while_a_gateway_starts_leave_its_socket_alone(runtime: dict[str, str]) -> None:
    folder = made_folder(runtime)
    assert folder is not None
    with subprocess.Popen([sys.executable, "-c", LOOKING], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        try:
            for number in range(1_000):
                listening, path = bound_socket(folder, socket_name(identity(Settings(demo=True)), number))
                with listening:
                    assert path.exists()
                    path.unlink()
        finally:
            process.kill()


def test_a_place_whose_path_is_too_long_for_a_socket_is_left_out(tmp_path: Path) -> None:
    long = {"XDG_RUNTIME_DIR": str(tmp_path / ("long" * 40))}
    for folder in folders(long):
        assert len(os.fsencode(folder)) < 70


def test_gateways_with_other_servers_have_another_identity(tmp_path: Path) -> None:
    one = Settings(config=tmp_path / "a.json")
    assert identity(one) == identity(Settings(config=tmp_path / "x" / ".." / "a.json", detail="full"))
    others = [
        Settings(config=tmp_path / "b.json"),
        Settings(config=tmp_path / "a.json", servers="one"),
        Settings(config=tmp_path / "a.json", database="none"),
        Settings(config=tmp_path / "a.json", database=str(tmp_path / "other.db")),
        Settings(demo=True),
    ]
    assert len({identity(settings) for settings in [one, *others]}) == 6


def test_a_password_of_the_database_is_no_part_of_the_identity() -> None:
    places = ("postgresql://ada:first@host/name", "postgresql://ada:second@host/name")
    assert len({identity(Settings(demo=True, database=place)) for place in places}) == 1


def test_a_server_file_that_is_a_link_to_itself_has_an_identity(tmp_path: Path) -> None:
    loop = tmp_path / "servers.json"
    loop.symlink_to(loop)
    assert identity(Settings(config=loop)) != identity(Settings(demo=True))
