"""Runs the tests in several plain pytest processes, each of which takes the next file when it is done with one.

For `make check` and `make test`. Compared with pytest-xdist, no process hands out the tests and hears of each, and each
file is collected once, by the process that runs it. Knows nothing of what the tests test.
"""
