"""Finds the line of a server's stderr that best explains why it ended or what it waits for. Called by `stdio`. Pure.

The last line is often a help text, a stack frame or the path of a log file: tracebacks, package managers and container
engines each state the reason elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mcp_optimizer.runtime.patterns import regex

_EXCEPTION = regex(r"(?:[A-Za-z_][\w.]*\.)?\w*(?:Error|Exception|Interrupt|Exit|NotFound)(?::|$| \[)")
"""The line of an exception: `KeyError: 'TOKEN'`, `Error: listen EADDRINUSE`, `TypeError [ERR_X]: ...`."""
_NPM = regex(r"npm (?:ERR!|error)\s*(.*)", re.IGNORECASE)
_NPM_CHATTER = regex(r"(?:code|errno|syscall|path|A complete log|This is related|in most cases|\d+$|$)", re.I)
_STATED = regex(
    r"\b(?:fatal|panic|critical|error|failed|failure|cannot|could not|unable to|not found|no such|missing|required|"
    r"must (?:be|have|provide|set)|please (?:set|provide|specify)|not set|denied|refused|invalid|unknown|unrecognized|"
    r"unauthorized|expired|not a tty|not a terminal|does not exist|no solution)\b",
    re.IGNORECASE,
)
_FRAME = regex(r"""at |File ".*", line \d+|node:internal|\^+$|~+\^|[{}\[\]()]+,?$|\.\.\. \d+ |Node\.js v\d""")
"""Stack frames, marks under code, and lines that Node.js prints after a stack."""
_DETAIL = regex(r"[\w$]+: .*,?$")
"""A property of an error that Node.js prints after its stack: `code: 'MODULE_NOT_FOUND',`."""
_USAGE = regex(r"usage:|try '.*--help'|for (?:more )?(?:help|information)|see '.* --help'|run '.* --help'", re.I)
_CONTAINERS = regex(r"docker:|podman:|error during connect|cannot connect to the docker", re.I)
_RESOLVING = regex(r"(?:×|x|error:)\s+(.*)", re.I)
_AROUND = " \t│┃|╭╮╰╯┌┐└┘─━═"
"""Blanks, and the boxes that some programs draw around their errors."""
_TITLES = ("error", "errors")
_BECAUSE = regex(r"(?:▶|`->|Caused by:)\s*(.+)")
"""uv explains a failed resolution in a tree under its first line."""


def telling_line(lines: Sequence[str]) -> str:
    """The most informative line; the last one if none stands out, and empty if there is none."""
    said = [text for line in lines if (text := line.strip(_AROUND)).strip() and text.lower() not in _TITLES]
    for find in (_from_npm, _from_uv, _from_containers, _from_exception, _from_statement):
        if found := find(said):
            return found
    plain = [line for line in said if not _FRAME.match(line) and not _USAGE.search(line)]
    return (plain or said or [""])[-1]


def _from_npm(said: Sequence[str]) -> str:
    """`npm error 404 Not Found - GET ...` rather than `npm error A complete log of this run ...`."""
    own = [match.group(1).strip() for line in said if (match := _NPM.match(line))]
    if not own:
        return ""
    code = next((line.removeprefix("code ") for line in own if line.startswith("code ")), "")
    text = next((line for line in own if not _NPM_CHATTER.match(line)), "")
    return f"npm: {': '.join(filter(None, [code, text]))}" if code or text else ""


def _from_uv(said: Sequence[str]) -> str:
    """The first line of uv's message, and the reason in the tree below it."""
    for at, line in enumerate(said):
        begins = _RESOLVING.match(line)
        if begins and at + 1 < len(said) and (because := _BECAUSE.match(said[at + 1])):
            # A long reason continues on the next, indented lines.
            rest = [more for more in said[at + 2 : at + 4] if not _FRAME.match(more) and not more.startswith("hint")]
            return " ".join([f"{begins.group(1).rstrip(':')}:", because.group(1), *rest])
    return ""


def _from_containers(said: Sequence[str]) -> str:
    return next((line for line in said if _CONTAINERS.match(line) and not _USAGE.search(line)), "")


def _from_exception(said: Sequence[str]) -> str:
    """The exception that ended the program, in a chain of exceptions."""
    of_python = any(line.startswith("Traceback (most recent call last)") for line in said)
    found = [line for line in said if _EXCEPTION.match(line) and not _FRAME.match(line)]
    if not found:
        return ""
    # Node.js prints the error first and its causes after the stack; Python prints the causes first.
    return found[-1] if of_python else found[0]


def _from_statement(said: Sequence[str]) -> str:
    stated = [
        line
        for line in said
        if _STATED.search(line) and not _FRAME.match(line) and not _USAGE.search(line) and not _is_detail(line)
    ]
    return stated[-1] if stated else ""


def _is_detail(line: str) -> bool:
    """Whether a line is a property of an error, which says less than the error itself."""
    return bool(_DETAIL.fullmatch(line)) and line.partition(":")[0] in {"code", "errno", "syscall", "path", "url"}
