"""Builds the image, tries it, and pushes it under its version and as latest.

    IMAGE_USER=... IMAGE_TOKEN=... python scripts/publish_image.py NAME vX.Y.Z

NAME has the registry in it. Without IMAGE_TOKEN nothing is pushed: the same steps at home. Only the standard library.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]


def commands(name: str, version: str, variables: Mapping[str, str]) -> list[list[str]]:
    """What is run, in its order. The token is given on stdin, never on a command line."""
    tags = [f"{name}:{version}", f"{name}:latest"]
    steps = [
        ["docker", "build", *(word for tag in tags for word in ("--tag", tag)), "."],
        ["docker", "run", "--rm", "--read-only", "--tmpfs", "/data", tags[0], "--version"],
    ]
    if variables.get("IMAGE_TOKEN"):
        registry = name.partition("/")[0]
        steps.append(["docker", "login", "--username", variables["IMAGE_USER"], "--password-stdin", registry])
        steps += [["docker", "push", tag] for tag in tags]
    return steps


def main() -> None:
    name, tag = sys.argv[1:]
    version = tag.removeprefix("v")
    if not re.fullmatch(r"[a-z0-9][a-z0-9.:-]*(/[a-z0-9._-]+)+", name):
        sys.exit(f"{name!r} is no name of an image with its registry; set the variable IMAGE")
    if not re.fullmatch(r"[0-9A-Za-z][\w.-]*", version):
        sys.exit(f"{version!r} is no version")
    for command in commands(name, version, os.environ):
        print("$", *command, flush=True)
        token = os.environ["IMAGE_TOKEN"] if "login" in command else None
        done = subprocess.run(command, cwd=ROOT, input=token, text=True, stdout=subprocess.PIPE, check=False)
        print(done.stdout, flush=True)
        if done.returncode:
            sys.exit(f"{command[1]} ended with code {done.returncode}")
        if command[1] == "run" and version not in done.stdout:
            sys.exit(f"the image says {done.stdout.strip()!r}, not version {version}")


if __name__ == "__main__":
    main()
