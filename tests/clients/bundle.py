"""python -m tests.clients.bundle [--if-possible]: the bundle for desktop clients is valid, packed and started.

`@anthropic-ai/mcpb` from npm checks the manifest and packs it; what comes out is started as its manifest says, with
this checkout in place of the version that it would fetch.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from mcp import Client, StdioServerParameters

from tests.conformance.suite import FOLDER, ROOT, NotAvailable, get_node, install_unless

PACKER = "@anthropic-ai/mcpb@2.1.2"
SOURCES = ROOT / "stores" / "mcpb"
_SECONDS = 120


def get_packer() -> list[str]:
    """The command that validates and packs."""
    script = FOLDER / "node_modules" / "@anthropic-ai" / "mcpb" / "dist" / "cli" / "cli.js"
    node = get_node()
    install_unless(script.exists, PACKER)
    return [node, str(script)]


def pack(packer: list[str], bundle: Path) -> None:
    for words in (["validate", str(SOURCES / "manifest.json")], ["pack", str(SOURCES), str(bundle)]):
        done = subprocess.run([*packer, *words], capture_output=True, text=True, timeout=_SECONDS, check=False)
        if done.returncode:
            raise SystemExit(f"bundle: {words[0]} failed: {done.stdout}{done.stderr}")


async def found_through(bundle: Path, folder: Path) -> str:
    """What the unpacked bundle finds, given a server file as a person's setting."""
    zipfile.ZipFile(bundle).extractall(folder)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["server"]
    assert manifest["mcp_config"]["args"][-1] == manifest["entry_point"]
    demo = {"kanban": {"command": sys.executable, "args": ["-m", "mcp_optimizer_demo.kanban"]}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": demo}), encoding="utf-8")
    variables = {"HOME": str(folder), "MCP_OPTIMIZER_CONFIG": str(folder / "mcp.json")}
    assert manifest["mcp_config"]["env"].keys() <= variables.keys()
    command = StdioServerParameters(command=sys.executable, args=[manifest["entry_point"]], env=variables, cwd=folder)
    async with Client(command) as client:
        text = "Still starting"
        while "Still starting" in text:
            reply = await client.call_tool("find_tool", {"tool_description": "move a card to another column"})
            text = "".join(getattr(part, "text", "") for part in reply.content)
        return text


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.bundle")
    parser.add_argument("--if-possible", action="store_true")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="put the packed bundle here")
    options = parser.parse_args()
    try:
        packer = get_packer()
    except NotAvailable as problem:
        print(f"bundle: not tried, because {problem}")
        return 0 if options.if_possible else 1
    with tempfile.TemporaryDirectory() as folder:
        bundle = options.keep or Path(folder) / "mcp-optimizer.mcpb"
        bundle.parent.mkdir(parents=True, exist_ok=True)
        pack(packer, bundle)
        found = asyncio.run(asyncio.wait_for(found_through(bundle, Path(folder) / "unpacked"), _SECONDS))
        size = bundle.stat().st_size
    if "move_card" not in found:
        print(f"bundle: it did not find the tool: {found[:500]}")
        return 1
    print(f"bundle: valid, packed ({size:,} bytes), started and asked")
    return 0


if __name__ == "__main__":
    sys.exit(main())
