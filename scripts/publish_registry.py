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
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

REGISTRY = "https://registry.modelcontextprotocol.io"
_SECONDS = 30
_TRIES = 5
_PAUSE = 10.0
"""The package index may take a moment to show a package that was just published."""


class Refused(Exception):
    """An answer that is no success."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(f"{code}: {said}")
        self.code = code


def sent(url: str, token: str = "", document: object = None) -> dict[str, Any]:
    """Send a document, or read one. Redirects are not followed: a token is for the host that it was made for."""
    parts = urlsplit(url)
    kind = {"https": HTTPSConnection, "http": HTTPConnection}[parts.scheme]
    connection = kind(parts.netloc, timeout=_SECONDS)
    try:
        body = None if document is None else json.dumps(document).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        connection.request("GET" if body is None else "POST", target, body, headers)
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
    finally:
        connection.close()
    if response.status not in (200, 201):
        raise Refused(response.status, text[:2_000])
    found: dict[str, Any] = json.loads(text)
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
        except Refused as error:
            if tried == _TRIES or error.code in (401, 403):
                raise SystemExit(f"the registry refused it with {error}") from error
            print(f"try {tried}: {error}", flush=True)
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
