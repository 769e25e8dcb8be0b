"""Tokens, calls and time of tasks done one by one, with `select`, and as scripts.

    python -m benchmarks.scripts [--servers FOLDER] [--only NAME] [--write]

Each task is done three ways through a real gateway on stdio, and each way's answer is checked. Tokens (cl100k) are
those of what a model sends and reads: requests and results, and apart from them its searches (discovery), which show
signatures for the first two ways and Python stubs for scripts. No model runs: the calls, the expressions and the
scripts were written by somebody who knew the results. What a model reads again in later turns is not counted, which
favours one by one.

The real servers are looked for in FOLDER (or MCP_OPTIMIZER_REAL_SERVERS). Without them the tasks on the demo servers
are measured. To install them:

    cd FOLDER && npm install @modelcontextprotocol/server-filesystem @modelcontextprotocol/server-memory
    python -m venv pyenv && pyenv/bin/pip install "mcp<2" mcp-server-git mcp-server-sqlite mcp-server-fetch

The catalog is warm: every task was done before, so that find_tool knows the shapes of results as it does in a gateway
that is in use. `--cold` measures with a new catalog, of which only the declared shapes are known.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.paths import RESULTS
from benchmarks.scripts_tasks import kanban, kanban_changes, real, real_changes, sql_and_web
from benchmarks.scripts_tasks.measuring import ONE, SCRIPT, WAYS, Gateway, Outcome, measured
from benchmarks.scripts_tasks.model import Spent, compact
from benchmarks.scripts_tasks.task import Task
from benchmarks.scripts_tasks.world import missing
from mcp_optimizer.domain.own_tools import ScriptMode, own_tools
from mcp_optimizer.token_counter import TokenCounter

RESULT = RESULTS / "scripts.md"
VARIABLE = "MCP_OPTIMIZER_REAL_SERVERS"

PLACE = Path(tempfile.gettempdir()) / "tasks"
"""Always the same, because paths are part of what is counted: a random one has many tokens."""

AIM, WORST = 7.0, 1.2

TASKS: tuple[Task, ...] = (
    *kanban.TASKS,
    *sql_and_web.READING,
    *real.TASKS,
    *kanban_changes.TASKS,
    *sql_and_web.CHANGING,
    *real_changes.TASKS,
)
"""Those that only read come first, so that what they find does not depend on the others."""

Outcomes = dict[str, dict[str, Outcome]]
"""By way, then by task."""


@contextmanager
def place() -> Iterator[Path]:
    """The folder for everything, which must be ours alone."""
    PLACE.mkdir(exist_ok=False)
    try:
        yield PLACE
    finally:
        shutil.rmtree(PLACE, ignore_errors=True)


async def measure(tasks: Sequence[Task], installed: Path | None, *, is_cold: bool) -> Outcomes:
    """Do the tasks all three ways, each in its own gateway and world."""
    found: Outcomes = {}
    with place() as folder:
        learned = folder / "learned.db"
        if not is_cold:
            await measured(Gateway(folder / "shop", installed, str(learned), folder / "log"), tasks, ONE)
        for way in WAYS:
            database = folder / f"{way}.db"
            if not is_cold:
                shutil.copy(learned, database)
            options = ("--scripts", "write") if way == SCRIPT else ()
            gateway = Gateway(folder / "shop", installed, str(database), folder / "log", options)
            found[way] = await measured(gateway, tasks, way)
            print(f"{way}: done", file=sys.stderr)
    return found


def ratio(more: float, less: float) -> str:
    return f"{more / less:.1f}"


def summed(outcomes: Iterable[Outcome]) -> Outcome:
    """Several tasks as if they were one."""
    each = list(outcomes)
    return Outcome(Spent.together(one.discovery for one in each), Spent.together(one.work for one in each))


COLUMNS = (
    ("task", "---"),
    ("calls", "---:"),
    ("one by one", "---:"),
    ("`select`", "---:"),
    ("script", "---:"),
    ("signatures", "---:"),
    ("stubs", "---:"),
    ("all, one by one", "---:"),
    ("all, `select`", "---:"),
    ("all, script", "---:"),
    ("times fewer", "---:"),
    ("than `select`", "---:"),
    ("s, one by one", "---:"),
    ("s, script", "---:"),
)


def row(name: str, one: Outcome, select: Outcome, script: Outcome) -> str:
    cells = [
        name,
        f"{one.work.calls:,}",
        *(f"{outcome.work.tokens:,}" for outcome in (one, select, script)),
        *(f"{outcome.discovery.tokens:,}" for outcome in (one, script)),
        *(f"{outcome.tokens:,}" for outcome in (one, select, script)),
        ratio(one.tokens, script.tokens),
        ratio(select.tokens, script.tokens),
        f"{one.work.seconds:.2f}",
        f"{script.work.seconds:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def table(found: Outcomes, tasks: Sequence[Task]) -> list[str]:
    lines = [f"| {' | '.join(name for name, _ in COLUMNS)} |", f"|{'|'.join(line for _, line in COLUMNS)}|"]
    lines += [row(task.name, *(found[way][task.name] for way in WAYS)) for task in tasks]
    groups = {
        "**one call**": [task.name for task in tasks if found[ONE][task.name].work.calls == 1],
        "**several calls**": [task.name for task in tasks if found[ONE][task.name].work.calls > 1],
        "**together**": [task.name for task in tasks],
    }
    for name, members in groups.items():
        if members:
            lines.append(row(name, *(summed(found[way][task] for task in members) for way in WAYS)))
    return lines


def judged(found: Outcomes, tasks: Sequence[Task]) -> list[str]:
    """What the aims were, and what came out."""
    one, select, script = (summed(found[way].values()) for way in WAYS)
    worse = {task.name: found[SCRIPT][task.name].tokens / found[ONE][task.name].tokens for task in tasks}
    name = max(worse, key=lambda task: worse[task])
    median = statistics.median(1 / each for each in worse.values())
    fewer, over = one.tokens / script.tokens, [task for task, each in worse.items() if each > WORST]
    return [
        f"- {fewer:.1f} times fewer tokens in all than one by one, discovery included "
        f"({one.work.tokens / script.work.tokens:.1f} without); aim {AIM:g}: {'met' if fewer >= AIM else 'not met'}. "
        f"Median of the tasks: {median:.1f}.",
        f"- Of the {script.tokens:,} tokens of scripts, {script.discovery.tokens:,} are discovery; one by one, "
        f"{one.discovery.tokens:,} of {one.tokens:,}.",
        f"- {select.tokens / script.tokens:.1f} times fewer than with `select`, discovery included "
        f"({select.work.tokens / script.work.tokens:.1f} without).",
        f"- The worst task is {name!r}: {worse[name]:.2f} times the tokens of one by one; aim: none over {WORST:g}: "
        f"{'met' if not over else 'not met by ' + ', '.join(over)}.",
        f"- Requests and replies of a client: {one.work.calls} one by one, {select.work.calls} with `select`, "
        f"{script.work.calls} as scripts, besides {one.discovery.calls} and {script.discovery.calls} searches.",
        f"- Seconds spent waiting for the gateway: {one.work.seconds:.1f}, {select.work.seconds:.1f}, "
        f"{script.work.seconds:.1f}.",
        f"- The gateway's own tools cost {definitions(ScriptMode.OFF):,} tokens in every prompt without scripts, "
        f"{definitions(ScriptMode.WRITE):,} with them; that is not counted here.",
    ]


def definitions(mode: ScriptMode) -> int:
    """Tokens of the definitions of the gateway's own tools."""
    return TokenCounter().count_tokens(compact(own_tools(split_calls=False, scripts=mode)))


