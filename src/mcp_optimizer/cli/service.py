"""`service install`, `uninstall` and `status`: the gateway over HTTP, run by systemd or launchd.

Shows what it writes and runs before it does, and changes only files that it wrote.
"""

from __future__ import annotations

import getpass
import os
import plistlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from platformdirs import user_config_path

from mcp_optimizer.cli.command_options import CommandGroup, JsonFlag, say_passed_over
from mcp_optimizer.cli.terminal import print_json
from mcp_optimizer.config.settings import APP_NAME, load_settings
from mcp_optimizer.errors import ConfigurationError, OptimizerError
from mcp_optimizer.runtime.terminal_text import printable

# The systemd unit or launchd property list of a gateway, its location, and the commands that install it.

MARK = "Written by `mcp-optimizer service install`"
"""Marks every file that we may change, in its first lines."""
LABEL = "mcp-optimizer"


@dataclass(frozen=True)
class GatewayService:
    """A gateway that a service manager runs. All paths are absolute."""

    program: tuple[str, ...]
    server_file: Path
    http: str
    search_path: str
    """The PATH on which servers find npx, uvx and so on: service managers only have the system's folders."""
    variables: Path
    """A private file of environment variables, for keys that server files name."""
    home: Path
    settings_file: Path | None = None

    @property
    def command(self) -> list[str]:
        settings = ["--settings", str(self.settings_file)] if self.settings_file is not None else []
        return [*self.program, "serve", "--config", str(self.server_file), "--http", self.http, *settings]


def systemd_unit(service: GatewayService, *, user: str = "") -> str:
    """A unit for the user's own manager or, with `user`, for the system's manager, which runs it as that user."""
    lines = [
        f"# {MARK}; `service uninstall` removes it.",
        "[Unit]",
        "Description=mcp-optimizer, one MCP endpoint in front of all MCP servers",
        *(["Wants=network-online.target", "After=network-online.target"] if user else []),
        "StartLimitIntervalSec=300",
        "StartLimitBurst=10",
        "",
        "[Service]",
        "Type=exec",
        *([f"User={_plain(user)}"] if user else []),
        f"ExecStart={' '.join(_quoted(word, in_command=True) for word in service.command)}",
        "ExecReload=/bin/kill -HUP $MAINPID",
        f"WorkingDirectory={_plain(str(service.home))}",
        f"Environment={_quoted(f'PATH={service.search_path}')}",
        "# Keys that the server file names as ${VAR}: a line NAME=value each, in a file that only you can read.",
        f"EnvironmentFile=-{_plain(str(service.variables))}",
        "Restart=on-failure",
        "RestartSec=5",
        "# 2: the settings are wrong, and a restart does not help.",
        "RestartPreventExitStatus=2",
        "TimeoutStopSec=20",
        "# The gateway ends its servers itself.",
        "KillMode=mixed",
        "LimitNOFILE=16384",
        "UMask=0077",
        "# Servers may write their caches (~/.npm, ~/.cache/uv) and compile code while they run. One that needs",
        "# set-user-id programs, as rootless Podman does, works only without the next line.",
        "NoNewPrivileges=yes",
        "LockPersonality=yes",
        "RestrictRealtime=yes",
        "RestrictSUIDSGID=yes",
        *(_OF_THE_SYSTEM if user else []),
        "",
        "[Install]",
        f"WantedBy={'multi-user.target' if user else 'default.target'}",
    ]
    return "\n".join(lines) + "\n"


_OF_THE_SYSTEM = (
    "ProtectSystem=full",
    "PrivateTmp=yes",
    "ProtectClock=yes",
    "ProtectKernelTunables=yes",
    "ProtectKernelModules=yes",
    "ProtectControlGroups=yes",
)
"""Options that only the system's manager supports everywhere. Homes stay writable: servers keep caches there."""


