"""Fixtures that all tests share: server files, the plain test server, private folders and PostgreSQL."""

from __future__ import annotations

import gc
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.postgres import Postgres, find_programs, running_postgres
from tests.trying import QUICK, SOME, USUAL, spread_out
from tests.warm import warm

ROOT = Path(__file__).parent.parent
DATA = ROOT.parent / "shared" / "data"
PLAIN_SERVER = Path(__file__).parent / "servers" / "plain.py"

# In `make check`, property tests try only a few cases; in `make test` as many as in CI. `--hypothesis-profile default`
# tries a hundred. The time that it takes to make them depends on the load; Hypothesis's own profile for CI does not
# look at it either.
for name, cases in (("quick", QUICK), ("some", SOME)):
    settings.register_profile(name, max_examples=cases, deadline=None, suppress_health_check=[HealthCheck.too_slow])
if settings.get_current_profile_name() == "ci":
    # There the same cases are tried each time.
    settings.register_profile("ci", settings.get_profile("ci"), max_examples=SOME)
    settings.load_profile("ci")
else:
    settings.load_profile("some")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores: a test that starts processes waits a fifth of its time. Without those, a worker
    more only collects all tests once more.
    """
    return (os.cpu_count() or 1) + (0 if "not process" in config.option.markexpr else 1)


def pytest_collection_finish() -> None:
    """What is collected stays until the end. Otherwise each full garbage collection looks through all of it, which
    takes most of the time of tests that make many objects.
    """
    gc.collect()
    gc.freeze()


Entry = dict[str, Any]
WriteServers = Callable[[dict[str, Entry]], Path]


def plain_server(name: str, *options: object) -> Entry:
    """An entry that starts the plain test server."""
    return {"command": sys.executable, "args": [str(PLAIN_SERVER), name, *map(str, options)]}


@pytest.fixture
def write_servers(tmp_path: Path) -> WriteServers:
    def write(entries: dict[str, Entry]) -> Path:
        path = tmp_path / "mcp.json"
        path.write_text(json.dumps({"mcpServers": entries}))
        return path

    return write


@pytest.fixture(scope="session")
def warm_start() -> Iterator[None]:
    """Processes that tests start with `tests.warm` are forks of one that has its imports."""
    # What a shell has in the background, or nohup starts, ignores these, and processes that tests start would, too.
    for name, usual in (("SIGHUP", signal.SIG_DFL), ("SIGINT", signal.default_int_handler)):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    with warm():
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that use PostgreSQL as starting a process, and cases that `make check` leaves out as slow."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if "postgres" in getattr(item, "fixturenames", ()) or parameters.get("place") == "postgresql":
            item.add_marker("process")
        if parameters and not item.get_closest_marker("process"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for found in cases.values():
        stay = {id(item) for item in spread_out(found, _cases_in_check(found[0]))}
        for item in found:
            if id(item) not in stay:
                item.add_marker("slow")


def _cases_in_check(item: pytest.Item) -> int:
    if marker := item.get_closest_marker("cases_in_check"):
        count: int = marker.args[0]
        return count
    return USUAL if "unit" in item.path.parts else sys.maxsize


@pytest.fixture(scope="session")
def _folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One folder for each test of a process: to look for a free name among thousands takes longer than most tests."""
    return (tmp_path_factory.getbasetemp() / f"{number:05}" for number in itertools.count())


@pytest.fixture(autouse=True)
def _own_folders(_folders: Iterator[Path]) -> Iterator[Path]:
    """Keep tests out of the folders, and free of the settings, of the user who runs them."""
    folder, before = next(_folders), os.environ.copy()
    for name in [name for name in before if name.startswith("MCP_OPTIMIZER_")]:
        del os.environ[name]
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        os.environ[name] = str(folder / name.lower())
    # Most tests look at one gateway and its servers. Those of shared ones take this back.
    os.environ["MCP_OPTIMIZER_SHARED"] = "0"
    # The paths above are too long for sockets.
    runtime = tempfile.mkdtemp(prefix="mcpo-")
    os.environ["XDG_RUNTIME_DIR"] = runtime
    yield folder
    try:
        os.rmdir(runtime)
    except OSError:
        shutil.rmtree(runtime, ignore_errors=True)
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})
    if folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def tmp_path(_own_folders: Path) -> Path:
    """As pytest's own, but only tests that ask for it have one, and it is gone when the test is over."""
    _own_folders.mkdir()
    return _own_folders


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One PostgreSQL server for all tests of a process. Tests that need it are skipped where it is not installed."""
    programs = find_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    with running_postgres(programs) as running:
        yield running


@pytest.fixture
def postgres_url(postgres: Postgres) -> str:
    """The URL of an empty database."""
    return postgres.new_database()


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """Where a catalog is stored: SQLite, then PostgreSQL, each empty."""
    if request.param == "sqlite":
        return tmp_path / "folder" / "catalog.db"
    url: str = request.getfixturevalue("postgres_url")
    return url
