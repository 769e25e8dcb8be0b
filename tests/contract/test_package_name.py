"""What people are told to install is what this package is called."""

from __future__ import annotations

import re
import tomllib

from tests.conftest import ROOT

_INSTALLED = re.compile(r"""pip install (?:--?\S+ )*['"]?([a-z0-9-]*optimizer[a-z0-9-]*)""")


def test_every_advice_to_install_names_this_package() -> None:
    name = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")]
    named = {(found, str(path.relative_to(ROOT))) for path in texts for found in _INSTALLED.findall(path.read_text())}
    assert named
    assert {one for one in named if one[0] != name} == set()


def test_no_file_of_a_package_is_moved_in_the_wheel() -> None:
    # Hatchling leaves a file out where it is, if it is also forced to another place; `hatch_build.py` adds a copy.
    assert "force-include" not in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert "/hatch_build.py" not in (ROOT / ".gitignore").read_text(encoding="utf-8")
