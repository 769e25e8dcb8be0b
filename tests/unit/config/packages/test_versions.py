"""The newest version of a package is what the user's own tools say."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from mcp_optimizer.config.packages.commands import Package, PackageKind
from mcp_optimizer.config.packages.finding import newest_version
from mcp_optimizer.errors import ConfigurationError

pytestmark = pytest.mark.process
NPM, PYPI = Package(PackageKind.NPM, "pkg"), Package(PackageKind.PYPI, "pkg")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose programs are found first."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def program(folder: Path, name: str, code: str) -> None:
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport sys\n{code}\n")
    path.chmod(0o755)


async def test_npm_is_asked(programs: Path) -> None:
    program(programs, "npm", "assert sys.argv[1:] == ['view', 'pkg', 'version', '--json']; print('\"1.2.3\"')")
    assert await newest_version(NPM, {"npm"}) == "1.2.3"


async def test_uv_is_asked_and_pip_where_it_does_not_know(programs: Path) -> None:
    program(programs, "uv", "assert sys.stdin.read() == 'pkg'; print('pkg==2.0')")
    assert await newest_version(PYPI, {"uv"}) == "2.0"
    program(programs, "uv", "sys.exit(1)")
    program(programs, "pip", "print('pkg (3.0)\\nAvailable versions: 3.0, 2.0')")
    assert await newest_version(PYPI, {"uv", "pip"}) == "3.0"


@pytest.mark.parametrize(
    "code", ["sys.exit(1)", "print('[1]')", "print('\"latest\"')", "print('x' * 1_000_000)", "print('\"1.0.0; rm\"')"]
)
async def test_a_version_that_cannot_be_known_must_be_given(programs: Path, code: str) -> None:
    program(programs, "npm", code)
    with pytest.raises(ConfigurationError, match=r"npm:pkg@1\.2\.3"):
        await newest_version(NPM, {"npm"})


async def test_without_the_tools_a_version_must_be_given() -> None:
    with pytest.raises(ConfigurationError, match="--version"):
        await newest_version(NPM, frozenset())
    with pytest.raises(ConfigurationError, match="not the name of a package"):
        await newest_version(Package(PackageKind.NPM, "--help"), {"npm"})


async def test_the_tools_are_asked_in_the_home_and_build_nothing(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloned = tmp_path / "cloned"
    cloned.mkdir()
    monkeypatch.chdir(cloned)
    monkeypatch.setenv("HOME", str(tmp_path))
    in_home = "import os; assert os.getcwd() == os.environ['HOME']"
    program(programs, "npm", f"{in_home}; print('\"1.2.3\"')")
    assert await newest_version(NPM, {"npm"}) == "1.2.3"
    program(programs, "uv", f"{in_home}; assert '--no-build' in sys.argv; print('pkg==2.0')")
    assert await newest_version(PYPI, {"uv"}) == "2.0"
