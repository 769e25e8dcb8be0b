"""What a wheel has and the sources do not: a second copy of `mcp_optimizer/__init__.py`, for environments where another
package has overwritten the first (see `mcp_optimizer_gateway`). Hatchling's own `force-include` would move the file.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KeptPackage(BuildHookInterface[Any]):
    """Adds the copy while a wheel is built; an editable installation needs none."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        if version != "editable":
            copy = Path(self._folder.name, "_package.py")
            shutil.copy(Path(self.root, "src", "mcp_optimizer", "__init__.py"), copy)
            build_data["force_include"][str(copy)] = "mcp_optimizer_gateway/_package.py"

    def finalize(self, _version: str, _build_data: dict[str, Any], _artifact_path: str) -> None:
        self._folder.cleanup()
