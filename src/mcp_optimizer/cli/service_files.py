"""The systemd unit or launchd property list of a gateway, its location, and the commands that install it.

Pure: `service` shows the plan before carrying it out.
"""

from __future__ import annotations

import plistlib
from dataclasses import dataclass
from pathlib import Path

from mcp_optimizer.errors import ConfigurationError

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
