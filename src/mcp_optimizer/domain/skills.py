"""Skills: instructions that a server offers to models, each a folder of files with a `SKILL.md`. Values and pure
functions; knows no server and no client.

In a listing and in the catalog, a skill is a definition beside those of tools: it is found, counted, approved and held
like one, and calling it reads it. The definition contains the entry that the server sent, with the digests of its
files, so that an approval covers the files, too.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcp_optimizer.domain.tools import SKILL_META_KEY, SKILL_PREFIX, Definition, McpTool

MAIN_FILE: Final = "SKILL.md"
MOST_FILES, MOST_BYTES = 512, 16 * 1024 * 1024
"""The limits of one skill that the extension sets."""

_END = f"/{MAIN_FILE}"
_USUAL_SCHEME = "skill://"
_LONGEST_URI = 2_000
_LONGEST_NAME = 64
_BYTES_PER_TOKEN = 4
_URI = re.compile(r"[a-z][a-z0-9+.-]*://[^\s?#\\]+", re.IGNORECASE | re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_DOTS = re.compile(r"(?:\.|%2e){1,2}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SkillFile:
    """A file of a skill, as its server announced it."""

    uri: str
    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill of a server, by the URIs of that server."""

    uri: str
    """The URI of its main file."""
    name: str
    description: str
    files: Mapping[str, SkillFile] | None
    """Its files by URI; None if the server makes them anew each time, so that nothing is known of them."""

    @property
    def root(self) -> str:
        """The URI of its folder."""
        return self.uri.removesuffix(_END)

    @property
    def tokens_to_read(self) -> int:
        """About what its main file costs a model; 0 if the size is unknown. Known without reading the file."""
        return -(-self.files[self.uri].size // _BYTES_PER_TOKEN) if self.files is not None else 0

    @property
    def further_files(self) -> list[str]:
        """The paths of its files besides the main one, as the main file refers to them."""
        return [uri.removeprefix(f"{self.root}/") for uri in self.files or () if uri != self.uri]

    def has_below(self, uri: str) -> bool:
        """Whether a URI is in its folder, listed or not."""
        return uri.startswith(f"{self.root}/")


def catalog_name(uri: str) -> str:
    """The name in the catalog of the skill with this main file; unique on its server."""
    return SKILL_PREFIX + uri.removesuffix(_END).removeprefix(_USUAL_SCHEME)


def root_of(name: str) -> str | None:
    """The folder of the skill with this name in the catalog; None for the name of a tool."""
    if not name.startswith(SKILL_PREFIX):
        return None
    place = name.removeprefix(SKILL_PREFIX)
    return place if "://" in place else _USUAL_SCHEME + place


def climbs(uri: str) -> bool:
    """Whether a URI has a part such as `..`, which some servers resolve to another place than it seems to be."""
    return any(_DOTS.fullmatch(part) for part in uri.partition("://")[2].split("/"))


def skill_of(entry: Any) -> Skill:
    """The skill of an entry; raises ValueError with the reason if the entry cannot be used."""
    if not isinstance(entry, Mapping):
        raise ValueError("it is not an object")
    uri = _checked_uri(entry.get("uri"))
    if not uri.endswith(_END):
        raise ValueError(f"its URI does not end with {_END}")
    frontmatter = entry.get("frontmatter")
    if not isinstance(frontmatter, Mapping):
        raise ValueError("its frontmatter is not an object")
    name, description = frontmatter.get("name"), frontmatter.get("description")
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not isinstance(description, str):
        raise ValueError("its frontmatter has no usable name and description")
    if uri.removesuffix(_END).rpartition("/")[2] != name:
        raise ValueError("its folder is not called like the skill")
    return Skill(uri, name, description, _files(entry.get("resources"), uri))


def _checked_uri(uri: Any) -> str:
    if not isinstance(uri, str) or len(uri) > _LONGEST_URI or not _URI.fullmatch(uri) or not uri.isprintable():
        raise ValueError("one of its URIs cannot be used")
    if climbs(uri) or "//" in uri.partition("://")[2]:
        raise ValueError("one of its URIs leaves its folder")
    return uri


def _files(listed: Any, uri: str) -> dict[str, SkillFile] | None:
    if listed == "dynamic":
        return None
    if not isinstance(listed, list):
        raise ValueError('its resources are neither a list nor "dynamic"')
    if len(listed) > MOST_FILES:
        raise ValueError(f"it has {len(listed):,} files, more than {MOST_FILES}")
    found: dict[str, SkillFile] = {}
    for one in listed:
        file = _file(one)
        if not file.uri.startswith(uri.removesuffix(MAIN_FILE)):
            raise ValueError("one of its files is not in its folder")
        if file.uri in found:
            raise ValueError("it lists a file twice")
        found[file.uri] = file
    if uri not in found:
        raise ValueError(f"it does not list its {MAIN_FILE}")
    if (size := sum(file.size for file in found.values())) > MOST_BYTES:
        raise ValueError(f"its files have {size:,} bytes, more than {MOST_BYTES:,}")
    return found


def _file(one: Any) -> SkillFile:
    described = one if isinstance(one, Mapping) else {}
    digest, size = described.get("digest"), described.get("size")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest) or type(size) is not int or size < 0:
        raise ValueError("one of its files has no usable digest and size")
    return SkillFile(_checked_uri(described.get("uri")), digest, size)


