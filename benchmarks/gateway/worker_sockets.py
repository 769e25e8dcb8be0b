"""How connections spread over workers that share a port: one socket, or one for each.

    python -m benchmarks.gateway.worker_sockets [--workers 3]

Each worker answers one line per connection with its number and needs half a millisecond of processor time for it, as a
gateway would. Clients connect in bursts, as after a restart; at the end one worker is killed while they go on.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import time
from collections import Counter
from typing import Any

_BURSTS, _IN_A_BURST = 20, 64
_WORK = 0.0005


def listening(port: int, *, is_shared: bool) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if not is_shared:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(("127.0.0.1", port))
    made.listen(1_024)
    made.setblocking(False)
    return made


async def take_one_a_turn(taken: socket.socket, answer: Any) -> None:
    """Accept one connection in each turn of the event loop, so that the others get theirs."""
    loop = asyncio.get_running_loop()
    accepted: asyncio.Queue[socket.socket] = asyncio.Queue()

    def take() -> None:
        with contextlib.suppress(BlockingIOError):
            accepted.put_nowait(taken.accept()[0])

    loop.add_reader(taken, take)
    tasks = set()
    while True:
        streams = await asyncio.open_connection(sock=await accepted.get())
        tasks.add(asyncio.create_task(answer(*streams)))


def serve(number: int, taken: socket.socket, *, one_a_turn: bool) -> None:
    """A worker, until it is killed."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            until = time.process_time() + _WORK
            while time.process_time() < until:
                pass
            writer.write(f"{number}\n".encode())
        writer.close()

    async def main() -> None:
        if one_a_turn:
            await take_one_a_turn(taken, answer)
        server = await asyncio.start_server(answer, sock=taken)
        await server.serve_forever()

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


async def ask(port: int) -> int | None:
    """Which worker answers on a new connection; None: nobody."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"who\n")
        line = await asyncio.wait_for(reader.readline(), 5)
        writer.close()
        return int(line)
    except (OSError, ValueError, TimeoutError):
        return None


async def measure(port: int, pids: list[int]) -> None:
    largest: list[float] = []
    for _ in range(_BURSTS):
        answers = Counter(await asyncio.gather(*(ask(port) for _ in range(_IN_A_BURST))))
        largest.append(max(answers.values()) / _IN_A_BURST)
        await asyncio.sleep(0.01)
    one_by_one = Counter([await ask(port) for _ in range(600)])
    share = max(one_by_one.values()) / 600
    print(f"  busiest worker's share of a burst of {_IN_A_BURST}: mean {sum(largest) / len(largest):.0%}, ", end="")
    print(f"worst {max(largest):.0%}; of 600 one after another {share:.0%}")
    failed = 0
    for burst in range(_BURSTS):
        if burst == _BURSTS // 2:
            os.kill(pids[0], signal.SIGKILL)
        failed += sum(answer is None for answer in await asyncio.gather(*(ask(port) for _ in range(_IN_A_BURST))))
    print(f"  connections without an answer when one worker is killed: {failed} of {_BURSTS * _IN_A_BURST}")


def run(workers: int, *, is_shared: bool, one_a_turn: bool) -> None:
    first = listening(0, is_shared=is_shared)
    port = first.getsockname()[1]
    sockets = (
        [first] * workers if is_shared else [first, *(listening(port, is_shared=False) for _ in range(workers - 1))]
    )
    pids: list[int] = []
    for number, taken in enumerate(sockets):
        if (pid := os.fork()) == 0:
            for other in set(sockets) - {taken}:
                other.close()
            serve(number, taken, one_a_turn=one_a_turn)
            os._exit(0)
        pids.append(pid)
    for each in set(sockets):
        each.close()
    try:
        asyncio.run(measure(port, pids))
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=3)
    workers = parser.parse_args().workers
    for name, is_shared, one_a_turn in (
        ("one shared socket, all waiting connections accepted at once (the event loop's own way)", True, False),
        ("one shared socket, one connection accepted per turn of the loop", True, True),
        ("SO_REUSEPORT, one socket per worker", False, False),
    ):
        print(name)
        run(workers, is_shared=is_shared, one_a_turn=one_a_turn)


if __name__ == "__main__":
    main()