def launchd_plist(service: GatewayService) -> str:
    """A launch agent for the user who is logged in."""
    agent = {
        "Label": LABEL,
        "ProgramArguments": service.command,
        "EnvironmentVariables": {"PATH": service.search_path},
        "WorkingDirectory": str(service.home),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ProcessType": "Background",
        "ExitTimeOut": 20,
        "Umask": 0o077,
        "SoftResourceLimits": {"NumberOfFiles": 16384},
        "StandardErrorPath": str(service.home / "Library" / "Logs" / f"{LABEL}.log"),
    }
    for word in service.command:
        _plain(word)
    head, body = plistlib.dumps(agent, sort_keys=False).decode().split("\n", 1)
    return f"{head}\n<!-- {MARK}; `service uninstall` removes it. -->\n{body}"


def _plain(text: str) -> str:
    """A value that a unit takes literally, except for percent signs."""
    if not text or any(ord(character) < 32 for character in text):
        raise ConfigurationError("A path with a line break or another control character cannot be part of a service.")
    return text.replace("%", "%%")


def _quoted(word: str, *, in_command: bool = False) -> str:
    """One word of a command, or one variable; a dollar sign starts a variable only in commands."""
    text = _plain(word).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text.replace("$", "$$") if in_command else text}"'


Command = tuple[str, ...]
UNIT = f"{LABEL}.service"


@dataclass(frozen=True)
class ServicePlace:
    """Where the service's file is, and the commands for its service manager."""

    file: Path
    starting: tuple[Command, ...]
    stopping: tuple[Command, ...]
    after: tuple[Command, ...]
    """Run once the file is gone."""
    asking: Command
    """Ends with 0 if the service runs."""
    log: str
    """The command that shows its log."""


@dataclass(frozen=True)
class ServicePlan:
    """A place, the text of its file, and notes for a person."""

    place: ServicePlace
    text: str
    notes: tuple[str, ...] = ()


def place_on(platform: str, home: Path, config: Path, user_id: int) -> ServicePlace:
    """The place on a system. `config` is the folder of the user's configuration."""
    if platform == "darwin":
        file = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        domain = f"gui/{user_id}"
        return ServicePlace(
            file=file,
            # A service that is already loaded keeps using the old file.
            starting=(("launchctl", "bootout", f"{domain}/{LABEL}"), ("launchctl", "bootstrap", domain, str(file))),
            stopping=(("launchctl", "bootout", f"{domain}/{LABEL}"),),
            after=(),
            asking=("launchctl", "print", f"{domain}/{LABEL}"),
            log=f"tail -f {home / 'Library' / 'Logs' / LABEL}.log",
        )
    if platform == "win32":
        raise ConfigurationError(
            "Windows services cannot be installed from here. Make a task that starts when you log on, in the Task "
            'Scheduler or with: schtasks /create /sc onlogon /tn mcp-optimizer /tr "mcp-optimizer serve --http '
            '127.0.0.1:8765 --config C:\\path\\to\\mcp.json"'
        )
    return ServicePlace(
        file=config / "systemd" / "user" / UNIT,
        starting=(
            ("systemctl", "--user", "daemon-reload"),
            ("systemctl", "--user", "enable", UNIT),
            ("systemctl", "--user", "restart", UNIT),
        ),
        stopping=(("systemctl", "--user", "disable", "--now", UNIT),),
        after=(("systemctl", "--user", "daemon-reload"),),
        asking=("systemctl", "--user", "is-active", "--quiet", UNIT),
        log=f"journalctl --user -u {UNIT} -f",
    )


def plan_for(platform: str, place: ServicePlace, service: GatewayService, user: str) -> ServicePlan:
    """What installing the service would write, and what to know about it."""
    notes = [f"Its log: {place.log}"]
    if "/uv/" in service.program[0] and "cache" in service.program[0].lower():
        notes.append("It runs from uv's cache, which may be cleared: install it with `uv tool install` first.")
    if platform == "darwin":
        notes.append("launchd reads no file of variables: store keys with `mcp-optimizer secret set`.")
        return ServicePlan(place, launchd_plist(service), tuple(notes))
    notes.append(f"It ends when you log out. To keep it: loginctl enable-linger {user}")
    return ServicePlan(place, systemd_unit(service), tuple(notes))


