"""Options and arguments that commands share.

Options are generated from `Settings`, where each is defined once with its description and default; the help of a
command shows its own options first. Names of servers and tools are completed from a running gateway or the server
file. Imported by every command, so nothing heavy is loaded here; completion starts nothing, never fails and never
waits long.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

import typer
from typer.core import TyperCommand

from mcp_optimizer.config.settings import FILE_ONLY, PREFIX, Settings, load_settings, own_server_file
from mcp_optimizer.config.trusted_files import SERVER_FILE, SETTINGS_FILE, folder_file
from mcp_optimizer.errors import OptimizerError
from mcp_optimizer.runtime.logs import configure_logging
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.runtime.terminal_text import in_a_line
from mcp_optimizer.runtime.worker_place import worker_place

if TYPE_CHECKING:
    from mcp_optimizer.app.control.gateway_client import RunningGateway

SERVE_ONLY = frozenset(
    "http allowed_hosts allowed_origins dashboard dashboard_token public_url otlp_endpoint shutdown_delay workers "
    "require_auth open_to_anyone reload dashboard_changes shared".split()
)
ONE_SHOT_ONLY = frozenset({"wait"})

SHARED_PANEL = "Options for every command"

SHOWS_ALL = "mcp_optimizer.help_all"
"""Set in a context's `meta` when the help lists the shared options too."""

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


SHORTER = {"tool_profile": "--profile"}
"""Options that also have a short flag."""


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def with_settings(*, leave_out: frozenset[str] = SERVE_ONLY) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command every option (except those left out); it receives them as one `settings`.

    A command with a parameter `flags` also receives the names of the options on the command line.
    """
    fields = [name for name in Settings.model_fields if name not in leave_out | FILE_ONLY]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(*args: Any, settings_file: Path | None = None, **values: Any) -> None:
            del values["help_all"]
            flags = {name: values.pop(name) for name in fields}
            settings = load_settings(flags, settings_file=settings_file)
            say_passed_over(settings)
            _say_what_others_see(flags)
            configure_logging(settings.log_level, settings.log_format)
            if wants_flags:
                values["flags"] = frozenset(name for name, value in flags.items() if value is not None)
            command(*args, settings=settings, **values)

        parameters = inspect.signature(command, eval_str=True).parameters
        wants_flags = "flags" in parameters
        own = [p for p in parameters.values() if p.name not in ("settings", "flags")]
        given = [_parameter(name) for name in fields]
        signature = inspect.Signature([*own, _help_all(), *given, _settings_file()])
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
        return run

    return decorate


def say_passed_over(settings: Settings) -> None:
    """Name on stderr the files of the working folder that are not used, and how to use them."""
    if worker_place(os.environ) is not None:
        # The process that started this worker said it.
        return
    found: dict[str, str] = {}
    if settings.config is None and not settings.demo:
        here = folder_file(SERVER_FILE, own_server_file())
        found |= {SERVER_FILE: here.problem} if here is not None and here.problem else {}
    if settings.origin.passed_over:
        found[SETTINGS_FILE] = settings.origin.passed_over
    if not found:
        return
    unused = ", ".join(f"./{name} ({problem})" for name, problem in found.items())
    once = " ".join(f"{_ONCE[name]} {name}" for name in found)
    said = f"Not used: {unused}. To use this folder's files: mcp-optimizer folder trust; or once: {once}"
    print(in_a_line(said), file=sys.stderr)


def _say_what_others_see(flags: Mapping[str, Any]) -> None:
    if flags.get("dashboard_token") and worker_place(os.environ) is None:
        print(
            "Every user of this machine can see --dashboard-token in the list of processes. Better: the variable "
            f"{PREFIX}DASHBOARD_TOKEN, or dashboard_token in the settings file.",
            file=sys.stderr,
        )


_ONCE = {SERVER_FILE: "--config", SETTINGS_FILE: "--settings"}


@functools.cache
def _parameter(name: str) -> inspect.Parameter:
    info = Settings.model_fields[name]
    shown = info.description or ""
    if info.default not in (None, "") and info.default is not False:
        default = f"{info.default:g}" if isinstance(info.default, float) else info.default
        shown = f"{shown} (default: {default})"
    names = [flag(name), SHORTER[name]] if name in SHORTER else [flag(name)]
    if info.default is True:
        names = [f"{flag(name)}/{flag(f'no_{name}')}"]
    panel = None if name in SERVE_ONLY else SHARED_PANEL
    option = typer.Option(*names, help=shown, show_default=False, rich_help_panel=panel)
    annotation = Annotated[_plain_type(info.annotation) | None, option]  # type: ignore[valid-type] # made at run time
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _help_all() -> inspect.Parameter:
    option = typer.Option(
        "--help-all",
        help="Show the help with the options of every command: servers, search, results, rules, logs ...",
        is_eager=True,
        callback=_show_all,
    )
    annotation = Annotated[bool, option]
    return inspect.Parameter("help_all", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)


def _show_all(ctx: typer.Context, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        ctx.meta[SHOWS_ALL] = True
        typer.echo(ctx.get_help())
        raise typer.Exit


def _settings_file() -> inspect.Parameter:
    option = typer.Option(
        "--settings",
        help="TOML file with any of these options (or MCP_OPTIMIZER_SETTINGS). Default: ./mcp-optimizer.toml "
        "if you trusted it (folder trust), then settings.toml in your config folder.",
        show_default=False,
        rich_help_panel=SHARED_PANEL,
    )
    annotation = Annotated[Path | None, option]
    return inspect.Parameter("settings_file", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _plain_type(annotation: Any) -> Any:
    """The type that the command line parses."""
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(part for part in get_args(annotation) if part is not NoneType)
    return annotation


class OwnOptionsFirst(TyperCommand):
    """A command that lists the shared options only for `--help-all`."""

    def get_params(self, ctx: Any) -> list[Any]:
        found = super().get_params(ctx)
        if not ctx.meta.get(_IN_HELP) or ctx.meta.get(SHOWS_ALL):
            return found
        return [one for one in found if getattr(one, "rich_help_panel", None) != SHARED_PANEL]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        ctx.meta[_IN_HELP] = True
        super().format_help(ctx, formatter)


_IN_HELP = "mcp_optimizer.in_help"


class CommandGroup(typer.Typer):
    """Commands under one name, or in one panel of the help."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"context_settings": {"help_option_names": ["-h", "--help"]}, **options})

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        return super().command(name, **{"cls": OwnOptionsFirst, **options})


