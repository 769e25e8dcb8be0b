"""The steps of a release that are ours: what must be true before it, and what is shown of it.

    python scripts/release.py check vX.Y.Z --repository OWNER/NAME   # refuses a tag that does not fit the sources
    python scripts/release.py notes vX.Y.Z                           # the changelog's section
    python scripts/release.py publish vX.Y.Z FOLDER                  # the release on GitHub, with these files

Only the standard library: it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PLACEHOLDER = "OWNER"


def version(root: Path = ROOT) -> str:
    """The version, where it is said once."""
    text = (root / "src" / "mcp_optimizer" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise SystemExit("src/mcp_optimizer/__init__.py has no __version__")
    return found[1]


def notes(tag: str, root: Path = ROOT) -> str:
    """The changelog's section about a version; empty if there is none."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    return text.partition(f"\n## {tag.removeprefix('v')}\n")[2].partition("\n## ")[0].strip()


def problems(tag: str, repository: str, root: Path = ROOT) -> Iterator[str]:
    """Why this tag cannot be released from these sources."""
    said = version(root)
    if tag != f"v{said}":
        yield f"the tag is {tag}, and the sources are version {said}"
    if not notes(tag, root):
        yield f"CHANGELOG.md has no section about {said}, or an empty one"
    ours = tomllib.loads((root / "stores" / "about.toml").read_text(encoding="utf-8"))["repository"]
    if ours.partition("/")[0] == _PLACEHOLDER:
        yield "stores/about.toml does not name the repository's owner yet; then run scripts/make_stores.py"
    elif repository and ours != repository:
        yield f"stores/about.toml names {ours}, and this is {repository}"
    server = (root / "server.json").read_text(encoding="utf-8")
    if f'"version": "{said}"' not in server or f'"name": "io.github.{ours.partition("/")[0]}/' not in server:
        yield "server.json is of another version or owner; run scripts/make_stores.py"


def publish(tag: str, folder: Path) -> None:
    """Make the release on GitHub. Fails if it is there already: a version is published once."""
    files = sorted(str(path) for path in folder.iterdir() if path.is_file())
    with tempfile.NamedTemporaryFile("w", suffix=".md", encoding="utf-8", delete=False) as file:
        file.write(notes(tag))
    command = ["gh", "release", "create", tag, "--verify-tag", "--title", tag, "--notes-file", file.name, *files]
    subprocess.run(command, check=True, cwd=ROOT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    steps = parser.add_subparsers(dest="step", required=True)
    for name in ("check", "notes", "publish"):
        step = steps.add_parser(name)
        step.add_argument("tag")
        if name == "check":
            step.add_argument("--repository", default="")
        if name == "publish":
            step.add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.step == "check":
        if found := list(problems(options.tag, options.repository)):
            sys.exit("\n".join(f"not released: {problem}" for problem in found))
        print(f"{options.tag} can be released")
    elif options.step == "notes":
        print(notes(options.tag))
    else:
        publish(options.tag, options.folder)


if __name__ == "__main__":
    main()