_ADDRESS = "127.0.0.1:8765"
_VARIABLES = "# Variables for mcp-optimizer and ${VAR} in its server file: NAME=value, one a line.\n"
_PATIENCE = 60
"""Seconds for one command of a service manager."""
_MOST_READ = 100_000

_Config = Annotated[Path | None, typer.Option("--config", help="Server file. Default: as for `serve`.")]
_SettingsFile = Annotated[Path | None, typer.Option("--settings", help="TOML file with options.", show_default=False)]
_Http = Annotated[str, typer.Option("--http", help="HOST:PORT to serve at.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be written and run.")]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
_System = Annotated[
    bool, typer.Option("--system/--user", help="Print a unit for the whole system, which root has to install.")
]


def register(app: typer.Typer) -> None:
    group = CommandGroup(no_args_is_help=True, help="Run the gateway for good, by systemd or launchd.")
    for name, command in (("install", install), ("uninstall", uninstall), ("status", status)):
        group.command(name)(command)
    app.add_typer(group, name="service")


def install(
    config: _Config = None,
    settings_file: _SettingsFile = None,
    http: _Http = _ADDRESS,
    system: _System = False,
    dry_run: _DryRun = False,
    yes: _Yes = False,
    as_json: JsonFlag = False,
) -> None:
    """Install and start the gateway as a service of this user, on systemd or launchd."""
    place = _place()
    service = _service(config, settings_file, http)
    if system:
        if not sys.platform.startswith("linux"):
            raise ConfigurationError("--system is for systemd. Here, install it for your user: leave it out.")
        print(systemd_unit(service, user=getpass.getuser()), end="")
        return
    plan = plan_for(sys.platform, place, service, getpass.getuser())
    _refuse_foreign(place.file)
    commands = _runnable(place.starting)
    if dry_run or not as_json:
        _preview(plan, commands, as_json=as_json)
    if dry_run:
        return
    _ask(f"Write {place.file} and start the service?", yes)
    _write(plan, service)
    _run_all(commands)
    if as_json:
        print_json({"written": str(place.file), "started": bool(commands)})
        return
    print(f"Wrote {place.file}.")
    if not commands:
        print(f"There is no {place.starting[0][0]} here; run, where there is one: {_shown(place.starting)}")
    for note in plan.notes:
        print(note)


def uninstall(dry_run: _DryRun = False, yes: _Yes = False, as_json: JsonFlag = False) -> None:
    """Stop the service and remove its file. Settings, keys and history stay."""
    place = _place()
    if not place.file.exists():
        raise OptimizerError(f"No service is installed: there is no {place.file}.")
    _refuse_foreign(place.file)
    stopping, after = _runnable(place.stopping), _runnable(place.after)
    if dry_run:
        removed = {"remove": str(place.file), "run": [list(command) for command in (*stopping, *after)]}
        print_json(removed) if as_json else print(f"Would remove {place.file}, and run: {_shown((*stopping, *after))}")
        return
    _ask(f"Stop the service and remove {place.file}?", yes)
    _run_all(stopping, may_fail=True)
    place.file.unlink()
    _run_all(after)
    print_json({"removed": str(place.file)}) if as_json else print(f"Removed {place.file}.")


def status(as_json: JsonFlag = False) -> None:
    """Show whether the service is installed and runs. Exit code 0 if it runs, 1 if not."""
    place = _place()
    installed = place.file.exists()
    runs = installed and bool(_runnable((place.asking,))) and _run(place.asking).returncode == 0
    if as_json:
        print_json({"installed": installed, "running": runs, "file": str(place.file)})
    elif not installed:
        print("not installed; see `mcp-optimizer service install --dry-run`")
    else:
        print(f"{'running' if runs else 'not running'}: {place.file}\nIts log: {place.log}")
    if not runs:
        sys.exit(1)


