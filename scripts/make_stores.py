"""Makes the files that stores want, all from stores/about.toml and the package.

    python scripts/make_stores.py                        # writes what is committed; a test compares
    python scripts/make_stores.py --release dist/*.whl   # and into build/stores what a release has: bundle, formula

Committed are server.json, the Claude Code plugin and its marketplace file, the bundle's sources, the Helm chart, and
the marks in README.md and the Dockerfile. The entries in install links are those that `connect` writes.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from helm_chart import chart_files

from mcp_optimizer import __version__
from mcp_optimizer.config.clients.connecting import DEFAULT_NAME
from mcp_optimizer.config.known_clients.entry_spelling import OurGateway
from mcp_optimizer.config.known_clients.table import CLIENTS

ROOT = Path(__file__).parents[1]
BUILT = ROOT / "build" / "stores"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ABOUT = tomllib.loads((ROOT / "stores" / "about.toml").read_text(encoding="utf-8"))
PACKAGE: str = PROJECT["name"]
REPOSITORY: str = ABOUT["repository"]
REPOSITORY_URL = f"https://github.com/{REPOSITORY}"
REGISTRY_NAME = f"io.github.{REPOSITORY.partition('/')[0]}/{PACKAGE}"
STARTED_BY_UVX = OurGateway("uvx", (f"{PACKAGE}@{__version__}", "serve"))
"""Fetched by its own name and version, wherever it is started."""
_BEGINS, _ENDS = "<!-- made by scripts/make_stores.py -->\n", "<!-- end -->\n"


def as_json(document: object) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def entry(client: str) -> dict[str, Any]:
    """What `connect` writes into this client's file for the program as uvx starts it."""
    return CLIENTS[client].writing.entry(STARTED_BY_UVX, DEFAULT_NAME)


# The MCP registry


def server_json() -> dict[str, Any]:
    return {
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": REGISTRY_NAME,
        "title": ABOUT["title"],
        "description": ABOUT["description"],
        "repository": {"url": REPOSITORY_URL, "source": "github"},
        "version": __version__,
        "packages": [
            {
                "registryType": "pypi",
                "identifier": PACKAGE,
                "version": __version__,
                "runtimeHint": "uvx",
                "transport": {"type": "stdio"},
                "packageArguments": [{"type": "positional", "value": "serve"}],
                "environmentVariables": [
                    {
                        "name": "MCP_OPTIMIZER_CONFIG",
                        "description": "The file with your servers. Default: the one in your config folder.",
                        "format": "filepath",
                    }
                ],
            }
        ],
    }


# The bundle for desktop clients


def bundle_manifest() -> dict[str, Any]:
    return {
        "manifest_version": "0.4",
        "name": PACKAGE,
        "display_name": ABOUT["title"],
        "version": __version__,
        "description": ABOUT["description"],
        "long_description": ABOUT["long_description"].strip(),
        "author": {"name": "mcp-optimizer maintainers", "url": REPOSITORY_URL},
        "repository": {"type": "git", "url": REPOSITORY_URL},
        "license": PROJECT["license"],
        "keywords": ABOUT["keywords"],
        "server": {
            "type": "uv",
            "entry_point": "src/server.py",
            "mcp_config": {
                "command": "uv",
                "args": ["run", "--quiet", "--directory", "${__dirname}", "src/server.py"],
                "env": {"MCP_OPTIMIZER_CONFIG": "${user_config.servers}"},
            },
        },
        "tools": [
            {"name": "find_tool", "description": "Finds the tools that fit a request"},
            {"name": "call_tool", "description": "Calls a tool that find_tool found"},
            {"name": "read_result", "description": "Reads on in a result that was cut"},
            {"name": "list_tools", "description": "Lists all tools, page by page"},
        ],
        "user_config": {
            "servers": {
                "type": "file",
                "title": "Server file",
                "description": "Your mcp.json. Empty: the one in your config folder, which `import` writes.",
                "required": False,
                "default": "",
            }
        },
        "compatibility": {
            "platforms": ["darwin", "win32", "linux"],
            "runtimes": {"python": PROJECT["requires-python"]},
        },
    }


def bundle_project() -> str:
    return "\n".join(
        [
            "[project]",
            f'name = "{PACKAGE}-bundle"',
            f'version = "{__version__}"',
            f'requires-python = "{PROJECT["requires-python"]}"',
            f'dependencies = ["{PACKAGE}=={__version__}"]',
            "",
        ]
    )


BUNDLE_SERVER = '''"""Starts the gateway on stdio. An empty setting is one that was not given."""

import os
import sys

if not os.environ.get("MCP_OPTIMIZER_CONFIG"):
    os.environ.pop("MCP_OPTIMIZER_CONFIG", None)
sys.argv[1:] = ["serve"]

from mcp_optimizer_gateway import main  # noqa: E402

# Child processes import this file, too.
if __name__ == "__main__":
    main()
'''


