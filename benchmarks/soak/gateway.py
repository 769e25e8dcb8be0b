"""The gateway over HTTP as `serve` runs it, which writes the number of its tasks to a file on SIGUSR1.

Started by `soak`, as a module, with FILE OPTION=VALUE ...
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from mcp_optimizer.cli.command_gateway import run
from mcp_optimizer.cli.serve import make_room
from mcp_optimizer.cli.serve_http import serve_http
from mcp_optimizer.config.settings import load_settings


async def main() -> None:
    path, options = Path(sys.argv[1]), dict(option.split("=", 1) for option in sys.argv[2:])

    def count() -> None:
        path.write_text(str(len(asyncio.all_tasks())), encoding="utf-8")

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, count)
    await serve_http(load_settings(options))


if __name__ == "__main__":
    make_room()
    run(main())
