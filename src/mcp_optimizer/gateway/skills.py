"""Skills: which server has which, under which URIs clients know them, and reading them.

Skills are in the catalog beside tools. Two servers may use the same URIs; then clients get both with the server in
them. Whatever is read of a skill passes here, from call_tool and from resources/read: the caller's rules decide, a
skill that waits for approval is refused, and the content must be what its server announced. Nothing is read ahead of
need. Called by the gateway and by serving; knows no client.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from mcp_optimizer.catalog import CatalogTool, Snapshot
from mcp_optimizer.config.textfiles.kinds import UnreadableText
from mcp_optimizer.config.textfiles.yaml_text import loaded
from mcp_optimizer.domain.caller import Caller
from mcp_optimizer.domain.extensions import is_interim
from mcp_optimizer.domain.naming import ServerSchemes
from mcp_optimizer.domain.protocol import INTERNAL_ERROR
from mcp_optimizer.domain.skills import (
    MAIN_FILE,
    MOST_BYTES,
    Skill,
    ancestors,
    bytes_in,
    climbs,
    entry_in,
    frontmatter_in,
    is_as_announced,
    root_of,
)
from mcp_optimizer.errors import InvalidRequest, UpstreamRefusal, listed, quoted
from mcp_optimizer.gateway.found_tools import held_error
from mcp_optimizer.gateway.permissions import Permissions
from mcp_optimizer.upstream.questions import SERVER_META_KEY

if TYPE_CHECKING:
    from mcp_optimizer.upstream.pool import UpstreamPool

_READ: Final = "resources/read"
_MOST_SHOWN = 20
"""Files of a skill that an answer names."""

_MOST_GOT = 1_000
"""Skills that were asked for by their URIs and whose files are remembered."""


@dataclass(frozen=True)
class _Places:
    """The folders of all skills that are known, by their URIs at their servers."""

    by_root: Mapping[str, Mapping[str, CatalogTool | None]] = field(default_factory=dict)
    """By folder and server: the skill, None while its server is down."""
    above: Mapping[str, Collection[str]] = field(default_factory=dict)
    """By folder: the servers with skills somewhere below it."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> _Places:
        by_root: dict[str, dict[str, CatalogTool | None]] = {}
        above: dict[str, set[str]] = {}
        for position in snapshot.names.skills:
            record = snapshot.names.records[position]
            if record.skill is not None:
                by_root.setdefault(record.skill.root, {})[record.server] = snapshot.tools[position]
                for folder in ancestors(record.skill.root):
                    above.setdefault(folder, set()).add(record.server)
        return cls(by_root, above)

    def around(self, uri: str) -> Iterator[Mapping[str, CatalogTool | None]]:
        """The skills by server whose folder is this URI or has it, innermost first."""
        for folder in (uri, *ancestors(uri)):
            if (found := self.by_root.get(folder)) is not None:
                yield found

    def is_shared(self, root: str) -> bool:
        """Whether several servers have a skill in this folder, above it or below it."""
        servers = set(self.above.get(root, ()))
        for found in self.around(root):
            servers |= found.keys()
        return len(servers) > 1


