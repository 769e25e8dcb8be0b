"""Names tools, prompts and resources for clients: by their own name if it is unambiguous, otherwise with their server.

A tool or prompt becomes `server__name`, a URI `server+uri`. A name that begins with a configured server's name refers
only to that server, whether it runs or not; no other server's objects ever get such a name. A tool is only listed under
a name that models' APIs accept (`is_listable`). Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set

from mcp_optimizer.domain.extensions import PAGE_SCHEME

SEPARATOR = "__"
_SPELLINGS = re.compile(r"(?=(__|[./:]))")
"""The separators between a server's and a tool's name: ours, and those of clients that models were trained with.

A lookahead, because matches may overlap: `a___b` is `_b` of `a`, or `b` of `a_`.
"""
_MCP = "mcp__"
_MOST_REPEATED = 3
_LONGEST_OF_OURS = 100
_LISTABLE = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_UNLISTABLE = re.compile(r"[^a-zA-Z0-9_-]+")
_JOINTS = re.compile(r"[^a-zA-Z0-9-]+")
_LONGEST_ALIAS = 64
_LONGEST_SERVER = 24
_DIGEST = 12

Reading = tuple[str, str]
"""A server, and a name on it."""


def is_listable(name: str) -> bool:
    """Whether models' APIs accept this as a tool's name."""
    return _LISTABLE.fullmatch(name) is not None


def _any_name(_name: str) -> bool:
    return True


class ServerNames:
    """The names of all configured servers, and which of them a name refers to.

    `ours` are the names of the gateway's own tools, which no server's tool gets.
    """

    def __init__(self, servers: Iterable[str] = (), ours: Iterable[str] = ()) -> None:
        self.all = frozenset(servers)
        self._ours = frozenset(map(_key, ours))
        self._by_folded: dict[str, list[str]] = {}
        for server in sorted(self.all):
            self._by_folded.setdefault(server.casefold(), []).append(server)
        # Only the part of a name that a server's name can fill is examined, however long the name is.
        self._longest = max((max(len(server), len(server.casefold())) for server in self.all), default=-1)

    def among(self, servers: Iterable[str]) -> ServerNames:
        """The same names as if only these servers were configured."""
        return ServerNames(self.all.intersection(servers), self._ours)

    def readings(self, name: str) -> list[Reading]:
        """Every way to split a name into a server and the rest; empty for a name that refers to no server."""
        found = dict.fromkeys(self._read(name))
        if name[: len(_MCP)].casefold() == _MCP:
            found |= dict.fromkeys(self._read(name[len(_MCP) :]))
        return list(found)

    def _read(self, name: str) -> Iterator[Reading]:
        for match in _SPELLINGS.finditer(name, 0, self._longest + len(SEPARATOR)):
            at = match.start()
            rest = name[at + len(match.group(1)) :]
            if rest and at <= self._longest:
                yield from ((server, rest) for server in self._called(name[:at]))

    def is_ours(self, name: str) -> bool:
        """Whether any spelling of a name means one of the gateway's own tools."""
        return len(name) <= _LONGEST_OF_OURS and _key(name) in self._ours

    def _called(self, name: str) -> Sequence[str]:
        """The servers with this name: an exact match, otherwise matches in other letter case."""
        return (name,) if name in self.all else self._by_folded.get(name.casefold(), ())

    def meant(self, name: str) -> dict[str, list[str]]:
        """The servers that a name may refer to, each with the possible own names there, most likely first.

        Several are possible (`a__b__c` is `b__c` of `a` and `c` of `a__b`); such a name is ambiguous.
        """
        found: dict[str, list[str]] = {}
        for server, rest in self.readings(name):
            found.setdefault(server, []).append(rest)
        return found

    def own_names(self, name: str, server: str) -> list[str]:
        """The own names that a name may mean on a known server, most likely first."""
        plain = [rest for spoken, rest in self.readings(name) if spoken == server]
        found, inner = [*plain, name], plain
        # `a__a__x`: the server's name is repeated where a single one would also mean another server's tool.
        for _ in range(_MOST_REPEATED):
            inner = [own for rest in inner for spoken, own in self._read(rest) if spoken == server]
            found += inner
        return found


class NamesOfServer:
    """The possible names of one server's tools (or prompts), given its own names and the configured servers.

    `accepts` says which names may be listed at all.
    """

    def __init__(
        self, server: str, own: Set[str], servers: ServerNames, accepts: Callable[[str], bool] = _any_name
    ) -> None:
        self._server = server
        self._own = own
        self._servers = servers
        self._accepts = accepts
        self._tidied = Counter(_tidied(name) for name in own if not accepts(name))

    def stands_alone(self, name: str) -> bool:
        """Whether one of its names, unchanged, refers to nothing else: no other server, nothing else of this one, none
        of our own tools.
        """
        if self._servers.is_ours(name) or not self._accepts(name):
            return False
        meant = self._servers.meant(name)
        return not meant or (meant.keys() == {self._server} and self._calls(name) == name)

    def qualified(self, name: str) -> str:
        """One of its names prefixed with the server's, in a form that can mean nothing else."""
        qualified = name
        for _ in range(_MOST_REPEATED):
            qualified = f"{self._server}{SEPARATOR}{qualified}"
            if self._means(qualified, name):
                return qualified
        tidied = _tidied(name)
        qualified = f"{self._server}{SEPARATOR}{tidied}"
        # Without the characters that are not accepted, if the result is unique.
        if not self._accepts(name) and self._tidied[tidied] == 1 and self._means(qualified, None):
            return qualified
        return alias(self._server, name)

    def _means(self, qualified: str, name: str | None) -> bool:
        """Whether a name is listable and refers to this server alone: to the given one of its own names, or to none."""
        is_this_server = self._servers.meant(qualified).keys() == {self._server}
        return self._accepts(qualified) and is_this_server and self._calls(qualified) == name

    def _calls(self, name: str) -> str | None:
        return next((own for own in self._servers.own_names(name, self._server) if own in self._own), None)


