"""Background tasks are started in one place, `runtime/tasks.py`; other files start only tasks that they wait for."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "mcp_optimizer"

AWAITED = {
    "mcp_optimizer/app/life.py": (1, "the end of a part, waited for under a deadline"),
    "mcp_optimizer/cli/command_gateway.py": (1, "waiting for servers, while their names are shown"),
    "mcp_optimizer/cli/serve.py": (1, "serving and stopping, which the command waits for"),
    "mcp_optimizer/cli/serve_http.py": (2, "serving and stopping, which the command waits for"),
    "mcp_optimizer/cli/serving_process.py": (1, "the first signal, which the command waits for"),
    "mcp_optimizer/dashboard/overview_routes.py": (2, "the next event and the end of a stream, whichever comes first"),
    "mcp_optimizer/serving/relay/listings.py": (
        1,
        "a server's list, whose answer or failure is given to whoever asked",
    ),
    "mcp_optimizer/results/cache.py": (1, "a call, whose answer is shared by whoever makes the same"),
    "mcp_optimizer/runtime/memory.py": (1, "ended by the block that begins it"),
    "mcp_optimizer/runtime/tasks.py": (1, "the one place"),
    "mcp_optimizer/upstream/session_choice.py": (2, "the end of a session or of its client, whichever comes first"),
    "mcp_optimizer/upstream/questions.py": (1, "a call, whose result is given to whoever comes back for it"),
    "mcp_optimizer/upstream/pool.py": (1, "the servers, waited for when the pool stops"),
}
"""How many tasks a file starts itself, and what waits for them. Shorten this list; do not add to it."""


def begun_in(source: str) -> int:
    if "create_task" not in source and "ensure_future" not in source:
        return 0
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    names = [ast.unparse(call.func).rpartition(".")[2] for call in calls]
    return sum(name in ("create_task", "ensure_future") for name in names)


def test_background_work_is_begun_in_one_place() -> None:
    found = Counter(
        {
            path.relative_to(PACKAGE.parent).as_posix(): begun_in(path.read_text("utf-8"))
            for path in PACKAGE.rglob("*.py")
        }
    )
    assert +found == {path: count for path, (count, _) in AWAITED.items()}


def test_a_task_is_found_however_it_is_begun() -> None:
    for source in ("asyncio.create_task(work())", "create_task(work())", "loop.create_task(x)", "ensure_future(x)"):
        assert begun_in(source) == 1
    assert begun_in("anyio.create_task_group()") == 0
