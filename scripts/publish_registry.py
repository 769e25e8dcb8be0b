"""Publishes server.json to the MCP registry, as the repository whose workflow runs this.

    python scripts/publish_registry.py server.json [--registry URL]

Asks GitHub for a token that says which repository this is (OIDC), exchanges it for one of the registry, and publishes;
no secret is stored anywhere. Only the standard library.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

REGISTRY = "https://registry.modelcontextprotocol.io"
_SECONDS = 30
_TRIES = 5
_PAUSE = 10.0
"""The package index may take a moment to show a package that was just published."""


def sent(url: str, token: str = "", document: object = None) -> dict[str, Any]:
    """Send a document, or read one."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise SystemExit(f"{url} is no address")
    body = None if document is None else json.dumps(document).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, data=body, headers=headers)  # noqa: S310  # the scheme was looked at
    with urllib.request.urlopen(request, timeout=_SECONDS) as response:  # noqa: S310
        found: dict[str, Any] = json.load(response)
        return found


def publish(file: Path, registry: str, variables: Mapping[str, str], pause: float = _PAUSE) -> str:
    """Publish the file. Returns the name and version that the registry has now."""
    document = json.loads(file.read_text(encoding="utf-8"))
    try:
        asked, secret = variables["ACTIONS_ID_TOKEN_REQUEST_URL"], variables["ACTIONS_ID_TOKEN_REQUEST_TOKEN"]
    except KeyError as missing:
        raise SystemExit(f"{missing.args[0]} is not set: run this in a workflow with id-token: write") from None
    audience = quote(registry, safe="")
    identity = sent(f"{asked}&audience={audience}", secret)["value"]
    token = sent(f"{registry}/v0.1/auth/github-oidc", document={"oidc_token": identity})["registry_token"]
    for tried in range(1, _TRIES + 1):
        try:
            sent(f"{registry}/v0.1/publish", token, document)
            return f"{document['name']} {document['version']}"
        except urllib.error.HTTPError as error:
            said = error.read(2_000).decode(errors="replace")
            if tried == _TRIES or error.code in (401, 403):
                raise SystemExit(f"the registry refused it with {error.code}: {said}") from error
            print(f"try {tried}: {error.code} {said}", flush=True)
            time.sleep(pause)
    raise AssertionError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--registry", default=REGISTRY)
    options = parser.parse_args()
    print(publish(options.file, options.registry.rstrip("/"), os.environ), "is published")


if __name__ == "__main__":
    sys.exit(main())
