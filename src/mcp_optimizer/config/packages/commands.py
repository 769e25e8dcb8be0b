"""The commands that run packages: npx, uvx or pipx, docker or podman, dnx. Pure; the installed programs are given.

A package is named exactly, with its version: what runs tomorrow is what was reviewed today.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from mcp_optimizer.config.packages.draft import Argument, Draft, word, words
from mcp_optimizer.errors import ConfigurationError, quoted
from mcp_optimizer.runtime.patterns import regex


class PackageKind(StrEnum):
    """The ecosystem of a package, as server.json calls it."""

    NPM = "npm"
    PYPI = "pypi"
    OCI = "oci"
    NUGET = "nuget"
    BUNDLE = "mcpb"


@dataclass(frozen=True)
class Package:
    """One package. `runtime` is the program that its author requests; empty for the usual one."""

    kind: PackageKind
    identifier: str
    version: str = ""
    script: str = ""
    runtime: str = ""
    runtime_arguments: tuple[Argument, ...] = ()
    arguments: tuple[Argument, ...] = ()


RUNTIMES = {
    PackageKind.NPM: ("npx",),
    PackageKind.PYPI: ("uvx", "pipx"),
    PackageKind.OCI: ("docker", "podman"),
    PackageKind.NUGET: ("dnx",),
}
"""The programs that run each kind, the usual one first."""

_SEMVER = regex(r"\d{1,9}\.\d{1,9}\.\d{1,9}(-[0-9A-Za-z.-]{1,100})?(\+[0-9A-Za-z.-]{1,100})?")
_VERSIONS = {
    PackageKind.NPM: _SEMVER,
    PackageKind.PYPI: re.compile(r"[0-9][0-9A-Za-z.!+_-]{0,99}"),
    PackageKind.NUGET: re.compile(r"\d{1,9}(\.\d{1,9}){1,3}(-[0-9A-Za-z.-]{1,100})?"),
}
_NAMES = {
    PackageKind.NPM: re.compile(r"(@[A-Za-z0-9~_][A-Za-z0-9._~-]{0,99}/)?[A-Za-z0-9~_][A-Za-z0-9._~-]{0,213}"),
    PackageKind.PYPI: re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,198}[A-Za-z0-9])?"),
    PackageKind.NUGET: re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}"),
}
_SCRIPT = regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_IMAGE = regex(
    rf"(?P<name>(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::\d{{1,5}})?/)?{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?P<digest>@sha256:[0-9a-f]{64})?"
)
_LONGEST_IMAGE = 500

_SWITCHES = {
    "npx": {"-q", "--quiet", "--silent"},
    "uvx": {"-q", "--quiet", "--no-cache", "--isolated", "--offline", "--native-tls"},
    "docker": {"--init", "--read-only"},
}
_WITH_VALUE = {
    "docker": set(
        "-v --volume --mount --network --net --name -p --publish -u --user -w --workdir -l --label -m --memory --cpus "
        "--platform --pull --tmpfs --hostname".split()
    )
}
"""Options that authors may give to runtimes. With any other, or with a missing or extra value, other code than the
package might run, or run with more rights."""
_OWN_OPTIONS = {
    "npx": {"-y", "--yes"},
    "docker": {"run", "-i", "--interactive", "--rm"},
    "dnx": {"--yes", "-y"},
}
"""Options that we write ourselves."""


def named_package(kind: PackageKind, text: str) -> Package:
    """A package as a user names it: `@scope/name@1.2.3`, `name==1.2.3`, `image:1.2.3`. The version may be missing."""
    if kind is PackageKind.OCI:
        return Package(kind, text)
    separator = "==" if kind is PackageKind.PYPI else "@"
    at = text.find(separator, 1)
    return Package(kind, text, "") if at < 0 else Package(kind, text[:at], text[at + len(separator) :])


def check_identifier(package: Package) -> None:
    """Refuses an invalid package name, which a command line could interpret as something else."""
    if package.kind is PackageKind.OCI:
        _image(package)
    elif (names := _NAMES.get(package.kind)) and not names.fullmatch(package.identifier):
        raise ConfigurationError(f"{quoted(package.identifier)} is not the name of a package of {package.kind}.")


def is_exact(kind: PackageKind, version: str) -> bool:
    return kind not in _VERSIONS or _VERSIONS[kind].fullmatch(version) is not None


def with_command(draft: Draft, package: Package, programs: Collection[str], *, runs_anything: bool = False) -> Draft:
    """The draft with the command that runs a package. `programs`: the installed runtimes."""
    check_identifier(package)
    if package.kind is not PackageKind.OCI and not is_exact(package.kind, package.version):
        raise ConfigurationError(
            f"{quoted(package.version)} is not an exact version of {package.identifier}; give one with --version."
        )
    runtime = _runtime(package, programs, runs_anything)
    options = tuple(_without_our_own(_paired(package.runtime_arguments, _like(runtime)), _like(runtime)))
    if not runs_anything:
        _refuse_other_code(options, runtime)
    notes = draft.notes + tuple(
        f"Its author adds the option {_flag(one)} to {runtime}." for one in options if _flag(one).startswith("-")
    )
    if runtime not in programs:
        notes += (f"{runtime} is not installed here.",)
    before, env_at = _words_before(package, runtime, options)
    end = words(["--"]) if package.kind is PackageKind.NUGET and package.arguments else ()
    args = (*before, *end, *package.arguments)
    if package.kind is PackageKind.OCI and "@sha256:" not in package.identifier:
        notes += ("A tag can be moved to another image; name one for good with @sha256:DIGEST.",)
    return replace(draft, command=runtime, args=args, env_at=env_at, notes=notes)


def _words_before(
    package: Package, runtime: str, options: tuple[Argument, ...]
) -> tuple[tuple[Argument, ...], int | None]:
    """The arguments up to the package's name, and where a container's variables are inserted."""
    exact = f"{package.identifier}@{package.version}"
    script = package.script or package.identifier
    if not _SCRIPT.fullmatch(script) and package.kind is PackageKind.PYPI:
        raise ConfigurationError(f"{quoted(script)} is not the name of a program.")
    if package.kind is PackageKind.OCI:
        start = (*words(["run", "-i", "--rm"]), *options)
        return (*start, word(_image(package))), len(start)
    if package.kind is PackageKind.PYPI:
        pinned = f"{package.identifier}=={package.version}"
        if runtime == "pipx":
            return (*words(["run", "--spec", pinned]), *options, word(script)), None
        return (*words(["--from", pinned]), *options, word(script)), None
    if package.kind is PackageKind.NUGET:
        return (*words([exact, "--yes"]), *options), None
    return (*(words(["-y"]) if runtime == "npx" else ()), *options, word(exact)), None


def _runtime(package: Package, programs: Collection[str], runs_anything: bool) -> str:
    usual = RUNTIMES[package.kind]
    if not package.runtime:
        return next((one for one in usual if one in programs), usual[0])
    if package.runtime in usual or runs_anything:
        return package.runtime
    raise ConfigurationError(
        f"Its author wants {package.identifier} to be run by {quoted(package.runtime)}, which is none of the programs "
        f"for packages of {package.kind} ({', '.join(usual)}). If you trust it, give --yes-run."
    )


def _image(package: Package) -> str:
    """An image with its tag or digest."""
    named = package.identifier
    match = _IMAGE.fullmatch(named) if len(named) <= _LONGEST_IMAGE else None
    if match is None:
        raise ConfigurationError(f"{quoted(named)} is not the name of an image.")
    if match["digest"] or (match["tag"] and match["tag"] != "latest"):
        return named
    if match["tag"] or not package.version or package.version == "latest":
        raise ConfigurationError(
            f"The image {match['name']} needs a tag other than latest, or a digest: oci:{match['name']}:TAG."
        )
    tagged = f"{match['name']}:{package.version}"
    if not _IMAGE.fullmatch(tagged):
        raise ConfigurationError(f"{quoted(package.version)} is not a tag of an image.")
    return tagged


def _like(runtime: str) -> str:
    """podman takes docker's options."""
    return "docker" if runtime == "podman" else runtime


