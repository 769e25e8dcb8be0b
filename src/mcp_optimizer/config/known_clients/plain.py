"""Clients with servers in `mcpServers` of a JSON file, a row each; and programs that keep no file of servers."""

from __future__ import annotations

from mcp_optimizer.config.known_clients.entry_spelling import (
    LEFT_OUT,
    NO_VARIABLES,
    RENAMED,
    SEARCHED,
    STARTING,
    EntryReading,
    EntryWriting,
)
from mcp_optimizer.config.known_clients.program import (
    Base,
    ClientProgram,
    FileSigns,
    KnownFile,
    PermissionReading,
    SwitchOff,
)
from mcp_optimizer.config.textfiles.kinds import FileKind

_STORAGE = "Code/User/globalStorage"
_AMP = "amp.mcpServers"

CLAUDE_DESKTOP = ClientProgram(
    "claude-desktop",
    "Claude Desktop",
    (KnownFile(Base.SUPPORT, "Claude/claude_desktop_config.json"),),
    reading=EntryReading(NO_VARIABLES),
    writing=EntryWriting(keeps_variables=True, only_commands=True),
)
CURSOR = ClientProgram(
    "cursor",
    "Cursor",
    (KnownFile(Base.HOME, ".cursor/mcp.json"),),
    (".cursor/mcp.json",),
    is_of_project=True,
    writing=EntryWriting(reference="${env:%s}"),
)
COPILOT_CLI = ClientProgram(
    "copilot-cli",
    "Copilot CLI",
    (KnownFile(Base.HOME, ".copilot/mcp-config.json", folder_variable="COPILOT_HOME"),),
    reading=EntryReading(left_out={**LEFT_OUT, "deferTools": SEARCHED}, in_milliseconds=True),
    writing=EntryWriting(types=("local", "http"), reference="${%s}", switches={"tools": ["*"], "deferTools": "never"}),
    permissions=PermissionReading(chosen_key="tools"),
)
WINDSURF = ClientProgram(
    "windsurf",
    "Windsurf",
    (KnownFile(Base.HOME, ".codeium/windsurf/mcp_config.json"),),
    switch_off=SwitchOff.DISABLED,
    writing=EntryWriting(url_key="serverUrl", reference="${env:%s}"),
)
CLINE = ClientProgram(
    "cline",
    "Cline",
    (
        KnownFile(Base.HOME, ".cline/data/settings/cline_mcp_settings.json", file_variable="CLINE_MCP_SETTINGS_PATH"),
        # Where earlier versions of its extension keep them.
        KnownFile(Base.SUPPORT, f"{_STORAGE}/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
    ),
    switch_off=SwitchOff.DISABLED,
    writing=EntryWriting(types=("stdio", "streamableHttp")),
)
ROO = ClientProgram(
    "roo",
    "Roo Code",
    (KnownFile(Base.SUPPORT, f"{_STORAGE}/rooveterinaryinc.roo-cline/settings/mcp_settings.json"),),
    (".roo/mcp.json",),
    is_of_project=True,
    switch_off=SwitchOff.DISABLED,
    reading=EntryReading(left_out={**LEFT_OUT, "watchPaths": "servers are not restarted when files change"}),
    writing=EntryWriting(types=("stdio", "streamable-http"), reference="${env:%s}"),
)
KIMI = ClientProgram(
    "kimi",
    "Kimi Code",
    (KnownFile(Base.HOME, ".kimi-code/mcp.json", folder_variable="KIMI_CODE_HOME"),),
    (".kimi-code/mcp.json",),
    switch_off=SwitchOff.ENABLED,
    reading=EntryReading(
        NO_VARIABLES,
        renamed={**RENAMED, "toolTimeoutMs": "timeout", "bearerTokenEnvVar": "bearer_token_env_var"},
        left_out={**LEFT_OUT, "startupTimeoutMs": STARTING, "executor": "servers are always started here"},
        in_milliseconds=True,
    ),
    writing=EntryWriting(types=("stdio", "http"), type_key="transport", bearer_key="bearerTokenEnvVar"),
)
OPENHANDS = ClientProgram(
    "openhands",
    "OpenHands",
    (KnownFile(Base.HOME, ".openhands/mcp.json"),),
    reading=EntryReading(NO_VARIABLES, left_out={**LEFT_OUT, "keep_alive": "servers stay as long as they are used"}),
    writing=EntryWriting(types=("stdio", "http"), type_key="transport", keeps_variables=True),
)
LM_STUDIO = ClientProgram(
    "lm-studio",
    "LM Studio",
    (KnownFile(Base.HOME, ".lmstudio/mcp.json"),),
    reading=EntryReading(in_milliseconds=True),
)
KIRO = ClientProgram(
    "kiro",
    "Kiro",
    (KnownFile(Base.HOME, ".kiro/settings/mcp.json"),),
    (".kiro/settings/mcp.json",),
    is_of_project=True,
    switch_off=SwitchOff.DISABLED,
    reading=EntryReading(in_milliseconds=True),
    writing=EntryWriting(reference="${%s}"),
)
AMP = ClientProgram(
    "amp",
    "Amp",
    (KnownFile(Base.CONFIG, "amp/settings.json", ((_AMP,),)),),
    (".amp/settings.json",),
    signs=FileSigns(
        lambda document, kind: kind is FileKind.JSON and isinstance(document.get(_AMP), dict),
        is_foreign=lambda document: isinstance(document.get(_AMP), dict),
    ),
    writing=EntryWriting(reference="${%s}"),
)
