"""Starts the gateway on stdio. An empty setting is one that was not given."""

import os
import sys

if not os.environ.get("MCP_OPTIMIZER_CONFIG"):
    os.environ.pop("MCP_OPTIMIZER_CONFIG", None)
sys.argv[1:] = ["serve"]

from mcp_optimizer_gateway import main  # noqa: E402

# Child processes import this file, too.
if __name__ == "__main__":
    main()