def _place() -> ServicePlace:
    home = Path.home()
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    return place_on(sys.platform, home, config, os.getuid() if hasattr(os, "getuid") else 0)


def _service(config: Path | None, settings_file: Path | None, http: str) -> GatewayService:
    settings = load_settings({"config": config, "http": http}, settings_file=settings_file)
    say_passed_over(settings)
    host, port = settings.http_address
    server_file = settings.server_file.absolute()
    if not server_file.is_file():
        raise ConfigurationError(
            f"No server file at {server_file}. Name one with --config, or make it: mcp-optimizer init"
        )
    return GatewayService(
        program=_program(),
        server_file=server_file,
        http=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        search_path=os.environ.get("PATH") or os.defpath,
        variables=user_config_path(APP_NAME) / "service.env",
        home=Path.home(),
        settings_file=settings_file.absolute() if settings_file is not None else None,
    )


def _program() -> tuple[str, ...]:
    """The running program, by its full path."""
    started = Path(sys.argv[0]).absolute()
    if started.name.startswith("mcp-optimizer") and os.access(started, os.X_OK):
        return (str(started),)
    return (sys.executable, "-P", "-m", "mcp_optimizer_gateway")


def _refuse_foreign(file: Path) -> None:
    if file.is_symlink():
        raise ConfigurationError(f"{file} is a link that another program made. Remove it first.")
    if not file.exists():
        return
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            is_ours = MARK in opened.read(_MOST_READ)
    except OSError as error:
        raise ConfigurationError(f"Cannot read {file}: {error.strerror}.") from error
    if not is_ours:
        raise ConfigurationError(f"{file} was not written by mcp-optimizer. Rename or remove it first.")


def _runnable(commands: Iterable[Command]) -> tuple[Command, ...]:
    """The commands, if this system has the program that they start."""
    found = tuple(commands)
    return found if found and shutil.which(found[0][0]) else ()


def _preview(plan: ServicePlan, commands: Iterable[Command], *, as_json: bool) -> None:
    if as_json:
        run = [list(command) for command in commands]
        print_json({"file": str(plan.place.file), "text": plan.text, "run": run, "notes": list(plan.notes)})
        return
    print(f"{plan.place.file}:\n\n{plan.text}\nRuns: {_shown(commands) or 'nothing'}")


def _shown(commands: Iterable[Command]) -> str:
    return "; ".join(shlex.join(command) for command in commands)


def _ask(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigurationError(
            "There is no terminal to ask at. Look at it with --dry-run, then repeat it with --yes."
        )
    if not typer.confirm(question, err=True):
        raise OptimizerError("Nothing was changed.")


def _write(plan: ServicePlan, service: GatewayService) -> None:
    from mcp_optimizer.runtime.local_files import make_folder, replace_file, write_file

    try:
        plan.place.file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(plan.place.file, plan.text)
        if not service.variables.exists():
            make_folder(service.variables.parent)
            write_file(service.variables, _VARIABLES)
    except OSError as error:
        raise ConfigurationError(f"Cannot write {error.filename or plan.place.file}: {error.strerror}.") from error


def _run_all(commands: Iterable[Command], *, may_fail: bool = False) -> None:
    for command in commands:
        done = _run(command)
        # A service that is not loaded cannot be unloaded.
        if done.returncode and not may_fail and "bootout" not in command:
            said = printable(done.stderr.strip()) or f"exit code {done.returncode}"
            raise OptimizerError(f"`{shlex.join(command)}` failed: {said}")


def _run(command: Command) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise OptimizerError(f"`{shlex.join(command)}` did not end within {_PATIENCE} s.") from None
    except OSError as error:
        raise OptimizerError(f"`{shlex.join(command)}` cannot be run: {error.strerror}.") from error
