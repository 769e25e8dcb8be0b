"""The protocol's numbers and names: versions, error codes, metadata keys, headers. Constants only.

The SDK has them, too, beside hundreds of models that take as long to load as half a command takes;
`tests/contract/test_sdk_internals.py` compares them. Only `serving` needs the models.
"""

from __future__ import annotations

from typing import Final

HANDSHAKE_PROTOCOL_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LATEST_HANDSHAKE_VERSION: Final = HANDSHAKE_PROTOCOL_VERSIONS[-1]
MODERN_PROTOCOL_VERSIONS: Final = ("2026-07-28",)
LATEST_PROTOCOL_VERSION: Final = MODERN_PROTOCOL_VERSIONS[-1]

INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
REQUEST_TIMEOUT: Final = -32001
MISSING_REQUIRED_CLIENT_CAPABILITY: Final = -32021
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022

PROTOCOL_VERSION_META_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO_META_KEY: Final = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES_META_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
SERVER_INFO_META_KEY: Final = "io.modelcontextprotocol/serverInfo"
LOG_LEVEL_META_KEY: Final = "io.modelcontextprotocol/logLevel"

MCP_PROTOCOL_VERSION_HEADER: Final = "mcp-protocol-version"
MCP_METHOD_HEADER: Final = "mcp-method"
MCP_NAME_HEADER: Final = "mcp-name"

NAME_BEARING_METHODS: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that a header repeats, by method."""

INPUT_REQUIRED_METHODS: Final = frozenset(NAME_BEARING_METHODS)
"""The methods whose results may ask for more input."""
