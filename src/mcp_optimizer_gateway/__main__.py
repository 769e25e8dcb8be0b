"""`python -m mcp_optimizer_gateway`: the command line, if its script is not on the PATH."""

from mcp_optimizer_gateway import main

if __name__ == "__main__":
    main()
