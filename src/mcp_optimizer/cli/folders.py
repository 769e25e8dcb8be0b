"""`folder trust`, `list` and `forget`: which working folders may bring their own servers and settings. Starts nothing.

Exactly the text that is shown becomes trusted. It comes from other people, so it is quoted.
"""

from __future__ import annotations

import os
import shlex
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from mcp_optimizer.cli.act_records import record_act
from mcp_optimizer.cli.command_gateway import run
from mcp_optimizer.cli.command_options import CommandGroup, JsonFlag
from mcp_optimizer.cli.terminal import console, is_agreed, is_terminal, print_json
from mcp_optimizer.config.settings import Settings, load_settings
from mcp_optimizer.config.trusted_files import (
    LARGEST,
    SERVER_FILE,
    SETTINGS_FILE,
    TrustedFile,
    digest_of,
    forget,
    place_of,
    trust,
    trusted_files,
)
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.runtime.local_files import read_own
from mcp_optimizer.runtime.terminal_text import counted

_NAMES = (SERVER_FILE, SETTINGS_FILE)
_LONGEST = 2_000
"""Maximum characters shown of a command or value."""
_MOST = 500
"""Maximum servers or settings shown of a file."""
_IN_THE_FILE = "more, which you find in the file"

_Path = Annotated[Path, typer.Argument(help="The folder, or its file.", show_default="the current folder")]


def register(app: typer.Typer) -> None:
    group = CommandGroup(no_args_is_help=True, help="Which working folders may bring their own servers and settings.")
    for name, command in (("trust", trust_folder), ("list", list_trusted), ("forget", forget_folder)):
        group.command(name)(command)
    app.add_typer(group, name="folder")


