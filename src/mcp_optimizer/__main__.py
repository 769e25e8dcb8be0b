"""`python -m mcp_optimizer`: the command line, where its script is not on the PATH."""

from mcp_optimizer.cli import main

main()
