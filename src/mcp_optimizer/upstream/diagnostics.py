"""Explains why a server is not running: collects evidence during a session and in its stderr, and turns it into a
failure with a text.

Transports and sessions note what they see in `Diagnostics`, which outlives the session; supervisors ask it, or have the
error that ended the start explained. Contains no secrets: texts of a child come from `stdio`, which removes them.
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urljoin, urlsplit

import httpx2

from mcp_optimizer.domain.failure_kinds import FailureKind
from mcp_optimizer.runtime.logs import first_of
from mcp_optimizer.runtime.outgoing import written_distance
from mcp_optimizer.runtime.patterns import regex
from mcp_optimizer.upstream.request_errors import ExchangeLost, LoginNeeded, RpcError, RpcTimeout

logger = logging.getLogger(__name__)


# Finds the line of a server's stderr that best explains why it ended or what it waits for. The last line is often a
# help text, a stack frame or the path of a log file: tracebacks, package managers and container engines each state
# the reason elsewhere.

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


_SHOWN_ADDRESS = 200
_STATUS_ADVICE = {
    401: " (not authorised: check its headers)",
    403: " (forbidden: it knows its caller, and does not let it in)",
    404: " (not found: check its url)",
    405: " (wrong method: check its url and type)",
    406: " (not acceptable: check its type)",
}


@dataclass(frozen=True)
class Failure:
    """The kind of a failure, and its text, which completes "The server is down: ..."."""

    kind: FailureKind
    text: str

    def __str__(self) -> str:
        return self.text


CONNECTION_CLOSED = Failure(FailureKind.CLOSED, "the connection was closed")


_KINDS_OF_STATUS = {
    401: FailureKind.UNAUTHORISED,
    403: FailureKind.FORBIDDEN,
    404: FailureKind.NOT_FOUND,
    405: FailureKind.TRANSPORT,
    406: FailureKind.TRANSPORT,
}


def refused_with(status: int, content_type: str = "") -> Failure:
    """The failure of a server that answers with this HTTP status and a body that is not MCP."""
    if status < 400 and is_web_page(content_type):
        return Failure(FailureKind.NOT_MCP, "it answers with a web page instead of MCP")
    kind = _KINDS_OF_STATUS.get(status, FailureKind.REFUSED)
    return Failure(kind, f"it answers with HTTP status {status}{_STATUS_ADVICE.get(status, '')}")


def redirected(url: str, location: str) -> str:
    """Advice about a redirect. Never advises following one that leads nearer to this machine than the server is."""
    shown = location if len(location) <= _SHOWN_ADDRESS else f"{location[: _SHOWN_ADDRESS - 1]}…"
    try:
        target, own = (written_distance(urlsplit(one).hostname or "") for one in (urljoin(url, location), url))
    except ValueError:
        return f"it redirects to {shown}, which is no address"
    if target < own:
        return f"it redirects to {shown}, on this machine or network, which is not followed: ask its operator"
    return f"it redirects to {shown}: use that url"


def is_web_page(content_type: str) -> bool:
    """Whether an answer is meant for a browser."""
    return content_type.lower().startswith(("text/html", "application/xhtml"))


class CommandNotFound(FileNotFoundError):
    """The command of a server was not found."""


def fault_of_ours(error: BaseException) -> Failure:
    """The failure of a server whose session ended with an unexpected error."""
    return Failure(FailureKind.FAULT, f"a fault of the gateway ({type(first_of(error)).__name__}); its log says more")


def explained(error: BaseException, start_timeout: float) -> Failure:
    """The failure of a server that did not start, from the error that ended its start."""
    error = first_of(error)
    text = str(error) or type(error).__name__
    if isinstance(error, TimeoutError | RpcTimeout):
        return Failure(FailureKind.SILENT, f"it did not answer within {start_timeout:g} s")
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | ExchangeLost) and (found := _unreached(error)):
        return found
    if isinstance(error, httpx2.ConnectError):
        return Failure(FailureKind.UNREACHABLE, "nothing answers at its url")
    if isinstance(error, LoginNeeded):
        return Failure(FailureKind.LOGIN, error.message)
    if isinstance(error, RpcError):
        return Failure(FailureKind.REFUSED, f"it refused: {error.message}")
    return Failure(_kind_of(error), text)


def _kind_of(error: BaseException) -> FailureKind:
    if isinstance(error, CommandNotFound):
        return FailureKind.COMMAND
    if isinstance(error, ExchangeLost) and not error.was_sent:
        return FailureKind.UNREACHABLE
    return FailureKind.ENTRY if isinstance(error, OSError) else FailureKind.CLOSED


def _unreached(error: BaseException) -> Failure | None:
    """Why no connection could be made, if an operating system error in the chain of causes says so."""
    for cause in _causes(error):
        if isinstance(cause, socket.gaierror):
            return Failure(FailureKind.HOST, "the host of its url has no address")
        if isinstance(cause, ssl.SSLCertVerificationError):
            said = cause.verify_message.rstrip(".") or "it cannot be verified"
            return Failure(FailureKind.TLS, f"its certificate is not trusted: {said}")
        if isinstance(cause, ssl.SSLError):
            if cause.reason in _NOT_TLS:
                return Failure(FailureKind.TLS, "it does not speak TLS at this port")
            return Failure(FailureKind.TLS, f"no TLS connection could be made ({cause.reason or 'no reason given'})")
    return None


_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
_LONGEST_CHAIN = 10


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(_LONGEST_CHAIN):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__


class Child(Protocol):
    """A server's process, which can explain why its connection ended."""

    @property
    def hung_up(self) -> bool:
        """Whether the child ended the connection itself."""
        ...

    def failure(self) -> Failure | None: ...

    def waiting(self) -> str:
        """The line of its stderr that best explains why it has not answered."""
        ...

    @property
    def stray(self) -> str:
        """A line on its stdout that is not MCP."""
        ...


