"""The package declares what it imports, and the tested versions are complete and within the declared bounds."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, files, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.contract.sources import FILES, PACKAGE, nodes_of

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

OURS = {"mcp_optimizer", "mcp_optimizer_demo"}

ONLY_FOR_TYPES = {"_typeshed"}
"""Modules that exist for type checkers alone."""

NOT_IMPORTED = {
    "aiosqlite": "SQLAlchemy's driver for SQLite, named in the address of a database",
    "keyring": "imported by its name, where a user asks for it",
}
"""Declared, and needed without an import statement."""

PARTS = {"pydantic-monty-client": "pydantic-monty"}
"""A package that comes only as a part of another one, whose version says which of its parts fit together."""


def declared(lines: list[str]) -> dict[str, Requirement]:
    found = map(Requirement, lines)
    return {canonicalize_name(one.name): one for one in found}


NEEDED = declared(PROJECT["dependencies"])
OPTIONAL = {
    name: extra
    for extra, lines in PROJECT["optional-dependencies"].items()
    if extra not in ("dev", "site")
    for name in declared(lines)
}


def imported() -> Iterator[tuple[Path, str]]:
    """The modules from elsewhere that each file imports, at its top or inside functions."""
    for path in FILES:
        for node in nodes_of(path):
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                root = name.partition(".")[0]
                if (
                    root not in {"mcp_optimizer", "mcp_optimizer_demo"}
                    and root not in sys.stdlib_module_names | ONLY_FOR_TYPES
                ):
                    yield path, name


@cache
def installed() -> Mapping[str, list[str]]:
    """The distributions with each module. To find them, every one that is installed is read."""
    return packages_distributions()


@cache
def files_of(candidate: str) -> frozenset[str]:
    return frozenset(map(str, files(candidate) or ()))


@cache
def distribution(name: str) -> str:
    """The distribution with this module, or with the module that has this name."""
    root = name.partition(".")[0]
    candidates = sorted(set(installed().get(root, [])))
    if len(candidates) == 1:
        return canonicalize_name(candidates[0])
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        stem = "/".join(parts[:length])
        for candidate in candidates:
            if {f"{stem}.py", f"{stem}/__init__.py"} & files_of(candidate):
                return canonicalize_name(candidate)
    return root


@cache
def uses() -> set[tuple[str, str]]:
    """The distributions that each file imports from."""
    return {
        (path.relative_to(PACKAGE).as_posix(), PARTS.get(found, found))
        for path, name in imported()
        for found in [distribution(name)]
    }


def test_everything_that_is_imported_is_declared() -> None:
    assert sorted(use for use in uses() if use[1] not in NEEDED.keys() | OPTIONAL.keys()) == []


def test_everything_that_is_declared_is_imported() -> None:
    unused = (NEEDED.keys() | OPTIONAL.keys()) - {name for _, name in uses()}
    assert unused == NOT_IMPORTED.keys()


def test_a_module_of_a_package_that_shares_its_name_with_others_is_known() -> None:
    assert distribution("opentelemetry.trace.get_current_span") == "opentelemetry-api"
    assert distribution("opentelemetry.sdk.trace.TracerProvider") == "opentelemetry-sdk"
    assert distribution("jwt.PyJWK") == "pyjwt"


CONSTRAINTS = [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if line]


def test_the_tested_versions_are_names_and_versions_alone_and_each_name_once() -> None:
    wrong = [line for line in CONSTRAINTS if not re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9a-z.]*", line)]
    assert wrong == []
    names = [canonicalize_name(line.partition("==")[0]) for line in CONSTRAINTS]
    assert sorted({name for name in names if names.count(name) > 1}) == []


TESTED = {str(canonicalize_name(name)): version for name, _, version in (line.partition("==") for line in CONSTRAINTS)}


@pytest.mark.parametrize("extra", ["", *sorted(set(OPTIONAL.values()))])
def test_the_tested_version_is_within_the_declared_bounds(extra: str) -> None:
    lines = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    outside = [
        str(one)
        for name, one in declared(lines).items()
        if (tested := TESTED.get(name)) is not None and not one.specifier.contains(tested)
    ]
    assert outside == []


def test_every_package_that_an_installation_brings_has_a_tested_version() -> None:
    """With the packages that packages need, where they are installed here; keyring's come with no test."""
    unknown: set[str] = set()
    waiting, seen = [(one, "") for one in NEEDED.values()], set[str]()
    while waiting:
        one, extra = waiting.pop()
        name = canonicalize_name(one.name)
        if one.marker is not None and not one.marker.evaluate({"extra": extra}):
            continue
        unknown |= {name} - TESTED.keys()
        for wanted in ["", *one.extras]:
            if f"{name}[{wanted}]" not in seen:
                seen.add(f"{name}[{wanted}]")
                try:
                    waiting += [(Requirement(line), wanted) for line in requires(name) or ()]
                except PackageNotFoundError:
                    unknown.add(name)
    assert unknown == set()
