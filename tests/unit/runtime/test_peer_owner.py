"""Who owns the other end of a connection: real sockets, of this user and of another, and tables as Linux has them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from mcp_optimizer.runtime.peer_owner import owner_of_peer

STRANGER = 12_345
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
PEER, OWN = ("127.0.0.1", 40_000), ("127.0.0.1", 8_765)

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
as_root = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can be another user for a moment"
)


@contextmanager
def listening(family: socket.AddressFamily = socket.AF_INET, host: str = "127.0.0.1") -> Iterator[socket.socket]:
    with closing(socket.socket(family)) as made:
        made.bind((host, 0))
        made.listen()
        yield made


def asked(accepted: socket.socket) -> int | None:
    peer, own = accepted.getpeername(), accepted.getsockname()
    return owner_of_peer((peer[0], peer[1]), (own[0], own[1]))


@on_linux
@pytest.mark.parametrize(
    ("family", "host", "to"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET, "127.0.0.1", "::ffff:127.0.0.1"),
        (socket.AF_INET6, "::", "127.0.0.1"),
    ],
)
def test_a_connection_of_our_own_is_ours(family: socket.AddressFamily, host: str, to: str) -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    try:
        with listening(family, host) as server:
            other = socket.AF_INET6 if ":" in to else socket.AF_INET
            with closing(socket.socket(other)) as client:
                client.connect((to, server.getsockname()[1]))
                accepted, _ = server.accept()
                with closing(accepted):
                    assert asked(accepted) == os.getuid()
    except OSError as error:
        pytest.skip(f"this machine has no such address: {error}")


@as_root
@pytest.mark.process
def test_a_connection_of_another_user_is_theirs() -> None:
    with listening() as server:
        line = f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]}; read -r _ <&3"
        with subprocess.Popen(["/bin/bash", "-c", line], user=STRANGER, group=STRANGER, extra_groups=[]):
            accepted, _ = server.accept()
            with closing(accepted):
                assert asked(accepted) == STRANGER


@on_linux
def test_a_connection_that_its_owner_closed_is_nobodys() -> None:
    # The kernel says root of these, so a stranger would be the user of a gateway that root runs.
    with listening() as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        with closing(accepted):
            client.close()
            assert asked(accepted) is None


@pytest.mark.parametrize(
    ("rows", "owner"),
    [
        (["01 1000 77"], 1000),
        ([], None),
        (["06 0 0"], None),
        (["01 0 0"], None),
        (["05 1000 77"], None),
        (["01 1000 77", "01 1001 78"], None),
        (["01 1000 77", "06 0 0"], None),
        (["01 x 77"], None),
        (["01 65534 77"], None),
    ],
)
def test_every_doubt_is_nobody(tmp_path: Path, rows: list[str], owner: int | None) -> None:
    (tmp_path / "tcp").write_text(HEAD + "".join(map(_row, rows)))
    assert owner_of_peer(PEER, OWN, tmp_path) == owner


def _row(told: str) -> str:
    state, user, inode = told.split()
    host = "0100007F" if sys.byteorder == "little" else "7F000001"
    ends, queues = f"{host}:9C40 {host}:223D", "00000000:00000000 00:00000000 00000000"
    return f"   0: {ends} {state} {queues} {user} 0 {inode} 1 0 20 4 30 10 -1\n"


@pytest.mark.parametrize("peer", [("", 1), ("not an address", 1), ("127.0.0.1", 0), ("testclient", 50_000)])
def test_what_is_no_address_of_a_connection_is_nobodys(peer: tuple[str, int]) -> None:
    assert owner_of_peer(peer, OWN) is None


def test_without_tables_nobody_is_known(tmp_path: Path) -> None:
    assert owner_of_peer(PEER, OWN, tmp_path / "none") is None