def alias(server: str, name: str) -> str:
    """A name without any separator, so that it refers to no server whatever their names; always listable."""
    digest = hashlib.sha256(f"{server}\0{name}".encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    # A long server name is cut to leave room for the tool's name, which says more.
    spoken = "_".join(_JOINTS.sub("_", part).strip("_") for part in (server[:_LONGEST_SERVER], name))
    words = spoken[: _LONGEST_ALIAS - _DIGEST - 1].strip("_")
    return f"{words or 'tool'}_{digest}"


def _tidied(name: str) -> str:
    """A name without the characters that models' APIs refuse."""
    return _UNLISTABLE.sub("_", name)


def public_names(
    pairs: Sequence[Reading], servers: ServerNames | None = None, accepts: Callable[[str], bool] = _any_name
) -> list[str]:
    """Unique names for pairs of server and own name, in their order; the same pairs always get the same names.

    `servers` are all configured ones, including servers without any pair. `accepts`: which names may be listed.
    """
    servers = servers or ServerNames(server for server, _ in pairs)
    own: dict[str, set[str]] = {}
    for server, name in pairs:
        own.setdefault(server, set()).add(name)
    of_server = {server: NamesOfServer(server, names, servers, accepts) for server, names in own.items()}
    shared = Counter(name for names in own.values() for name in names)
    qualified = [
        None if shared[name] == 1 and of_server[server].stands_alone(name) else of_server[server].qualified(name)
        for server, name in pairs
    ]
    # An alias may equal another tool's real name.
    taken = {name for name in qualified if name is not None}
    return [
        long or (name if name not in taken else of_server[server].qualified(name))
        for (server, name), long in zip(pairs, qualified, strict=True)
    ]


class ServerSchemes:
    """The URI scheme prefix of each configured server."""

    def __init__(self, servers: Iterable[str]) -> None:
        self._of: dict[str, str] = {}
        self._servers: dict[str, str] = {}
        for server in sorted(set(servers)):
            plain = scheme = _scheme(server)
            number = 2
            while scheme in self._servers:
                scheme, number = f"{plain}-{number}", number + 1
            self._of[server], self._servers[scheme] = scheme, server

    @property
    def are_several(self) -> bool:
        return len(self._of) > 1

    def public(self, server: str, uri: str) -> str:
        named = self._of.get(server) or _scheme(server)
        # Hosts show only pages whose URIs begin with this scheme.
        is_page = uri.startswith(PAGE_SCHEME)
        return f"{PAGE_SCHEME}{named}+{uri.removeprefix(PAGE_SCHEME)}" if is_page else f"{named}+{uri}"

    def page(self, server: str, uri: str) -> str:
        """The URI of a server's page for clients. With several servers always one with its server in it: hosts keep
        pages by their URIs, and a page belongs to its server whatever others list.
        """
        return self.public(server, uri) if self.are_several else uri

    def reading(self, uri: str) -> Reading | None:
        """The server and its own URI, for a URI with a server in it; None for any other URI."""
        scheme = PAGE_SCHEME if uri.startswith(PAGE_SCHEME) else ""
        prefix, separator, own = uri.removeprefix(scheme).partition("+")
        server = self._servers.get(prefix.lower()) if separator and own else None
        return (server, f"{scheme}{own}") if server is not None else None


def public_uris(pairs: Collection[Reading], schemes: ServerSchemes | None = None) -> list[str]:
    """Unique URIs for pairs of server and URI, in their order. A URI that a server lists twice is the same resource."""
    schemes = schemes or ServerSchemes(server for server, _ in pairs)
    servers: dict[str, set[str]] = {}
    for server, uri in pairs:
        servers.setdefault(uri, set()).add(server)

    def is_enough(server: str, uri: str) -> bool:
        if len(servers[uri]) > 1 or (uri.startswith(PAGE_SCHEME) and schemes.are_several):
            return False
        reading = schemes.reading(uri)
        # Unchanged, it would be read as a URI of another server, or as another one of its own.
        return reading is None or (reading[0] == server and server not in servers.get(reading[1], ()))

    return [uri if is_enough(server, uri) else schemes.public(server, uri) for server, uri in pairs]


def _scheme(server: str) -> str:
    """A server's name as the beginning of a URI scheme, which allows fewer characters."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", server).lower()


def _key(name: str) -> str:
    """A key that all spellings of a name share."""
    return "".join(letter for letter in name if letter.isalnum()).casefold()
