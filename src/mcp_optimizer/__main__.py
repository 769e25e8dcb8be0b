"""`python -m mcp_optimizer`: the command line, if its script is not on the PATH."""

from mcp_optimizer.cli import main

# A report's child processes import this module again; they must not run the command line.
if __name__ == "__main__":
    main()
