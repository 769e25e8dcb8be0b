"""Files are replaced whole, for their owner, and by one process at a time."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_optimizer.config.textfiles.writing import FileChanged, replace_file

ADDS = """
import sys
from pathlib import Path
from mcp_optimizer.config.textfiles.writing import FileChanged, replace_file
path, name, done = Path(sys.argv[1]), sys.argv[2], 0
for _ in range(80):
    before = path.read_bytes()
    try:
        replace_file(path, before.decode() + name + "\\n", expected=before)
        done += 1
    except FileChanged:
        pass
print(done)
"""


@pytest.mark.process
def test_what_one_process_wrote_is_never_lost_to_another(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    started = [
        subprocess.Popen([sys.executable, "-c", ADDS, path, str(number)], stdout=subprocess.PIPE, text=True)
        for number in range(4)
    ]
    said = [int(one.communicate(timeout=60)[0]) for one in started]
    written = path.read_text().split()
    assert [written.count(str(number)) for number in range(4)] == said


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664, 0o400 | 0o200])
def test_a_private_file_keeps_no_rights_of_others(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a")
    path.chmod(mode)
    replace_file(path, "b", expected=b"a")
    assert stat.S_IMODE(path.stat().st_mode) == mode
    replace_file(path, "c", expected=b"b", private=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give files away")
def test_what_root_edits_stays_the_user_s(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a")
    os.chown(path, 65_533, 65_532)
    replace_file(path, "b", expected=b"a")
    assert (path.stat().st_uid, path.stat().st_gid) == (65_533, 65_532)


def test_a_file_that_changed_stays_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"other")
    with pytest.raises(FileChanged):
        replace_file(path, "b", expected=b"a")
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"other"]
