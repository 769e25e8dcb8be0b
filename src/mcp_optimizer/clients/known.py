"""The MCP clients that are known: where each keeps its servers, in what kind of file, and how one is switched off.

A table and the paths that follow from it; `finding` reads the disk. Knows nothing of entries.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from mcp_optimizer.textfiles.kinds import FileKind

KeyPath = tuple[str, ...]


class Base(StrEnum):
    """The folder that a file's path begins at."""

    HOME = "home"
    SUPPORT = "support"
    """Where programs with a window keep their settings, which depends on the system."""
    CONFIG = "config"
    """`$XDG_CONFIG_HOME` or `~/.config`, on every system."""


class SwitchOff(StrEnum):
    """How a client's file says that a server is not used."""

    DISABLED = "disabled"
    """`"disabled": true` in the entry."""
    ENABLED = "enabled"
    """`"enabled": false` in the entry."""
    EXCLUDED = "excluded"
    """The name in a list elsewhere in the file."""
    REMOVED = "removed"
    """Not at all: the entry has to go."""


@dataclass(frozen=True)
class FilePlace:
    """A file of a client, which may or may not exist."""

    path: Path
    kind: FileKind
    servers: tuple[KeyPath, ...]
    """Where in the file servers may be; one that is added goes to the first."""
    project: Path | None = None
    """The folder whose servers these are; None for those of the user."""

    @property
    def leads_out(self) -> bool:
        """Whether a project's file is really elsewhere: a cloned repository could send our edits to any file."""
        if self.project is None:
            return False
        return not Path(os.path.realpath(self.path)).is_relative_to(os.path.realpath(self.project))


@dataclass(frozen=True)
class KnownFile:
    """A row of the table: a file of the user, before the machine is known."""

    base: Base
    path: str
    servers: tuple[KeyPath, ...] = (("mcpServers",),)
    kind: FileKind = FileKind.JSON
    folder_variable: str = ""
    """An environment variable that names the folder of this file."""
    file_variable: str = ""
    """An environment variable that names this file."""
    on_windows: str = ""
    """The path below %APPDATA%, where it is another on Windows."""

    def located(self, home: Path, environment: Mapping[str, str], platform: str) -> Path:
        if named := environment.get(self.file_variable, ""):
            return _absolute(named, home)
        if named := environment.get(self.folder_variable, ""):
            return _absolute(named, home) / Path(self.path).name
        if self.on_windows and platform == "win32":
            return _support_folder(home, environment, platform) / self.on_windows
        return _folder(self.base, home, environment, platform) / self.path


@dataclass(frozen=True)
class ClientProgram:
    """A client: its names, its files, and its habits."""

    name: str
    title: str
    known_files: tuple[KnownFile, ...]
    in_projects: tuple[str, ...] = ()
    """Files below a project's folder."""
    switch_off: SwitchOff = SwitchOff.REMOVED
    program: str = ""
    """Its command, if that can add servers."""
    sign: str = ""
    """A folder in the user's home that shows that it is installed, where that of its file does not."""

    @property
    def kind(self) -> FileKind:
        """What its main file is."""
        return self.known_files[0].kind

    def files(self, home: Path, environment: Mapping[str, str], platform: str) -> tuple[FilePlace, ...]:
        """The files of the user, the main one first. `platform` is spelled as in `sys.platform`."""
        return tuple(
            FilePlace(one.located(home, environment, platform), one.kind, one.servers) for one in self.known_files
        )

    def project_files(self, project: Path) -> tuple[FilePlace, ...]:
        """The files of a project, the main one first."""
        main = self.known_files[0]
        return tuple(FilePlace(project / path, main.kind, main.servers, project) for path in self.in_projects)

    def folders(self, home: Path, environment: Mapping[str, str], platform: str) -> tuple[Path, ...]:
        """The folders of which one exists if the client is installed, that of its main file first."""
        found = (one.located(home, environment, platform).parent for one in self.known_files)
        return tuple(home / self.sign if self.sign and one == home else one for one in found)


def _folder(base: Base, home: Path, environment: Mapping[str, str], platform: str) -> Path:
    if base is Base.HOME:
        return home
    if base is Base.SUPPORT:
        return _support_folder(home, environment, platform)
    return _absolute(environment.get("XDG_CONFIG_HOME", "") or ".config", home)


def _support_folder(home: Path, environment: Mapping[str, str], platform: str) -> Path:
    if platform == "darwin":
        return home / "Library" / "Application Support"
    if platform == "win32":
        return _absolute(environment.get("APPDATA", "") or "AppData/Roaming", home)
    return _absolute(environment.get("XDG_CONFIG_HOME", "") or ".config", home)


def _absolute(named: str, home: Path) -> Path:
    """A path from the environment. A relative one, or one with `~`, is below the home that was given."""
    return home / named.removeprefix("~/")


_SERVERS = (("servers",),)
_STORAGE = "Code/User/globalStorage"


def _code(name: str, title: str, folder: str, program: str) -> ClientProgram:
    main = KnownFile(Base.SUPPORT, f"{folder}/User/mcp.json", _SERVERS)
    settings = KnownFile(Base.SUPPORT, f"{folder}/User/settings.json", (("mcp", "servers"),))
    return ClientProgram(name, title, (main, settings), (".vscode/mcp.json",), program=program)


