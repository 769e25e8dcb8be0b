"""The plain test server, as somebody who does not want to end.

python stubborn.py NAME MANNER MARKER
Manners, one or several with a comma: eof (does not end when its stdin does), term (nor at SIGTERM), child (starts a
process that does neither), session (starts one in a session of its own), orphan (starts one whose parent ends at once,
in a session of its own). MARKER stands in the arguments of every process, so that a test can find them.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

NAME, MANNER, MARKER = sys.argv[1:4]
MANNERS = MANNER.split(",")
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def sleep_for_ever() -> None:
    while True:
        time.sleep(60)


def start(manner: str) -> None:
    command = [sys.executable, __file__, NAME, manner, MARKER]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=manner != "stays")


if "stays" in MANNERS or "leaves" in MANNERS:
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    sleep_for_ever()
if "middle" in MANNERS:
    start("leaves")
    os._exit(0)
for manner, started in (("child", "stays"), ("session", "leaves"), ("orphan", "middle")):
    if manner in MANNERS:
        start(started)
if "term" in MANNERS:
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
sys.argv = ["plain.py", NAME]
with contextlib.suppress(SystemExit):
    runpy.run_path(str(Path(__file__).with_name("plain.py")), run_name="__main__")
if "eof" in MANNERS or "term" in MANNERS:
    sleep_for_ever()
