"""One gateway for all clients on stdio: the process that each client starts, and what it and the gateway say.

Standard library only, and little of it: this process lives as long as its client and should cost next to nothing.
"""
