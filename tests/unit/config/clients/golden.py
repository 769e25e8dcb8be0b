"""Homes and projects as clients leave them, copied from tests/golden/clients: each a client's documented format."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcp_optimizer.config.clients.files import Machine, found_files
from mcp_optimizer.config.clients.importing import ImportPlan, WantedServers, planned
from mcp_optimizer.config.known_clients.table import CLIENTS

GOLDEN = Path(__file__).parents[3] / "golden" / "clients"


def made_machine(tmp_path: Path, client: str = "") -> Machine:
    """A machine with a client's files, or with none."""
    tmp_path.mkdir(exist_ok=True)
    home, project = tmp_path / "home", tmp_path / "project"
    for folder, name in ((home, "home"), (project, "project")):
        if client and (GOLDEN / client / name).exists():
            shutil.copytree(GOLDEN / client / name, folder)
        folder.mkdir(exist_ok=True)
    if (main := home / ".claude.json").exists():
        main.write_text(main.read_text().replace("{PROJECT}", str(project)))
    return Machine(home, {"HOME": str(home)}, "linux", project)


def plan_of(
    machine: Machine, client: str, existing: Mapping[str, Any] | None = None, wanted: WantedServers | None = None
) -> ImportPlan:
    """A plan in which files of the folder count, as if the user had named each."""
    chosen = wanted or WantedServers(from_folder=True)
    return planned(found_files(machine, [CLIENTS[client]]), existing or {}, machine, chosen)


def shown(plan: ImportPlan, tmp_path: Path) -> Any:
    """A plan as JSON, without the names of folders that differ each time."""
    servers = {
        f"{entry.file.place.path.relative_to(tmp_path)} {entry.listed.name}": {
            "outcome": entry.outcome.value,
            **({"reason": entry.reason} if entry.reason else {}),
            **({"as": entry.name} if entry.name != entry.listed.name else {}),
            **({"entry": entry.entry} if entry.entry else {}),
            **({"notes": entry.notes} if entry.notes else {}),
            **({"secrets": sorted(entry.secrets)} if entry.secrets else {}),
        }
        for entry in plan.entries
    }
    notes = [f"{path.relative_to(tmp_path)}: {note}" for path, note in plan.notes]
    text = json.dumps({"servers": servers, **({"notes": notes} if notes else {})})
    return json.loads(text.replace(str(tmp_path), "TMP"))
