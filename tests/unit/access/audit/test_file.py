"""The file of the audit: whole lines that only their owner can read, put aside when it is large, shared."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.access.audit.audit_file import AuditFile, kept_files, lock_of, locked, verify
from mcp_optimizer.domain.audit import AuditEntry, bounded

HOSTILE = 'a\nb\r\x1b[2J\x1b]0;title\x07\x7f\x9b1m\u2028\u202e\ud800"\\' + "\U0001f600"


def entry(number: int = 0, **fields: Any) -> AuditEntry:
    return AuditEntry(1_800_000_000_000 + number, method="tools/call", outcome=str(number))._replace(**fields)


def file_at(path: Path, megabytes: float = 10, files: int = 5) -> AuditFile:
    return AuditFile(path, megabytes, files)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]


def test_an_entry_is_a_line_that_only_its_owner_can_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "audit.jsonl"
    file_at(path).append([entry(1, tool="echo", caller="key:ci"), entry(2, arguments="{}")])
    first, second = lines_of(path)
    assert (first["at"], first["caller"], first["tool"]) == ("2027-01-15T08:00:00.001Z", "key:ci", "echo")
    assert "arguments" not in first
    assert second["arguments"] == "{}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_file_that_others_can_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.touch(0o644)
    file_at(path).append([entry()])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_name_can_end_a_line_or_speak_to_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    hostile = bounded(entry(tool=HOSTILE, server=HOSTILE * 100_000, client=HOSTILE, arguments=HOSTILE * 10_000))
    file_at(path).append([hostile, entry(1)])
    written = path.read_bytes()
    assert len(written.splitlines()) == written.count(b"\n") == 2
    assert all(byte == 10 or 32 <= byte < 127 for byte in written)
    assert len(written) < 200_000
    assert lines_of(path)[0]["tool"] == HOSTILE
    assert verify([path], is_complete=True).problems == ()


@pytest.mark.parametrize("tool", ["echo", 'a"\\/\n\x1f\x7f', "ü", "\ud800"])
def test_a_line_is_written_alike_whatever_characters_its_names_have(tmp_path: Path, tool: str) -> None:
    path = tmp_path / "audit.jsonl"
    file_at(path).append([entry(7, tool=tool, milliseconds=0.001), entry(8, tool=tool, milliseconds=1234567.891)])
    for line in path.read_text(encoding="ascii").splitlines():
        assert line == json.dumps(json.loads(line), separators=(",", ":")).replace("\x7f", "\\u007f")


def test_a_symbolic_link_is_refused_and_what_it_points_to_is_not_touched(tmp_path: Path) -> None:
    target, path = tmp_path / "target", tmp_path / "audit.jsonl"
    target.write_text("mine")
    path.symlink_to(target)
    with pytest.raises(OSError, match="symbolic link; name the file itself with audit_file"):
        file_at(path).append([entry()])
    path.unlink()
    lock_of(path).unlink()
    lock_of(path).symlink_to(target)
    with pytest.raises(OSError, match=r"audit\.jsonl\.lock"):
        file_at(path).append([entry()])
    assert target.read_text() == "mine"


def test_a_pipe_that_nobody_reads_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    os.mkfifo(path)
    with pytest.raises(OSError, match="is not a file"):
        file_at(path).append([entry()])


def test_a_large_file_is_put_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file = file_at(path, megabytes=0.002, files=2)
    for number in range(20):
        file.append([entry(number)])
    names = {found.name for found in tmp_path.iterdir()}
    assert names == {"audit.jsonl", "audit.jsonl.1", "audit.jsonl.2", "audit.jsonl.lock"}
    assert all(found.stat().st_size <= 2_000 for found in tmp_path.iterdir())
    kept, is_complete = kept_files(path, 2)
    numbers = [line["number"] for found in kept for line in lines_of(found)]
    assert numbers == list(range(numbers[0], 20))
    assert not is_complete
    assert verify(kept, is_complete=is_complete).problems == ()


def test_nothing_is_kept_aside_if_nothing_should_be(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file = file_at(path, megabytes=0.001, files=0)
    for number in range(10):
        file.append([entry(number)])
    assert {found.name for found in tmp_path.iterdir()} == {"audit.jsonl", "audit.jsonl.lock"}


def test_who_cannot_have_the_lock_still_writes(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file = AuditFile(path, megabytes=0.001, files=5, patience=0.01)
    with locked(lock_of(path), 1) as is_alone:
        assert is_alone
        for number in range(5):
            file.append([entry(number)])
    assert [line["number"] for line in lines_of(path)] == [0, 1, 2, 3, 4]
    # Nothing was put aside meanwhile.
    assert kept_files(path, 5) == ([path], True)


async def finished(source: str, *arguments: object) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(source), *map(str, arguments), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    return out.decode()


WRITING = """
    import sys
    from pathlib import Path
    from mcp_optimizer.access.audit.audit_file import AuditFile
    from mcp_optimizer.domain.audit import AuditEntry

    file = AuditFile(Path(sys.argv[1]), float(sys.argv[2]), 1_000)
    for number in range(0, 600, 3):
        file.append([AuditEntry(number + more, caller=sys.argv[3], method="x" * 300) for more in range(3)])
"""


@pytest.mark.process
async def test_processes_share_a_file_that_is_put_aside_while_they_write(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    await asyncio.gather(*(finished(WRITING, path, 0.05, name) for name in ("one", "two", "three")))
    kept, is_complete = kept_files(path, 1_000)
    assert len(kept) > 10
    found = verify(kept, is_complete=is_complete)
    assert (found.problems, found.lines, found.chains) == ((), 1_800, 3)
    written = [line for one in kept for line in lines_of(one)]
    for name in ("one", "two", "three"):
        assert [line["number"] for line in written if line["caller"] == name] == list(range(600))


FULL = """
    import resource, sys
    from pathlib import Path
    from mcp_optimizer.access.audit.audit_file import AuditFile
    from mcp_optimizer.domain.audit import AuditEntry

    file = AuditFile(Path(sys.argv[1]), 10, 5)
    file.append([AuditEntry(1)])
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, resource.RLIM_INFINITY))
    try:
        file.append([AuditEntry(number) for number in range(20)])
    except OSError as error:
        print(error.strerror)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    file.append([AuditEntry(2)])
"""


@pytest.mark.process
async def test_a_batch_that_the_disk_has_no_room_for_leaves_no_half_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    assert await finished(FULL, path) == "File too large\n"
    assert [line["number"] for line in lines_of(path)] == [0, 0]
    assert verify([path], is_complete=True).problems == ()
