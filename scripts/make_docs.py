"""Generates docs/options.md, docs/commands.md, docs/limits.md and a table of docs/running.md from the code, and
docs/requirements.md from the tests.

`python scripts/make_docs.py` writes them; a test fails if the committed pages differ from what it would write.
"""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import typer.main
from pydantic_core import PydanticUndefined

from mcp_optimizer.app.reloading import LIVE, NEEDS_RESTART
from mcp_optimizer.cli import program
from mcp_optimizer.cli.command_options import SERVE_ONLY, SHARED_PANEL, SHORTER, flag
from mcp_optimizer.config.settings import FILE_ONLY, PREFIX, Settings
from mcp_optimizer.limits import Limits

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
REGISTER = ROOT / "tests" / "contract" / "requirements.toml"


def options_page() -> str:
    lines = [
        "# Options",
        "",
        "<!-- Generated from `src/mcp_optimizer/config/settings.py` by `scripts/make_docs.py`; do not edit. -->",
        "",
        "Each option can be given as a flag, as an environment variable, or in a TOML file (`--settings FILE`,",
        "`MCP_OPTIMIZER_SETTINGS`, `./mcp-optimizer.toml` if you [trusted it](folders.md), or `settings.toml` in your",
        "config folder). Flags beat the environment, which beats the file. With a server file that `--config` names in",
        "another folder, as clients do, `./mcp-optimizer.toml` is not read. An unknown option or a bad value is an",
        "error that names its source.",
        "",
        "| flag | environment | file | default | meaning |",
        "|---|---|---|---|---|",
    ]
    for name, info in Settings.model_fields.items():
        default = "" if info.default in (None, "", PydanticUndefined) else f"`{str(info.default).lower()}`"
        only = " (`serve` only)" if name in SERVE_ONLY else ""
        shorter = f", `{SHORTER[name]}`" if name in SHORTER else ""
        shorter += f", `{flag(f'no_{name}')}`" if info.default is True else ""
        places = f"`{flag(name)}`{shorter} | `{PREFIX}{name.upper()}`" if name not in FILE_ONLY else "| "
        lines.append(f"| {places} | `{name}` | {default} | {info.description}{only} |")
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    lines = [
        "# Commands",
        "",
        "<!-- Generated from the commands by `scripts/make_docs.py`; do not edit. -->",
        "",
        "Exit codes: 0 success, 1 failure, 2 wrong usage or configuration. Every command except `init` also takes the",
        "[options](options.md), which `--help-all` lists. Every command that prints has `--json`.",
        "",
    ]
    for name, command in _commands(typer.main.get_command(program())):
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        usage = " ".join([f"mcp-optimizer {name}", *(_shown(argument) for argument in arguments), "[OPTIONS]"])
        lines += [f"## {name}", "", f"    {usage}", "", command.help or "", ""]
        own = [p for p in command.params if p not in arguments and not _is_shared(p)]
        for parameter in [*arguments, *own]:
            label = parameter.opts[0] if parameter in own else _name(parameter)
            lines.append(f"- `{label}`: {parameter.help}")
        lines += [""] if [*arguments, *own] else []
    return "\n".join(lines).rstrip() + "\n"


def _is_shared(parameter: Any) -> bool:
    return parameter.rich_help_panel == SHARED_PANEL or not {"--help", "--help-all"}.isdisjoint(parameter.opts)


def _commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """All commands by name; one of a group is called by both names."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def limits_page() -> str:
    lines = [
        "# Limits",
        "",
        "<!-- Generated from `src/mcp_optimizer/limits.py` by `scripts/make_docs.py`; do not edit. -->",
        "",
        "The gateway trusts neither servers nor clients. Every input that could grow without end has a limit here;",
        "reaching it affects no other server or client. Change a limit in the `[limits]` table of the settings file:",
        "",
        "    [limits]",
        "    message_bytes = 50_000_000",
        "",
        "| limit | default | meaning |",
        "|---|---|---|",
        *(f"| `{name}` | {info.default:,} | {info.description} |" for name, info in Limits.model_fields.items()),
        "",
        "The number of concurrent calls, the duration of a call and how long results are kept are",
        "[options](options.md): `max_in_flight`, `max_waiting`, `client_sessions`, `call_timeout`, `answer_timeout`,",
        "`max_tokens`, `max_rows`, `kept_megabytes`.",
    ]
    return "\n".join(lines) + "\n"


def _name(argument: Any) -> str:
    return str(argument.metavar or argument.name).strip("[]").upper()


def _shown(argument: Any) -> str:
    return _name(argument) if argument.required else f"[{_name(argument)}]"


_LIVE_BEGINS = "<!-- made by scripts/make_docs.py -->\n"
_LIVE_ENDS = "<!-- end -->\n"


def running_page() -> str:
    """The page as it is, with the settings that it says can change."""
    before, _, rest = (DOCS / "running.md").read_text(encoding="utf-8").partition(_LIVE_BEGINS)
    table = [
        "| | settings |",
        "|---|---|",
        f"| take effect at once | {_in_order(LIVE)} |",
        f"| need a restart | {_in_order(NEEDS_RESTART)} |",
    ]
    return before + _LIVE_BEGINS + "\n".join(table) + "\n" + _LIVE_ENDS + rest.partition(_LIVE_ENDS)[2]


def _in_order(names: Collection[str]) -> str:
    return ", ".join(f"`{name}`" for name in Settings.model_fields if name in names)


class Requirement(NamedTuple):
    """What a document requires, and what of it is not proved yet."""

    id: str
    requires: str
    open: str = ""


def requirements() -> dict[str, list[Requirement]]:
    """The register, by the titles of its parts."""
    register = tomllib.loads(REGISTER.read_text(encoding="utf-8"))
    return {
        part["title"]: [
            Requirement(name, said) if isinstance(said, str) else Requirement(name, **said)
            for name, said in part["requirements"].items()
        ]
        for part in register.values()
    }


def proofs() -> Mapping[str, list[str]]:
    """The tests that name each requirement, as pytest calls them."""
    found = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.requirement" not in text:
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for name in _required(node):
                    found[name].append(f"{path.relative_to(ROOT)}::{node.name}")
    return found


def _required(test: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in test.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.requirement":
            yield from (ast.literal_eval(argument) for argument in decorator.args)


def requirements_page() -> str:
    lines = [
        "# Requirements",
        "",
        "<!-- Generated from `tests/contract/requirements.toml` and the tests by `scripts/make_docs.py`; do not",
        "edit. -->",
        "",
        "Each requirement of the documents that this program was built from, and the tests that prove it. What they do",
        "not prove yet is **open**.",
    ]
    proved = proofs()
    for title, required in requirements().items():
        lines += ["", f"## {title}", "", "| | what is required | tests |", "|---|---|---|"]
        for one in required:
            missing = f" **Open:** {one.open}" if one.open else ""
            tests = "<br>".join(f"`{test}`" for test in proved.get(one.id, ()))
            lines.append(f"| {one.id} | {one.requires}{missing} | {tests} |")
    return "\n".join(lines) + "\n"


PAGES = {
    "options.md": options_page,
    "commands.md": commands_page,
    "limits.md": limits_page,
    "running.md": running_page,
    "requirements.md": requirements_page,
}

if __name__ == "__main__":
    for page, make in PAGES.items():
        (DOCS / page).write_text(make(), encoding="utf-8")