class Panel(CommandGroup):
    """A titled section of the program's help: a command registered here is a command of the program itself. Commands
    that are among the `first` are shown in a section of their own.
    """

    def __init__(self, program: typer.Typer, title: str, first: Collection[str] = (), first_title: str = "") -> None:
        super().__init__()
        self._program = program
        self._title = title
        self._first = first
        self._first_title = first_title

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        def register(function: Callable[..., Any]) -> Any:
            title = self._first_title if (name or function.__name__) in self._first else self._title
            return self._program.command(name, **{"rich_help_panel": title, **options})(function)

        return register

    def add_typer(self, typer_instance: typer.Typer, **options: Any) -> None:
        self._program.add_typer(typer_instance, **{"rich_help_panel": self._title, **options})


_COMPLETION_SECONDS = 0.25
_MOST_COMPLETIONS = 1_000
_COMPLETABLE = regex(r"[A-Za-z0-9_.@/-]{1,200}", re.ASCII)
"""Words that are safe in a shell. Some shells evaluate completions, and servers choose the names of their tools."""


def complete_tool(ctx: typer.Context, incomplete: str) -> list[str]:
    """The tools of a running gateway, which alone knows them."""
    from mcp_optimizer.app.control.command_requests import ToolsRequest

    with contextlib.suppress(OptimizerError, OSError, ValueError, KeyError):
        for gateway in _running_gateways(_completion_settings(ctx)):
            rows = gateway.ask(ToolsRequest(), _COMPLETION_SECONDS)["value"]
            return _offered((row["name"] for row in rows), incomplete)
    return []


def complete_server(ctx: typer.Context, incomplete: str) -> list[str]:
    """The servers of the server file."""
    with contextlib.suppress(OptimizerError, OSError, ValueError):
        settings = _completion_settings(ctx)
        if settings.demo:
            from mcp_optimizer_demo import demo_server_commands

            return _offered(demo_server_commands(), incomplete)
        from mcp_optimizer.config.serverfile.parser import read_server_file

        specs = read_server_file(settings.server_file, {}, check=settings.check_server_file)
        return _offered((spec.name for spec in specs), incomplete)
    return []


def complete_client(incomplete: str) -> list[str]:
    """The clients whose files we know."""
    from mcp_optimizer.config.known_clients.table import CLIENTS

    return _offered(CLIENTS, incomplete)


def _completion_settings(ctx: typer.Context) -> Settings:
    given = {name: value for name, value in ctx.params.items() if name in Settings.model_fields}
    return load_settings(given, settings_file=ctx.params.get("settings_file"))


def _running_gateways(settings: Settings) -> list[RunningGateway]:
    from mcp_optimizer.app.control.gateway_client import running_gateways

    return [gateway for gateway in running_gateways(settings) if gateway.is_same_version]


def _offered(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete) and _COMPLETABLE.fullmatch(name))[
        :_MOST_COMPLETIONS
    ]
