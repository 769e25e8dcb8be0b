"""Three small MCP servers with real state behind them: a kanban system, a read-only shop database, a web.

Anything that needs a live upstream (demonstrations, benchmarks, tests) starts them by these commands.
The servers know nothing of the gateway that may stand in front of them.
"""

import sys


def demo_server_commands() -> dict[str, list[str]]:
    """The command line that starts each demo server over stdio, by server name."""
    return {name: [sys.executable, "-P", "-m", f"{__name__}.{name}"] for name in ("kanban", "sql", "web")}
