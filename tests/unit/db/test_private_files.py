"""Files that we write are readable by their owner only; ours are made private if they are not, others are untouched."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_optimizer.config.settings import Settings
from mcp_optimizer.db.database import open_database
from mcp_optimizer.runtime.local_files import make_folder, replace_file, write_file
from tests.e2e.running import command

pytestmark = pytest.mark.skipif(os.name == "nt", reason="other permissions")


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


async def opened(path: Path) -> list[str]:
    """The permissions of the catalog and the files next to it, while it is in use."""
    database = await open_database(path)
    async with database.engine.begin() as connection:
        await connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS anything (x)")
        found = [mode(file) for file in sorted(path.parent.glob("catalog.db*"))]
    await database.close()
    return found


@pytest.mark.promise("files-private")
async def test_a_new_catalog_its_log_and_the_folders_made_for_it_are_private(tmp_path: Path) -> None:
    path = tmp_path / "one" / "two" / "catalog.db"
    assert await opened(path) == ["0o600"] * 3
    assert [mode(tmp_path / "one"), mode(tmp_path / "one" / "two")] == ["0o700"] * 2


async def test_a_catalog_that_others_could_read_is_made_private_and_the_users_own_folder_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o755)
    path = folder / "catalog.db"
    await opened(path)
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        file.touch()
        file.chmod(0o644)
    assert await opened(path) == ["0o600"] * 3
    assert mode(folder) == "0o755"


async def test_a_catalog_behind_a_link_is_made_private_where_it_is(tmp_path: Path) -> None:
    link, there = tmp_path / "link.db", tmp_path / "catalog.db"
    link.symlink_to(there)
    await (await open_database(link)).close()
    assert mode(there) == "0o600"


async def test_our_own_data_folder_is_made_private() -> None:
    path = Settings().database_place
    assert isinstance(path, Path)
    path.parent.mkdir(parents=True, mode=0o755)
    await opened(path)
    assert mode(path.parent) == "0o700"


async def test_a_damaged_catalog_that_is_set_aside_is_private_and_another_programs_file_keeps_its_mode(
    tmp_path: Path,
) -> None:
    path = tmp_path / "catalog.db"
    path.write_bytes(b"not a database, but perhaps somebody's results")
    path.chmod(0o644)
    await opened(path)
    [aside] = tmp_path.glob("*.unusable-*")
    assert (mode(aside), mode(path)) == ("0o600", "0o600")


async def test_a_link_that_leads_nowhere_and_a_folder_that_is_none_are_errors_and_not_loops(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Not a directory"):
        make_folder(tmp_path / "file" / "inside")
    os.symlink(tmp_path / "nowhere", tmp_path / "link")
    with pytest.raises(OSError, match="File exists"):
        make_folder(tmp_path / "link")


def test_a_file_is_written_anew_also_where_a_longer_one_stood(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("something longer")
    path.chmod(0o666)
    write_file(path, "short")
    assert (path.read_text(), mode(path)) == ("short", "0o600")


def test_what_is_no_file_is_written_to_and_left_as_it_is() -> None:
    before = mode(Path("/dev/null"))
    write_file(Path("/dev/null"), "text")
    assert mode(Path("/dev/null")) == before


@pytest.mark.promise("files-private")
@pytest.mark.process
async def test_the_server_file_and_the_report_that_commands_write_are_private(tmp_path: Path) -> None:
    assert (await command("init", tmp_path / "mcp.json", cold=True)).code == 0
    assert mode(tmp_path / "mcp.json") == "0o600"
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    (dumps / "one.json").write_text('{"tools": [{"name": "a", "inputSchema": {"type": "object"}}]}')
    assert (await command("report", "--tools-dir", dumps, "--html", tmp_path / "report.html", cold=True)).code == 0
    assert mode(tmp_path / "report.html") == "0o600"


def test_a_replaced_file_is_private_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("old")
    path.chmod(0o644)
    replace_file(path, "new")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o600)
    with pytest.raises(UnicodeEncodeError):
        replace_file(path, "half \ud800")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("key", "new")]