class Skills:
    """The skills of all servers, for clients and for models."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        schemes: Callable[[], ServerSchemes],
        pool: UpstreamPool,
        permissions: Permissions,
    ) -> None:
        self._snapshot = snapshot
        self._schemes = schemes
        self._pool = pool
        self._permissions = permissions
        self._known: tuple[Snapshot | None, _Places] = (None, _Places())
        self._got: OrderedDict[tuple[str, str], Skill] = OrderedDict()

    @property
    def _places(self) -> _Places:
        snapshot = self._snapshot()
        if self._known[0] is not snapshot:
            self._known = (snapshot, _Places.of(snapshot))
        return self._known[1]

    def owners(self, uri: str) -> Collection[str]:
        """The servers with a skill to whose folder this URI belongs, whether they run or not."""
        return {server for found in self._places.around(uri) for server in found}

    def public(self, server: str, uri: str) -> str:
        """The URI of a skill, of a file or of a folder of it, as clients know it."""
        schemes = self._schemes()
        root = next((skill.root for skill in self._around(server, uri)), uri.removesuffix(f"/{MAIN_FILE}"))
        is_taken = self._places.is_shared(root) or schemes.reading(uri) is not None
        return schemes.public(server, uri) if is_taken else uri

    def entry(self, tool: CatalogTool) -> dict[str, Any]:
        """The entry of a listed skill for clients."""
        return self.named(tool.server, entry_in(tool.record.definition) or {})

    def named(self, server: str, entry: Mapping[str, Any]) -> dict[str, Any]:
        """A server's entry with URIs as clients know them, and with its server."""
        files, meta = entry.get("resources"), entry.get("_meta")
        public: dict[str, Any] = {"uri": self.public(server, entry["uri"])}
        if isinstance(files, list):
            public["resources"] = [{**file, "uri": self.public(server, file["uri"])} for file in files]
        origin = {**(meta if isinstance(meta, dict) else {}), SERVER_META_KEY: server}
        return {**entry, **public, "_meta": origin}

    def remember(self, server: str, skill: Skill) -> None:
        """Note a skill that a client asked for and may use. It may not be listed, or be newer than the list."""
        key = (server, skill.root)
        self._got[key] = skill
        self._got.move_to_end(key)
        while len(self._got) > _MOST_GOT:
            self._got.popitem(last=False)

    async def permitted(self, caller: Caller, server: str, uri: str) -> Caller:
        """The caller, with permission to read a resource of a server; raises if it belongs to a skill that this caller
        may not read, that waits for approval, or that does not have it.
        """
        snapshot = self._snapshot()
        if climbs(uri) and self._has_any(snapshot, server):
            raise InvalidRequest(f"Resource not found: {quoted(uri)}: a path must not contain . or ..")
        found = [tool for around in self._places.around(uri) if (tool := around.get(server)) is not None]
        if having := [tool for tool in found if _may_have(tool.record.skill, uri)]:
            return await self._allowed(having, uri, caller)
        if any(skill.files is None or uri in skill.files for skill in self._remembered(server, uri)):
            return caller
        self._refuse_held(snapshot, server, uri)
        if found:
            self._pool.list_again(server)
            raise InvalidRequest(f"{quoted(uri)} is not one of the files that its skill has, as its server listed it.")
        return caller

    def _has_any(self, snapshot: Snapshot, server: str) -> bool:
        names = snapshot.names
        is_held = any(one == server and root_of(name) is not None for one, name in snapshot.held)
        return is_held or any(names.records[position].server == server for position in names.skills)

    async def _allowed(self, having: Iterable[CatalogTool], uri: str, caller: Caller) -> Caller:
        """The caller, if it may read one of the skills to which a file belongs."""
        view = await self._permissions.views.ready(self._snapshot(), caller)
        for tool in having:
            position = view.names.position(tool.server, tool.record.name)
            if position is not None and view.tools[position] is not None:
                return await self._permissions.obtain(tool, {"uri": uri}, caller, self._snapshot)
        for tool in having:
            # Raises the refusal, which the audit contains.
            await self._permissions.obtain(tool, {"uri": uri}, caller, self._snapshot)
        raise InvalidRequest(f"Resource not found: {quoted(uri)}")

    def _refuse_held(self, snapshot: Snapshot, server: str, uri: str) -> None:
        for (one, name), held in snapshot.held.items():
            root = root_of(name) if one == server else None
            if root is not None and (uri == root or uri.startswith(f"{root}/")):
                # It may be as it was approved again.
                self._pool.list_again(server)
                raise held_error(held)

    def _around(self, server: str, uri: str) -> Iterator[Skill]:
        for around in self._places.around(uri):
            tool = around.get(server)
            if tool is not None and tool.record.skill is not None:
                yield tool.record.skill

    def _remembered(self, server: str, uri: str) -> Iterator[Skill]:
        for folder in (uri, *ancestors(uri)):
            if (skill := self._got.get((server, folder))) is not None:
                yield skill

    def verified(self, server: str, uri: str, result: dict[str, Any]) -> dict[str, Any]:
        """The result of reading a resource; raises UpstreamRefusal if it is a file of a skill, and not the one that its
        server announced.
        """
        if is_interim(result):
            return result
        known = (*self._around(server, uri), *self._remembered(server, uri))
        files = [file for skill in known if skill.files is not None and (file := skill.files.get(uri)) is not None]
        if not files:
            return result
        contents = result.get("contents")
        content = bytes_in(contents[0]) if isinstance(contents, list) and len(contents) == 1 else None
        if content is None or not any(is_as_announced(file, content) for file in files):
            raise self._changed(server, uri)
        return result

    def _changed(self, server: str, uri: str) -> UpstreamRefusal:
        self._pool.list_again(server)
        text = (
            f"{quoted(uri)} is not what the server {quoted(server)} listed: its size or digest is another. The skill "
            "changed, and is not used before it was listed again. Look for it again."
        )
        return UpstreamRefusal(server, INTERNAL_ERROR, text)

    async def read(self, tool: CatalogTool, arguments: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """A file of a skill as the result of a call, for a model; without an argument its main file."""
        skill, server = tool.record.skill, tool.server
        assert skill is not None
        path = str(arguments.get("file") or MAIN_FILE)
        uri = f"{skill.root}/{path}"
        if climbs(uri) or not (skill.has_below(uri) if skill.files is None else uri in skill.files):
            there = listed([MAIN_FILE, *skill.further_files], _MOST_SHOWN)
            raise InvalidRequest(f"The skill {quoted(skill.name)} has no file {quoted(path)}. Its files: {there}.")
        result = self.verified(server, uri, await self._pool.call(server, _READ, {"uri": uri}, caller))
        if is_interim(result):
            return result
        contents = result.get("contents")
        content = contents[0] if isinstance(contents, list) and contents else None
        data = bytes_in(content)
        if data is None or len(data) > MOST_BYTES:
            raise UpstreamRefusal(server, INTERNAL_ERROR, f"The server sent nothing usable for {quoted(uri)}.")
        text = _text(data)
        if path == MAIN_FILE and not _says_the_same(text, entry_in(tool.record.definition)):
            raise self._changed(server, uri)
        body = {"type": "text", "text": text} if text is not None else {"type": "resource", "resource": content}
        return {"content": [{"type": "text", "text": _heading(skill, server, path)}, body]}


def _may_have(skill: Skill | None, uri: str) -> bool:
    """Whether a URI is that of a file or folder of a skill."""
    if skill is None:
        return False
    if uri == skill.root or skill.files is None:
        return uri == skill.root or skill.has_below(uri)
    return uri in skill.files or any(one.startswith(f"{uri}/") for one in skill.files)


def _heading(skill: Skill, server: str, path: str) -> str:
    """Says whose words follow: a model must not take a server's instructions for those of its user."""
    further = listed(skill.further_files, _MOST_SHOWN) if path == MAIN_FILE else ""
    files = f' Its other files, to be read with "file": {further}.' if further else ""
    return f"From the server {quoted(server)}, the skill {quoted(skill.name)}, {path}.{files}"


def _text(content: bytes) -> str | None:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _says_the_same(text: str | None, entry: Mapping[str, Any] | None) -> bool:
    """Whether a main file begins with the frontmatter of its entry, which a person saw and a search found."""
    written = frontmatter_in(text) if text is not None else None
    try:
        read = loaded(written) if written is not None else None
    except UnreadableText:
        return False
    return isinstance(read, dict) and _as_json(read) == _as_json((entry or {}).get("frontmatter"))


def _as_json(value: Any) -> Any:
    """A value as JSON has it: YAML also knows dates, and keys that are not text."""
    try:
        return json.loads(json.dumps(value, default=str, skipkeys=True))
    except (ValueError, RecursionError):
        return None