_PATH_SCHEMA: Final = {
    "type": "object",
    "properties": {"file": {"type": "string", "description": f"Path of another file of the skill than {MAIN_FILE}"}},
}


def definition_of(entry: Mapping[str, Any], skill: Skill) -> Definition:
    """The definition under which a skill is in its server's listing; raises ValueError if it cannot be written."""
    described = {
        "name": catalog_name(skill.uri),
        "description": skill.description,
        "inputSchema": _PATH_SCHEMA,
        "annotations": {"readOnlyHint": True},
        "_meta": {SKILL_META_KEY: entry},
    }
    # As a tool is written, so that what the database returns at the next start is the same to the byte.
    return Definition.of(McpTool.model_validate(described))


def entry_in(definition: Definition) -> dict[str, Any] | None:
    """The entry of a skill in its definition, as its server sent it; None for a tool."""
    if not definition.is_skill:
        return None
    meta = (definition.sent().model_extra or {}).get("_meta")
    entry = meta.get(SKILL_META_KEY) if isinstance(meta, dict) else None
    return entry if isinstance(entry, dict) else None


def skill_in(definition: Definition) -> Skill | None:
    """The skill of a definition; None for a tool."""
    if (entry := entry_in(definition)) is None:
        return None
    try:
        skill = skill_of(entry)
    except ValueError:
        # A row of the database that was damaged.
        return None
    return skill if catalog_name(skill.uri) == definition.name else None


def listed_text(definition: Definition) -> str:
    """The text for which a model pays while it only has the list: hosts show it the name and the description."""
    skill = skill_in(definition)
    return definition.wire_json if skill is None else f"{skill.name}: {skill.description}"


def bytes_in(content: Any) -> bytes | None:
    """The bytes of one item of a result of reading; None if it has none that can be read."""
    if not isinstance(content, Mapping):
        return None
    text, blob = content.get("text"), content.get("blob")
    if isinstance(text, str):
        return text.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(blob, validate=True) if isinstance(blob, str) else None
    except (binascii.Error, ValueError):
        return None


def is_as_announced(file: SkillFile, content: bytes) -> bool:
    """Whether these are the bytes that the server announced for a file."""
    return len(content) == file.size and f"sha256:{hashlib.sha256(content).hexdigest()}" == file.digest


def frontmatter_in(text: str) -> str | None:
    """The YAML at the beginning of a main file; None if there is none."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        return None
    end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    return None if end is None else "\n".join(lines[1:end])


def ancestors(uri: str) -> Iterator[str]:
    """The folders above a URI, nearest first."""
    scheme, separator, path = uri.partition("://")
    while "/" in path:
        path = path.rpartition("/")[0]
        yield f"{scheme}{separator}{path}"