def trust_folder(
    path: _Path = Path(),
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Use a folder's mcp.json and mcp-optimizer.toml in that folder, until they change."""
    contents = {place_of(file): _content(file) for file in _files(path)}
    is_whole = True
    for file, content in contents.items():
        print(f"{_shown(str(file))}:", file=sys.stderr)
        for line in _server_lines(content, file) if file.name == SERVER_FILE else _setting_lines(content, file):
            is_whole &= _IN_THE_FILE not in line
            print(f"  {line}", file=sys.stderr)
    if not yes:
        if not is_terminal():
            raise ConfigurationError("There is no terminal to ask at. To use all of this, repeat it with --yes.")
        if not is_whole:
            raise ConfigurationError("Not all of it can be shown here. Read it, and if you want all of it, say --yes.")
        if not is_agreed("Use this whenever you are in that folder?"):
            raise ConfigurationError("Nothing was trusted.")
    audited = _settings_before()
    trust(contents)
    _record(audited, "folder/trust", contents)
    if as_json:
        print_json({"trusted": [str(file) for file in contents]})
        return
    for file in contents:
        print(f"Trusted {_shown(str(file))}, until it changes.")


def list_trusted(as_json: JsonFlag = False) -> None:
    """List the files that are trusted, and whether they changed since."""
    rows = [
        {"file": file, "state": _state(Path(file), known), "trusted_at": known.at}
        for file, known in trusted_files().items()
    ]
    if as_json:
        print_json({"files": rows})
        return
    from rich.table import Table
    from rich.text import Text

    table = Table("file", "state", "since", box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(Text(_shown(cell), overflow="fold") for cell in row.values()))
    if rows:
        console().print(table)
    print(f"{counted(len(rows), 'file')} of working folders trusted")


def forget_folder(path: _Path = Path(), as_json: JsonFlag = False) -> None:
    """Stop using a folder's files."""
    place = str(place_of(path))
    gone = [known for known in trusted_files() if place in (known, os.path.dirname(known))]
    if not gone:
        raise ConfigurationError(
            f"Nothing is trusted at {_shown(place)}. `mcp-optimizer folder list` lists trusted files."
        )
    audited = _settings_before()
    forget(gone)
    _record(audited, "folder/forget", gone)
    if as_json:
        print_json({"forgotten": gone})
        return
    for file in gone:
        print(f"Forgot {_shown(file)}.")


def _settings_before() -> Settings | None:
    """The settings whose audit records this, read before anything is trusted: a folder's settings could turn it off."""
    try:
        return load_settings()
    except ConfigurationError as error:
        print(f"This is not in the audit: {error}", file=sys.stderr)
        return None


def _record(settings: Settings | None, method: str, files: Iterable[Path | str]) -> None:
    async def record() -> None:
        for file in files:
            if settings is not None:
                await record_act(settings, method, str(file))

    run(record())


def _files(path: Path) -> list[Path]:
    """The files that a path stands for: those that the gateway would find by itself."""
    if path.is_dir():
        found = [path / name for name in _NAMES if os.path.lexists(path / name)]
        if not found:
            raise ConfigurationError(f"There is neither {SERVER_FILE} nor {SETTINGS_FILE} in {_shown(str(path))}.")
        return found
    if path.name not in _NAMES:
        raise ConfigurationError(
            f"Only {SERVER_FILE} and {SETTINGS_FILE} of a folder can be trusted. Name another file with --config or "
            "--settings when you use it."
        )
    return [path]


def _content(file: Path) -> bytes:
    try:
        return read_own(file, LARGEST)
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigurationError(
            f"{_shown(str(file))} cannot be trusted: {why}. If you mean it all the same, name it each time, with "
            "--config or --settings."
        ) from None


def _state(file: Path, known: TrustedFile) -> str:
    try:
        return "trusted" if digest_of(read_own(file, LARGEST)) == known.digest else "changed"
    except FileNotFoundError:
        return "gone"
    except OSError as error:
        return error.strerror or str(error)


def _server_lines(content: bytes, file: Path) -> Iterator[str]:
    """What the servers of a file start or connect to, as the file has it."""
    from mcp_optimizer.config.serverfile.parser import servers_of
    from mcp_optimizer.config.textfiles.kinds import FileKind
    from mcp_optimizer.config.textfiles.reading import UnreadableText, parsed

    try:
        entries = servers_of(parsed(content.decode("utf-8-sig"), FileKind.JSON), file)[1]
    except (UnicodeDecodeError, UnreadableText) as error:
        raise ConfigurationError(f"{_shown(str(file))} cannot be read: {error}.") from None
    yield f"{counted(len(entries), 'server')}"
    for name, entry in list(entries.items())[:_MOST]:
        yield f"{_shown(str(name))}: {_deed(entry) if isinstance(entry, dict) else 'no entry of a server'}"
    if len(entries) > _MOST:
        yield f"… and {len(entries) - _MOST:,} {_IN_THE_FILE}"


def _deed(entry: dict[str, Any]) -> str:
    args = entry.get("args")
    words = [entry.get("command"), *(args if isinstance(args, list) else [args])]
    command = shlex.join(str(word) for word in words if word is not None)
    addresses = [str(entry[key]) for key in ("url", "httpUrl", "serverUrl") if key in entry]
    env = entry.get("env")
    said = [
        f"runs {_shown(command)}" if command else "",
        f"in {_shown(shlex.quote(str(entry['cwd'])))}" if "cwd" in entry else "",
        f"connects to {_shown(', '.join(addresses))}" if addresses else "",
        f"runs {_shown(str(entry['headersHelper']))}" if "headersHelper" in entry else "",
        f"sets {_shown(', '.join(map(str, env)))}" if isinstance(env, dict) and env else "",
        f"with the variables of {_shown(str(entry['envFile']))}" if "envFile" in entry else "",
        "(disabled)" if entry.get("disabled") or entry.get("enabled") is False else "",
    ]
    return ", ".join(filter(None, said)) or "nothing"


def _setting_lines(content: bytes, file: Path) -> Iterator[str]:
    """The settings of a file, without secret ones."""
    try:
        values = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{_shown(str(file))} cannot be read: {error}.") from None
    yield f"{counted(len(values), 'setting')}, instead of your own"
    for name, value in list(values.items())[:_MOST]:
        field = Settings.model_fields.get(name)
        hides = field is not None and not field.repr
        yield f"{_shown(name)} = {'(not shown)' if hides else _shown(repr(value))}"
    if len(values) > _MOST:
        yield f"… and {len(values) - _MOST:,} {_IN_THE_FILE}"


def _shown(text: str) -> str:
    """Untrusted text in one line of limited length, with invisible characters made visible."""
    from mcp_optimizer.domain.hidden_text import with_hidden_shown

    line = with_hidden_shown(text).replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    more = len(line) - _LONGEST
    return line if more <= 0 else f"{line[:_LONGEST]}… ({more:,} characters {_IN_THE_FILE})"
