"""The plain test server, made hard to stop.

python stubborn.py NAME MANNER MARKER
MANNER is one or more of these, separated by commas: eof (does not exit when its stdin closes), term (nor on SIGTERM),
child (starts a process that ignores both), session (starts such a process in its own session), orphan (starts one in
its own session whose parent exits at once). MARKER is in the arguments of every process, so that a test can find them.
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
