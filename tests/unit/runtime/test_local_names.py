"""Whether names under `.localhost` lead to this gateway alone."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from mcp_optimizer.runtime.local_names import LocalNames

OTHER = {"127.0.0.1": (socket.AF_INET6, "::1"), "::1": (socket.AF_INET, "127.0.0.1")}


@pytest.fixture
def names() -> Iterator[LocalNames]:
    made = LocalNames()
    yield made
    made.close()


def _listening(host: str) -> socket.socket:
    return socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


@pytest.mark.parametrize("host", OTHER)
def test_nobody_else_can_listen_where_a_name_leads(names: LocalNames, host: str) -> None:
    family, other = OTHER[host]
    with _listening(host) as ours:
        port = ours.getsockname()[1]
        names.bind_beside(ours)
        assert names.taken_at == ""
        with pytest.raises(OSError, match="in use"):
            socket.create_server((other, port), family=family)
        # A browser is refused there, and tries the address at which the gateway listens.
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((other, port))
        names.close()
        socket.create_server((other, port), family=family).close()


def test_a_program_that_was_first_is_noticed(names: LocalNames) -> None:
    with _listening("127.0.0.1") as ours:
        port = ours.getsockname()[1]
        with socket.create_server(("::1", port), family=socket.AF_INET6):
            names.bind_beside(ours)
    assert names.taken_at == f"[::1]:{port}"


def test_workers_bind_the_same(names: LocalNames) -> None:
    with _listening("127.0.0.1") as ours:
        names.bind_beside(ours, is_one_of_many=True)
        names.bind_beside(ours, is_one_of_many=True)
        assert names.taken_at == ""
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("::1", ours.getsockname()[1]), family=socket.AF_INET6)


def test_a_machine_without_such_addresses_is_no_danger(names: LocalNames, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_optimizer.runtime.local_names._ADDRESSES", ((socket.AF_INET6, "2001:db8::1"),))
    with _listening("127.0.0.1") as ours:
        names.bind_beside(ours)
    assert names.taken_at == ""
