"""`python -m mcp_optimizer`: the command line, where its script is not on the PATH."""

from mcp_optimizer.cli import main

# Not when a process that a report started reads this file again.
if __name__ == "__main__":
    main()
