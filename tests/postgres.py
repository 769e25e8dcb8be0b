"""A private PostgreSQL for tests: in its own folder, on its own port, removed after the tests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.waiting import until

PASSWORD = "s3cret-of-tests"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "100",
}


@dataclass(frozen=True)
class Postgres:
    """A running server."""

    programs: Path
    port: int
    pid: int

    def url(self, name: str) -> str:
        return f"postgresql://optimizer:{PASSWORD}@127.0.0.1:{self.port}/{name}"

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        ask(self.url("postgres"), f"CREATE DATABASE {name} TEMPLATE template0")
        return self.url(name)

    def restart(self) -> None:
        """Have it drop all connections and recover, as after a crash: it does when one of its processes is killed."""
        rows = ask(self.url("postgres"), "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")
        os.kill(int(rows[0][0]), signal.SIGKILL)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Nothing answers meanwhile, and nothing refuses: connections stay open, and new ones are not served."""
        # The parent first, so that no process is added meanwhile.
        os.kill(self.pid, signal.SIGSTOP)
        processes = [self.pid, *_children(self.pid)]
        try:
            for process in processes[1:]:
                os.kill(process, signal.SIGSTOP)
            yield
        finally:
            for process in processes:
                os.kill(process, signal.SIGCONT)


@contextlib.asynccontextmanager
async def without_connections(url: str) -> AsyncIterator[None]:
    """Everybody loses their connections, and gets no other: all that the server allows are taken meanwhile."""
    import asyncpg

    held: list[asyncpg.Connection[Any]] = []

    async def take() -> None:
        with contextlib.suppress(asyncpg.TooManyConnectionsError):
            while True:
                held.append(await asyncpg.connect(url))

    over = asyncio.Event()

    async def take_what_becomes_free() -> None:
        # Not cancelled: a connection that is being made would be lost.
        while not over.is_set():
            await take()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    await over.wait()

    await take()
    mine = [await connection.fetchval("SELECT pg_backend_pid()") for connection in held]
    theirs = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> ALL($1)"
    others = [row["pid"] for row in await held[0].fetch(theirs, mine)]
    taking = asyncio.create_task(take_what_becomes_free())
    try:
        for pid in others:
            await held[0].execute("SELECT pg_terminate_backend($1)", pid)
        left = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY($1)"

        async def are_gone() -> bool:
            return not await held[0].fetchval(left, others)

        await until(are_gone, timeout=60)
        yield
    finally:
        over.set()
        await asyncio.wait({taking})
        for connection in held:
            await connection.close()


@contextlib.contextmanager
def full_disk(url: str, tables: Sequence[str] = ("kept_result", "kept_chunk", "event", "audit")) -> Iterator[None]:
    """Every row that is added meets what PostgreSQL reports when the disk is full."""
    ask(
        url,
        "CREATE FUNCTION is_full() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'no space left on device' "
        "USING ERRCODE = '53100'; END $$ LANGUAGE plpgsql",
    )
    for table in tables:
        ask(url, f"CREATE TRIGGER full_disk BEFORE INSERT ON {table} EXECUTE FUNCTION is_full()")
    try:
        yield
    finally:
        for table in tables:
            ask(url, f"DROP TRIGGER full_disk ON {table}")
        ask(url, "DROP FUNCTION is_full()")


def ask(url: str, statement: str) -> list[tuple[str, ...]]:
    """Run a statement as another program would, with psql; the catalog's schema comes first in its search path."""
    programs = find_programs()
    assert programs is not None
    done = subprocess.run(
        [f"{programs}/psql", "-XAtq", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-c", statement, url],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PGOPTIONS": "-c search_path=mcp_optimizer,public"},
    )
    assert done.returncode == 0, done.stderr
    return [tuple(line.split("\t")) for line in done.stdout.splitlines()]


def find_programs() -> Path | None:
    """The folder with PostgreSQL's programs, if it is installed. Debian keeps them out of the PATH."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if all((folder / name).exists() for name in ("initdb", "psql"))), None)


@contextlib.contextmanager
def running_postgres(programs: Path, settings: Mapping[str, str] = MappingProxyType({})) -> Iterator[Postgres]:
    """A server that runs until the context exits."""
    folder = Path(tempfile.mkdtemp(prefix="mcp-optimizer-pg-"))
    try:
        with _started(programs, folder, settings) as postgres:
            yield postgres
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _started(programs: Path, folder: Path, more: Mapping[str, str]) -> Iterator[Postgres]:
    data, secret, log = folder / "data", folder / "password", folder / "log"
    secret.write_text(PASSWORD)
    options = _unprivileged(folder, secret)
    initdb = [f"{programs}/initdb", f"--pgdata={data}", "--username=optimizer", f"--pwfile={secret}", "--no-sync"]
    initdb += ["--auth=scram-sha-256", "--encoding=UTF8"]
    subprocess.run(initdb, check=True, capture_output=True, timeout=120, **options)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = [f"--{name}={value}" for name, value in {**_SETTINGS, **more, "port": port}.items()]
    with log.open("wb") as output:
        command = [f"{programs}/postgres", "-D", str(data), *settings]
        process = subprocess.Popen(command, stdout=output, stderr=output, **options)
    try:
        postgres = Postgres(programs, port, process.pid)
        _wait_for(postgres, process, log)
        yield postgres
    finally:
        # SIGINT does not wait for clients that are still connected.
        process.send_signal(signal.SIGINT)
        process.wait(30)


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in listed.split()]


def _wait_for(postgres: Postgres, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    ready = [f"{postgres.programs}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(postgres.port)]
    while subprocess.run(ready, check=False).returncode:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def _unprivileged(*paths: Path) -> dict[str, Any]:
    """Options that start PostgreSQL as an unprivileged user, because it refuses to run as root."""
    if os.name != "posix" or os.geteuid() != 0:
        return {}
    import pwd

    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    user = known.get("postgres") or known["nobody"]
    for path in paths:
        os.chown(path, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "cwd": paths[0]}