class Dropped:
    """Counts dropped messages by reason, and logs each reason once. Reasons are our texts, never a server's."""

    def __init__(self, server: str = "") -> None:
        self._server = server
        self.counts: Counter[str] = Counter()

    def __call__(self, why: str) -> None:
        if why not in self.counts:
            logger.warning("Server %s: %s; dropped, and further ones will be.", self._server, why)
        self.counts[why] += 1


@dataclass
class Diagnostics:
    """The evidence of one session; outlives it to explain why it ended."""

    dropped: Dropped = field(default_factory=Dropped)
    heard: Callable[[str], None] = lambda _line: None
    """Called with each line that the server writes to its stderr."""
    child: Child | None = None
    http_status: int | None = None
    content_type: str = ""
    secrets: Callable[[], Mapping[str, str]] = dict
    """Returns the credentials sent to the server, by name. Never shown, even if the server repeats them."""
    verdict: Failure | None = None
    """Why we ended the session ourselves, if we did."""

    def runs(self, child: Child) -> None:
        """Note the server's process."""
        self.child = child

    def tells(self, secrets: Callable[[], Mapping[str, str]]) -> None:
        """Note the secrets that are sent to the server."""
        self.secrets = secrets

    def answered(self, http_status: int, content_type: str = "") -> None:
        """Note the status and content type of the server's last answer."""
        self.http_status = http_status
        self.content_type = content_type

    def judge(self, verdict: Failure) -> None:
        """Note why we end the session ourselves."""
        self.verdict = verdict

    def failure(self) -> Failure | None:
        """Why the session ended, if known."""
        if self.verdict is not None:
            return self.verdict
        if self.child is not None:
            return self.child.failure()
        if self.http_status is not None and (self.http_status >= 400 or is_web_page(self.content_type)):
            return refused_with(self.http_status, self.content_type)
        return None

    def explanation(self, problem: Failure) -> Failure:
        """Why the session ended; `problem` is what the supervisor noticed."""
        known = self.failure()
        if known is not None or self.child is None or problem.kind is not FailureKind.SILENT:
            return known or problem
        if self.child.stray:
            return Failure(FailureKind.NOT_MCP, f"{problem.text}, and prints on its stdout: {self.child.stray!r}")
        said = self.child.waiting()
        return Failure(problem.kind, f"{problem.text}; it last said: {said}") if said else problem

    @property
    def stray(self) -> str:
        """A line on the server's stdout that is not MCP; empty if there is none."""
        return self.child.stray if self.child is not None else ""
