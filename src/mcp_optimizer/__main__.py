"""`python -m mcp_optimizer`: the command line, if its script is not on the PATH."""

from mcp_optimizer.cli import main

# Not when a child process of a report imports this file again.
if __name__ == "__main__":
    main()
