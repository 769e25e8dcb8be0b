"""Reads the instructions of a Dockerfile: those that ours uses, and an error for any other.

Called by `image_steps.py`, which carries them out, and by the test that checks them. Knows nothing of images.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

KNOWN = frozenset("FROM LABEL WORKDIR RUN COPY ENV USER VOLUME EXPOSE HEALTHCHECK ENTRYPOINT CMD".split())


@dataclass(frozen=True)
class Step:
    """One instruction, with its text in one line."""

    word: str
    text: str
    line: int

    @property
    def words(self) -> list[str]:
        """The parts of a list in JSON, or of plain words."""
        return [str(part) for part in json.loads(self.text)] if self.text.startswith("[") else shlex.split(self.text)


def steps_of(path: Path) -> list[Step]:
    """The instructions in their order."""
    found: list[Step] = []
    pending, began = "", 0
    for number, raw in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        began = began if pending else number
        pending += line.removesuffix("\\")
        if line.endswith("\\"):
            continue
        word, _, text = pending.partition(" ")
        if word not in KNOWN:
            raise ValueError(f"{path}, line {began}: {word} is not understood")
        found.append(Step(word, text.strip(), began))
        pending = ""
    return found


def last(steps: list[Step], word: str) -> Step:
    """The instruction that counts, of several."""
    return [step for step in steps if step.word == word][-1]


def health_command(steps: list[Step]) -> list[str]:
    """What the health check runs."""
    return [str(part) for part in json.loads(last(steps, "HEALTHCHECK").text.partition("CMD ")[2])]
