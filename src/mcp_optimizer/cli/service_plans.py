"""How a service is installed on this kind of system: which file, and which commands of its service manager.

Pure; called by `service`, which shows a plan before it carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mcp_optimizer.cli.service_files import LABEL, GatewayService, launchd_plist, systemd_unit
from mcp_optimizer.errors import ConfigurationError

Command = tuple[str, ...]
UNIT = f"{LABEL}.service"


@dataclass(frozen=True)
class ServicePlace:
    """Where the file of the service is, and how its manager is told about it."""

    file: Path
    starting: tuple[Command, ...]
    stopping: tuple[Command, ...]
    after: tuple[Command, ...]
    """Once the file is gone."""
    asking: Command
    """Ends with 0 if the service runs."""
    log: str
    """How a person reads its log."""


@dataclass(frozen=True)
class ServicePlan:
    """A place, the text of the file there, and what a person should know."""

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
            # One that is loaded already has the old file.
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
