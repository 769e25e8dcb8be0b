"""`python warm_command.py SOCKET ARGUMENT ...` is `python ARGUMENT ...` in a fork of a process that has its imports.

For whoever started it, it is that process: it passes on its streams, signals and exit code, and takes its process along
when it is killed. Its process id is another: a test that looks at memory or children starts the program without it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

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
            for number in PASSED_ON:
                signal.signal(number, lambda number, _: os.kill(pid, number))
            return int(answers.readline())


if __name__ == "__main__":
    code = main(sys.argv[1], sys.argv[2:])
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
