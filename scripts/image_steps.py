"""Carries out the steps of the Dockerfile where no container engine can build it, and tries what comes out.

    python scripts/image_steps.py [--if-possible]

Every instruction is read from the Dockerfile itself. The folders of the image are folders below a temporary one, this
machine's Python stands in for the base image, and the rest is real: the same installation, the same user number (if
we are root), the same environment, entry point and health check. With --if-possible, a machine that has no suitable
Python or cannot reach the package index is no error.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dockerfile import Step, health_command, last, steps_of

ROOT = Path(__file__).parents[1]
_FOLDERS = re.compile(r"(?<![\w./-])/(source|app|data|config)\b")
"""Folders of the image, wherever a step names them."""
_PATIENCE = 60.0


class NotPossible(Exception):
    """This machine lacks what the steps need."""


class Image:
    """The folders of the stage that is being built, and what holds for its next steps."""

    def __init__(self, folder: Path, python: str) -> None:
        self._folder = folder
        self._root = folder / "image"
        self._workdir = "/"
        self._user: int | None = None
        self._stages = 0
        self._name = ""
        run([python, "-m", "venv", str(folder / "base")], cwd=folder)
        path = f"{folder / 'base' / 'bin'}:/usr/local/bin:/usr/bin:/bin"
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "LC_", "LANG"))}
        # What was downloaded once need not be again.
        cache = str(Path.home() / ".cache" / "pip")
        self._base = {"PIP_CACHE_DIR": cache, **kept, "PATH": path, "HOME": str(folder)}
        self.environment = dict(self._base)

    def at(self, text: str) -> str:
        """A text with the folders of the image where they are here."""
        return _FOLDERS.sub(lambda match: f"{self._root}/{match.group(1)}", text)

    def carry_out(self, step: Step) -> None:
        """One instruction."""
        print(f"{step.word} {step.text}", flush=True)
        action = getattr(self, f"do_{step.word.lower()}", None)
        if action is not None:
            action(step)

    def do_from(self, step: Step) -> None:
        if self._stages:
            self._root.rename(self._folder / f"stage-{self._name}")
        self._stages += 1
        self._name = step.words[-1]
        self._root.mkdir()
        self._workdir, self.environment = "/", dict(self._base)

    def do_workdir(self, step: Step) -> None:
        self._workdir = step.text
        self.workdir.mkdir(parents=True, exist_ok=True)

    @property
    def workdir(self) -> Path:
        return self._root / self._workdir.lstrip("/")

    def do_copy(self, step: Step) -> None:
        *sources, target = step.words
        start = ROOT
        if sources[0].startswith("--from="):
            start = self._folder / f"stage-{sources.pop(0).removeprefix('--from=')}"
        for source in sources:
            found = start / source.lstrip("/")
            into = self.workdir / target.lstrip("/") if not target.startswith("/") else self._root / target.lstrip("/")
            if found.is_dir():
                shutil.copytree(found, into, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(found, into / found.name if target.endswith("/") else into)

    def do_env(self, step: Step) -> None:
        for word in step.words:
            name, _, value = word.partition("=")
            self.environment[name] = self.at(value).replace("$PATH", self.environment["PATH"])

    def do_run(self, step: Step) -> None:
        self.run(["sh", "-ec", self.at(step.text)])

    def do_user(self, step: Step) -> None:
        self._user = int(step.text.split(":")[0])

    def run(self, command: list[str], **more: str) -> str:
        """Run something in the image, as its user."""
        return run(command, cwd=self.workdir, env={**self.environment, **more}, user=self.user)

    @property
    def user(self) -> int | None:
        """The number of its user; None where we may not become another."""
        return self._user if os.getuid() == 0 else None


def run(command: list[str], *, cwd: Path, env: dict[str, str] | None = None, user: int | None = None) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        user=user,
        group=user,
        extra_groups=[] if user is not None else None,
    )
    if done.returncode:
        unreachable = "No matching distribution" in done.stdout or "Could not find a version" in done.stdout
        text = f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}"
        raise NotPossible(text) if unreachable else SystemExit(text)
    return done.stdout


def suitable_python(user: int) -> str:
    """A Python that any user may run, as in an image; not one in somebody's home."""
    for name in (sys.executable, "python3.12", "python3.13", "python3.11", "/usr/bin/python3"):
        found = os.path.realpath(shutil.which(name) or name)
        if _may_run(found, user):
            return found
    raise NotPossible("there is no Python from 3.11 on that another user may run")


def _may_run(python: str, user: int) -> bool:
    asks = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"
    becomes = user if os.getuid() == 0 else None
    try:
        done = subprocess.run([python, "-c", asks], user=becomes, cwd="/", check=False, capture_output=True)
    except OSError:
        return False
    return done.returncode == 0


def try_out(image: Image, steps: list[Step]) -> None:
    """What the image is for: the doctor's demo, a start that is refused without keys, a start, and the health check."""
    program = image.environment["PATH"].split(":")[0] + "/mcp-optimizer"
    print(image.run([program, "doctor", "--demo", "--database", "none"]))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
    # The image's own settings, at a port that is free here.
    environment = {name: value.replace(":8080", f":{port}") for name, value in image.environment.items()}
    command = [program, *last(steps, "CMD").words, "--demo"]
    refused = started(image, command, environment)
    said = refused.communicate(timeout=_PATIENCE)[0]
    if refused.returncode != 2 or "there is no key" not in said:
        raise SystemExit(f"it should refuse to start without keys: {refused.returncode} {said}")
    image.run([program, "key", "create", "--name", "first", "--demo"])
    serving = started(image, command, environment)
    try:
        check = [program, *health_command(steps)[1:]]
        until = time.monotonic() + _PATIENCE
        while subprocess.run(check, cwd=image.workdir, env=environment, check=False, capture_output=True).returncode:
            if serving.poll() is not None or time.monotonic() > until:
                raise SystemExit("its health check does not pass")
            time.sleep(0.2)
        print(f"healthy, as user {os.stat(f'/proc/{serving.pid}').st_uid}")
    finally:
        serving.terminate()
        serving.wait(30)


def started(image: Image, command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=image.workdir,
        env=environment,
        user=image.user,
        group=image.user,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def main() -> None:
    if sys.platform == "win32":
        raise NotPossible("the steps are those of a Linux image")
    steps = steps_of(ROOT / "Dockerfile")
    python = suitable_python(int(last(steps, "USER").text.split(":")[0]))
    with tempfile.TemporaryDirectory(prefix="image-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        image = Image(folder, python)
        for step in steps:
            image.carry_out(step)
        try_out(image, steps)
    print("The steps of the Dockerfile work.")


if __name__ == "__main__":
    try:
        main()
    except NotPossible as reason:
        if "--if-possible" not in sys.argv:
            sys.exit(str(reason))
        print(f"The steps of the Dockerfile are not tried: {reason}")