HEAD = (
    "# Tasks one by one, with `select`, and as scripts",
    "",
    "`python -m benchmarks.scripts`",
    "",
    "Tokens (cl100k) of what a model sends and reads. First without discovery: requests and results one by one, with",
    "an expert's `select`, and as one script. Then discovery: the searches and replies of `find_tool`, with signatures",
    'for the first two ways and with `detail="python"` for scripts. Then all of it. "times fewer" compares one by one',
    "with the script, all of it. `calls` counts the tool calls one by one, pages of long results included; a script",
    "is one request. Seconds are those of the calls, on a busy machine. Every answer was checked.",
    "",
    "No model ran: the calls, the expressions and the scripts were written knowing the results, with searches that",
    "find every tool. What a model sends again with each later turn is not counted, nor is the reasoning between",
    "calls; both would add to one by one.",
    "",
)


def report(found: Outcomes, tasks: Sequence[Task], left_out: Sequence[str]) -> str:
    lines = [*HEAD, *judged(found, tasks), ""]
    if left_out:
        lines += [f"Not installed, so their tasks are left out: {', '.join(left_out)}.", ""]
    return "\n".join([*lines, *table(found, tasks), ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given = os.environ.get(VARIABLE)
    parser.add_argument("--servers", type=Path, default=Path(given) if given else None, metavar="FOLDER")
    parser.add_argument("--only", default="", metavar="NAME", help="the tasks whose name contains this")
    parser.add_argument("--cold", action="store_true", help="with a new catalog")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    options = parser.parse_args()
    left_out = missing(options.servers)
    tasks = [task for task in TASKS if options.only in task.name and not set(left_out) & set(task.servers)]
    installed = None if left_out else options.servers
    if left_out:
        print(f"Not installed: {', '.join(left_out)}. Measuring {len(tasks)} tasks without them.", file=sys.stderr)
    found = asyncio.run(measure(tasks, installed, is_cold=options.cold))
    wrong = [(way, name, one.wrong) for way in WAYS for name, one in found[way].items() if one.wrong]
    for way, name, why in wrong:
        print(f"WRONG {name} ({way}): {why}", file=sys.stderr)
    if wrong:
        return 1
    text = report(found, tasks, left_out)
    print(text)
    if options.write:
        RESULT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
