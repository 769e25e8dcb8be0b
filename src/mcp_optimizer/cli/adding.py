"""`add`: puts a server into the server file, whatever its source. Shows what it will run before it does.

Asks the questions and stores the values; `packages` interprets sources, and `file_edits` changes the file.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcp_optimizer.cli.act_records import record_act
from mcp_optimizer.cli.command_gateway import run
from mcp_optimizer.cli.command_options import JsonFlag, with_settings
from mcp_optimizer.cli.terminal import is_agreed, is_terminal, print_json
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp_optimizer.cli.adding_steps import AddChoices, FilledEntry
    from mcp_optimizer.config.packages.draft import Source
    from mcp_optimizer.config.packages.finding import Choice, FoundServer

_Source = Annotated[
    str,
    typer.Argument(
        help="NAME -- COMMAND ARGUMENTS, an address, npm:PACKAGE[@VERSION], pypi:PACKAGE[==VERSION], "
        "oci:IMAGE:TAG, a .mcpb file or its address, or a name in the registry.",
        show_default=False,
    ),
]
_Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- WORDS]", help="The command of the server, or more arguments of a package."),
]
_Name = Annotated[str, typer.Option("--name", help="The server's name. Default: from the source.")]
_Env = Annotated[list[str] | None, typer.Option("--env", help="NAME=VALUE for its environment; repeatable.")]
_Header = Annotated[list[str] | None, typer.Option("--header", help="NAME=VALUE for its requests; repeatable.")]
_Input = Annotated[list[str] | None, typer.Option("--input", help="KEY=VALUE for a value it asks for; repeatable.")]
_Secret = Annotated[
    list[str] | None,
    typer.Option(
        "--secret", help="A variable, header or input whose value is asked for (or read from stdin) and kept."
    ),
]
_Version = Annotated[str, typer.Option("--version", help="The exact version. Default: the newest, which is pinned.")]
_Package = Annotated[
    str,
    typer.Option("--package", help="The package of a registry server to run: npm, pypi, oci, nuget, mcpb, remote."),
]
_Registry = Annotated[str, typer.Option("--registry", help="Address of another registry.")]
_Script = Annotated[str, typer.Option("--script", help="The program of a pypi: package, if its name differs.")]
_Sha256 = Annotated[str, typer.Option("--sha256", help="The SHA-256 that a bundle must have.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be run.")]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
_YesRun = Annotated[
    bool, typer.Option("--yes-run", help="Also accept programs and options that could run more than the package.")
]
_Disabled = Annotated[bool, typer.Option("--disabled", help="Add it without using it yet.")]
_NoCheck = Annotated[bool, typer.Option("--no-check", help="Do not start it once to see whether it works.")]


def register(app: typer.Typer) -> None:
    app.command()(add)


@with_settings()
def add(
    source: _Source,
    words: _Words = None,
    *,
    settings: Settings,
    name: _Name = "",
    env: _Env = None,
    header: _Header = None,
    given: _Input = None,
    secret: _Secret = None,
    version: _Version = "",
    package: _Package = "",
    registry: _Registry = "",
    script: _Script = "",
    sha256: _Sha256 = "",
    dry_run: _DryRun = False,
    yes: _Yes = False,
    yes_run: _YesRun = False,
    disabled: _Disabled = False,
    no_check: _NoCheck = False,
    as_json: JsonFlag = False,
) -> None:
    """Add a server to the server file: by command, address, package, bundle, or name in a registry."""
    from mcp_optimizer.cli.adding_steps import AddChoices, pairs
    from mcp_optimizer.config.packages.draft import checked_name, source_of
    from mcp_optimizer.config.packages.finding import Choice
    from mcp_optimizer.config.packages.registry import PUBLIC_REGISTRY

    if settings.demo:
        raise ConfigurationError("The demo has no server file; leave --demo away.")
    wanted = source_of(source, words or ())
    checked_name(name or "server")
    choice = Choice(version, package, registry or PUBLIC_REGISTRY, script, sha256, yes_run)
    values = AddChoices(pairs(env, "--env"), pairs(header, "--header"), pairs(given, "--input"), tuple(secret or ()))
    adding = _Adding(settings, wanted, choice, values, name, as_json=as_json, is_off=disabled)
    if not run(adding.add(dry_run=dry_run, is_agreed_to=yes, checks=not (no_check or disabled))):
        sys.exit(1)


class _Adding:
    """One server while it is being added to the server file."""

    def __init__(
        self,
        settings: Settings,
        source: Source,
        choice: Choice,
        given: AddChoices,
        name: str,
        *,
        as_json: bool,
        is_off: bool,
    ) -> None:
        self._settings = settings
        self._source = source
        self._choice = choice
        self._given = given
        self._name = name
        self._as_json = as_json
        self._is_off = is_off

    async def add(self, *, dry_run: bool, is_agreed_to: bool, checks: bool) -> bool:
        """Add the server; returns whether it works, as far as that was tested."""
        from platformdirs import user_data_path

        from mcp_optimizer.config.packages.finding import Places, find_server, installed_programs
        from mcp_optimizer.config.settings import APP_NAME

        with tempfile.TemporaryDirectory(prefix="mcp-optimizer-") as workspace:
            places = Places(user_data_path(APP_NAME) / "bundles", Path(workspace))
            found = await find_server(self._source, self._choice, places, installed_programs())
            name = self._chosen_name(found)
            filled = self._filled(found, name, asks=not dry_run)
            self._check_entry(name, filled.entry, is_complete=not filled.missing)
            self._show(found, name, filled)
            if dry_run:
                if self._as_json:
                    print_json(self._facts(found, name, filled, written=False))
                return True
            self._confirm(found, is_agreed_to)
            await self._write(found, name, filled, places.bundles)
        facts = self._facts(found, name, filled, written=True)
        works = True
        if checks:
            from mcp_optimizer.cli.adding_steps import first_start

            check = await first_start(self._settings, name, prints=not self._as_json)
            facts["check"], works = check, check["works"]
        if self._as_json:
            print_json(facts)
        return works

    def _chosen_name(self, found: FoundServer) -> str:
        from mcp_optimizer.config.packages.draft import checked_name
        from mcp_optimizer.config.serverfile.file_edits import file_text, with_entry

        name = checked_name(self._name or found.draft.name)
        # Before asking the user for any value.
        with_entry(file_text(self._settings.server_file), name, {})
        return name

    def _filled(self, found: FoundServer, name: str, *, asks: bool) -> FilledEntry:
        from mcp_optimizer.cli.adding_steps import filled

        filling = filled(found.draft, self._given, name, asks=asks)
        return replace(filling, entry={"disabled": True, **filling.entry}) if self._is_off else filling

    def _check_entry(self, name: str, entry: Mapping[str, Any], *, is_complete: bool) -> None:
        """Refuses an entry that the gateway could not use, such as one that starts the gateway itself."""
        from mcp_optimizer.config.serverfile.parser import refuse_unusable

        if is_complete:
            refuse_unusable(name, entry, self._settings.server_file, os.environ)

    def _show(self, found: FoundServer, name: str, filled: FilledEntry) -> None:
        if not self._as_json:
            from mcp_optimizer.cli.adding_steps import show_preview

            show_preview(found.draft, name, filled, self._settings.server_file)

    def _facts(self, found: FoundServer, name: str, filled: FilledEntry, *, written: bool) -> dict[str, Any]:
        from mcp_optimizer.cli.adding_steps import preview_facts

        facts = preview_facts(found.draft, name, filled)
        return {**facts, "file": str(self._settings.server_file), "written": written}

    def _confirm(self, found: FoundServer, is_agreed_to: bool) -> None:
        """A third party chose what will run, so the user confirms it first."""
        if is_agreed_to or not found.draft.is_foreign:
            return
        if not is_terminal():
            raise ConfigurationError("Look at the command with --dry-run, then give --yes to add it.")
        if not is_agreed("Add it?"):
            raise ConfigurationError("Nothing was changed.")

    async def _write(self, found: FoundServer, name: str, filled: FilledEntry, bundles: Path) -> None:
        from mcp_optimizer.config.packages.bundles import manifest_name, unpacked
        from mcp_optimizer.config.serverfile.file_edits import change_file, with_entry

        for stored, value in filled.secrets.items():
            await self._store(stored, value)
        if found.bundle is not None:
            unpacked(found.bundle, bundles, manifest_name(found.bundle.manifest))
        has_values = bool(filled.entry.keys() & {"env", "headers"})
        change_file(self._settings.server_file, lambda text: with_entry(text, name, filled.entry), private=has_values)
        await record_act(self._settings, "server/add", server=name)
        if not self._as_json:
            print(f"Added {name}. A running gateway takes it in by itself.")

    async def _store(self, name: str, value: str) -> None:
        from mcp_optimizer.app.setting_values import place_of
        from mcp_optimizer.identity.secrets import opened_secrets

        async with opened_secrets(place_of(self._settings, "Secrets"), os.environ) as secrets:
            await secrets.set(name, value)
        await record_act(self._settings, "secret/set", name)