_OPENCODE = (("mcp",), ("mcp", "servers"))
_ALL = (
    ClientProgram("claude-desktop", "Claude Desktop", (KnownFile(Base.SUPPORT, "Claude/claude_desktop_config.json"),)),
    ClientProgram(
        "claude-code",
        "Claude Code",
        (KnownFile(Base.HOME, ".claude.json", folder_variable="CLAUDE_CONFIG_DIR"),),
        (".mcp.json",),
        program="claude",
        sign=".claude",
    ),
    ClientProgram("cursor", "Cursor", (KnownFile(Base.HOME, ".cursor/mcp.json"),), (".cursor/mcp.json",)),
    _code("vscode", "VS Code", "Code", "code"),
    _code("vscode-insiders", "VS Code Insiders", "Code - Insiders", "code-insiders"),
    ClientProgram(
        "copilot-cli",
        "Copilot CLI",
        (KnownFile(Base.HOME, ".copilot/mcp-config.json", folder_variable="COPILOT_HOME"),),
    ),
    ClientProgram(
        "windsurf",
        "Windsurf",
        (KnownFile(Base.HOME, ".codeium/windsurf/mcp_config.json"),),
        switch_off=SwitchOff.DISABLED,
    ),
    ClientProgram(
        "cline",
        "Cline",
        (
            KnownFile(
                Base.HOME, ".cline/data/settings/cline_mcp_settings.json", file_variable="CLINE_MCP_SETTINGS_PATH"
            ),
            # Where earlier versions of its extension keep them.
            KnownFile(Base.SUPPORT, f"{_STORAGE}/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
        ),
        switch_off=SwitchOff.DISABLED,
    ),
    ClientProgram(
        "roo",
        "Roo Code",
        (KnownFile(Base.SUPPORT, f"{_STORAGE}/rooveterinaryinc.roo-cline/settings/mcp_settings.json"),),
        (".roo/mcp.json",),
        switch_off=SwitchOff.DISABLED,
    ),
    ClientProgram(
        "zed",
        "Zed",
        (KnownFile(Base.CONFIG, "zed/settings.json", (("context_servers",),), on_windows="Zed/settings.json"),),
        (".zed/settings.json",),
        switch_off=SwitchOff.ENABLED,
    ),
    ClientProgram(
        "codex",
        "Codex",
        (KnownFile(Base.HOME, ".codex/config.toml", (("mcp_servers",),), FileKind.TOML, "CODEX_HOME"),),
        (".codex/config.toml",),
        switch_off=SwitchOff.ENABLED,
        program="codex",
    ),
    ClientProgram(
        "gemini",
        "Gemini CLI",
        (KnownFile(Base.HOME, ".gemini/settings.json"),),
        (".gemini/settings.json",),
        switch_off=SwitchOff.EXCLUDED,
        program="gemini",
    ),
    ClientProgram(
        "qwen",
        "Qwen Code",
        (KnownFile(Base.HOME, ".qwen/settings.json"),),
        (".qwen/settings.json",),
        switch_off=SwitchOff.EXCLUDED,
    ),
    ClientProgram(
        "kimi",
        "Kimi Code",
        (KnownFile(Base.HOME, ".kimi-code/mcp.json", folder_variable="KIMI_CODE_HOME"),),
        (".kimi-code/mcp.json",),
        switch_off=SwitchOff.ENABLED,
    ),
    # Vibe's own switch hides tools only: it would still start the server.
    ClientProgram(
        "vibe",
        "Mistral Vibe",
        (KnownFile(Base.HOME, ".vibe/config.toml", (("mcp_servers",),), FileKind.TOML, "VIBE_HOME"),),
        (".vibe/config.toml",),
    ),
    ClientProgram("openhands", "OpenHands", (KnownFile(Base.HOME, ".openhands/mcp.json"),)),
    ClientProgram(
        "opencode",
        "opencode",
        (
            KnownFile(Base.CONFIG, "opencode/opencode.json", _OPENCODE, file_variable="OPENCODE_CONFIG"),
            KnownFile(Base.CONFIG, "opencode/opencode.jsonc", _OPENCODE),
        ),
        ("opencode.json", "opencode.jsonc"),
        switch_off=SwitchOff.ENABLED,
    ),
    ClientProgram(
        "goose",
        "Goose",
        (
            KnownFile(
                Base.CONFIG,
                "goose/config.yaml",
                (("extensions",),),
                FileKind.YAML,
                on_windows="Block/goose/config/config.yaml",
            ),
        ),
        switch_off=SwitchOff.ENABLED,
    ),
    ClientProgram("lm-studio", "LM Studio", (KnownFile(Base.HOME, ".lmstudio/mcp.json"),)),
    ClientProgram(
        "continue",
        "Continue",
        (
            KnownFile(Base.HOME, ".continue/config.yaml", kind=FileKind.YAML),
            KnownFile(
                Base.HOME,
                ".continue/config.json",
                (("mcpServers",), ("experimental", "modelContextProtocolServers")),
            ),
        ),
    ),
    ClientProgram(
        "kiro",
        "Kiro",
        (KnownFile(Base.HOME, ".kiro/settings/mcp.json"),),
        (".kiro/settings/mcp.json",),
        switch_off=SwitchOff.DISABLED,
    ),
    ClientProgram(
        "amp", "Amp", (KnownFile(Base.CONFIG, "amp/settings.json", (("amp.mcpServers",),)),), (".amp/settings.json",)
    ),
)

CLIENTS: Mapping[str, ClientProgram] = {client.name: client for client in _ALL}
"""All clients by name, in the order in which they are looked for."""