def _paired(arguments: Sequence[Argument], runtime: str) -> Iterator[Argument]:
    """Joins an option and its value, where an author wrote them as two words."""
    waiting = list(reversed(arguments))
    while waiting:
        one = waiting.pop()
        if not one.flag and _flag(one) in _WITH_VALUE.get(runtime, ()) and waiting and not waiting[-1].flag:
            one = Argument(waiting.pop().value, flag=_flag(one))
        yield one


def _without_our_own(arguments: Iterable[Argument], runtime: str) -> Iterator[Argument]:
    own = _OWN_OPTIONS.get(runtime, set())
    yield from (one for one in arguments if _flag(one) not in own or (one.flag and one.value))


def _refuse_other_code(options: Iterable[Argument], runtime: str) -> None:
    switches, with_value = _SWITCHES.get(_like(runtime), set()), _WITH_VALUE.get(_like(runtime), set())
    for one in options:
        flag = _flag(one)
        has_value = bool(one.flag and one.value) and not one.is_switch
        name, joined, _ = flag.partition("=")
        if (flag in switches and not has_value) or (name in with_value and has_value != bool(joined)):
            continue
        raise ConfigurationError(
            f"Its author adds {quoted(flag)} to the options of {runtime}, with which other code might run than the "
            "package, or with more rights. If you trust it, give --yes-run."
        )


def _flag(argument: Argument) -> str:
    first = argument.flag or (argument.value[0] if argument.value else "")
    return first if isinstance(first, str) else ""
