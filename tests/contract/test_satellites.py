"""A small file with a single importer in its own room is part of that importer's idea, unless there is a reason."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from tests.contract.sources import tree_of

ROOT = Path(__file__).parents[2]
REASONS = {
    "config/known_clients/vscode.py": "a client whose file has a format of its own has a module",
    "config/known_clients/zed.py": "a client whose file has a format of its own has a module",
}


def house() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house", ROOT / "scripts" / "house.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_no_small_file_has_a_single_importer_in_its_room_without_a_reason() -> None:
    measures = house()
    found = measures.satellites(measures.sources(measures.PACKAGE, tree_of))
    assert {file.path.relative_to(measures.PACKAGE).as_posix() for file in found} == REASONS.keys()