# The plugin for Claude Code


def plugin() -> dict[str, Any]:
    return {
        "name": DEFAULT_NAME,
        "version": __version__,
        "description": ABOUT["description"],
        "author": {"name": "mcp-optimizer maintainers"},
        "repository": REPOSITORY_URL,
        "license": PROJECT["license"],
        "keywords": ABOUT["keywords"],
    }


def marketplace() -> dict[str, Any]:
    listed = {"name": DEFAULT_NAME, "source": "./stores/claude-code", "description": ABOUT["description"]}
    return {
        "name": PACKAGE,
        "owner": {"name": "mcp-optimizer maintainers"},
        "metadata": {"description": ABOUT["description"], "version": __version__},
        "plugins": [listed | {"version": __version__, "license": PROJECT["license"], "keywords": ABOUT["keywords"]}],
    }


# Links and marks in other files


def cursor_link() -> str:
    config = base64.b64encode(json.dumps(entry("cursor"), separators=(",", ":")).encode()).decode()
    return f"https://cursor.com/install-mcp?name={DEFAULT_NAME}&config={quote(config, safe='')}"


def vscode_link() -> str:
    config = json.dumps(entry("vscode"), separators=(",", ":"))
    return f"https://vscode.dev/redirect/mcp/install?name={DEFAULT_NAME}&config={quote(config, safe='')}"


def readme() -> str:
    """The README as it is, with the links that install and the registry's mark."""
    before, _, rest = (ROOT / "README.md").read_text(encoding="utf-8").partition(_BEGINS)
    links = [f"[Install in Cursor]({cursor_link()})", f"[Install in VS Code]({vscode_link()})"]
    made = " · ".join([*links, "[Claude Code plugin](docs/plugin.md)"]) + "\n"
    made += f"\n<!-- mcp-name: {REGISTRY_NAME} -->\n"
    return before + _BEGINS + made + _ENDS + rest.partition(_ENDS)[2]


def dockerfile() -> str:
    """The Dockerfile as it is, with the registry's mark."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    label = f'LABEL io.modelcontextprotocol.server.name="{REGISTRY_NAME}"'
    return re.sub(r"^LABEL io\.modelcontextprotocol\.server\.name=.*$", label, text, flags=re.MULTILINE)


def committed() -> Mapping[str, str]:
    """Every committed file that this makes, by its path."""
    texts = {
        "server.json": as_json(server_json()),
        ".claude-plugin/marketplace.json": as_json(marketplace()),
        "stores/claude-code/.claude-plugin/plugin.json": as_json(plugin()),
        "stores/claude-code/.mcp.json": as_json({"mcpServers": {DEFAULT_NAME: entry("claude-code")}}),
        "stores/mcpb/manifest.json": as_json(bundle_manifest()),
        "stores/mcpb/pyproject.toml": bundle_project(),
        "stores/mcpb/src/server.py": BUNDLE_SERVER,
        "README.md": readme(),
        "Dockerfile": dockerfile(),
    }
    kubernetes = (ROOT / "deploy" / "kubernetes.yaml").read_text(encoding="utf-8")
    chart = chart_files(kubernetes, DEFAULT_NAME, __version__, ABOUT["description"])
    return texts | {f"deploy/helm/{name}": text for name, text in chart.items()}


# What only a release has


def formula(wheel: str, sha256: str) -> str:
    """For a tap of our own: installs the release's wheel, and what it needs, into an environment of the formula."""
    return f'''# Made by scripts/make_stores.py for this release.
class McpOptimizerGateway < Formula
  desc "{ABOUT["description"].replace('"', "")}"
  homepage "{REPOSITORY_URL}"
  url "{REPOSITORY_URL}/releases/download/v{__version__}/{wheel}",
      using: :nounzip
  version "{__version__}"
  sha256 "{sha256}"
  license "{PROJECT["license"]}"

  depends_on "python@3.13"

  def install
    python = Formula["python@3.13"].opt_bin/"python3.13"
    system python, "-m", "venv", libexec
    system libexec/"bin/python", "-m", "pip", "install", "--no-input", Dir["*.whl"].first
    bin.install_symlink libexec/"bin/{PACKAGE}"
  end

  test do
    assert_match version.to_s, shell_output("#{{bin}}/{PACKAGE} --version")
    assert_match "move_card", shell_output("#{{bin}}/{PACKAGE} find 'move a card' --demo --servers kanban --json")
  end
end
'''


def make_release(wheel: Path) -> None:
    BUILT.mkdir(parents=True, exist_ok=True)
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (BUILT / f"{PACKAGE}.rb").write_text(formula(wheel.name, sha256), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--release", type=Path, metavar="WHEEL")
    options = parser.parse_args()
    for name, text in committed().items():
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(text, encoding="utf-8")
    if options.release:
        make_release(options.release)


if __name__ == "__main__":
    main()
