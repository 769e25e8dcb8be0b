"""`python command.py SOCKET ARGUMENT ...` is `python ARGUMENT ...` in a fork of a process that has its imports.

For whoever started it, it is that process: it passes on its streams, signals and exit code, and takes its process along
when it is killed. Its process id is another: a test that looks at memory or children starts the program without it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGABRT)


def main(place: str, arguments: list[str]) -> int:
    asked = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(place)
        data = json.dumps(asked).encode()
        sent = socket.send_fds(connection, [data], [0, 1, 2])
        connection.sendall(data[sent:])
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("r") as answers:
            pid = int(answers.readline())
            _pass_on_signals(pid)
            return int(answers.readline())


def _pass_on_signals(pid: int) -> None:
    # A thread waits for them: a handler would not run if one came just before the main thread begins to read.
    def wait() -> None:
        while True:
            os.kill(pid, signal.sigwait(PASSED_ON))

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    # Kept until there is a process that can be sent them.
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    code = main(sys.argv[1], sys.argv[2:])
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        os.kill(os.getpid(), -code)
    sys.exit(code)
