"""A release is made by scripts of this repository and by actions pinned by their commit; nothing else runs in it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import pytest
import yaml

from mcp_optimizer import __version__
from tests.conftest import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values():
        yield from job["steps"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_step_is_a_script_of_the_repository_or_a_pinned_action(path: Path) -> None:
    for step in steps(path):
        if "uses" in step:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"]), step
            continue
        words = shlex.split(step["run"])
        if words[0] == "make":
            assert set(words[1:]) <= TARGETS, step
        else:
            named = words[1] if words[0] in ("python", "python3") else words[0]
            assert (ROOT / named).is_file(), step
        assert "${{" not in step["run"], "what a workflow is given goes into its environment, not into a shell's text"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_pin_says_its_version(path: Path) -> None:
    pins = re.findall(r"uses: \S+@[0-9a-f]{40}(.*)", path.read_text(encoding="utf-8"))
    assert [pin for pin in pins if not re.fullmatch(r" # v\d+\.\d+\.\d+", pin)] == []


def test_versions_and_systems_of_the_classifiers_are_those_that_are_tested() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    tested = jobs["check"]["strategy"]["matrix"]["python"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert named == tested
    assert PROJECT["requires-python"] == f">={tested[0]}"
    systems = re.findall(r"Operating System :: (?:POSIX :: |Microsoft :: )?(\w+)", "\n".join(PROJECT["classifiers"]))
    elsewhere = jobs["elsewhere"]["strategy"]["matrix"]
    assert sorted(systems) == ["Linux", "MacOS", "Windows"]
    assert elsewhere["os"] == ["macos-latest", "windows-latest"]
    assert elsewhere["python"] == [tested[0], tested[-1]]


def test_only_what_publishes_may_write_and_only_after_the_wheel_was_tried() -> None:
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    assert release["permissions"] == {}
    rights = {name: job["permissions"] for name, job in release["jobs"].items()}
    assert {name for name in rights if "write" in rights[name].values()} == {
        "attest",
        "packages",
        "image",
        "registry",
        "release",
    }
    assert release["jobs"]["attest"]["needs"] == "try"
    assert release["jobs"]["packages"]["needs"] == release["jobs"]["image"]["needs"] == "attest"


def test_zizmor_has_nothing_to_say() -> None:
    program = shutil.which("zizmor", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip("zizmor is not installed")
    done = subprocess.run(
        [program, "--offline", "--no-progress", *map(str, WORKFLOWS)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout


# What must be true before a release


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for name in ("src/mcp_optimizer/__init__.py", "stores/about.toml", "server.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / name).read_text(encoding="utf-8").replace("OWNER", "someone")
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "CHANGELOG.md").write_text(
        f"# Changelog\n\n## Unreleased\n\n## {__version__}\n\n- First.\n\n## 0.0.1\n"
    )
    return tmp_path


def test_a_tag_that_fits_the_sources_is_released_with_its_notes(sources: Path) -> None:
    release = script("release")
    assert list(release.problems(f"v{__version__}", "someone/mcp-optimizer-gateway", sources)) == []
    assert release.notes(f"v{__version__}", sources) == "- First."


def test_a_tag_that_does_not_fit_is_refused_with_each_reason(sources: Path) -> None:
    release = script("release")
    found = list(release.problems("v9.9.9", "another/fork", sources))
    assert len(found) == 3, found
    about = sources / "stores" / "about.toml"
    about.write_text(about.read_text().replace("someone", "OWNER"))
    assert any("owner" in problem for problem in release.problems(f"v{__version__}", "", sources))


def test_an_image_is_tried_before_it_is_pushed_and_its_token_is_on_no_command_line() -> None:
    image = script("publish_image")
    name = "registry.example/someone/gateway"
    given = image.commands(name, "1.2.3", {"IMAGE_USER": "someone", "IMAGE_TOKEN": "hunter2"})
    assert [command[1] for command in given] == ["build", "run", "login", "push", "push"]
    assert "hunter2" not in str(given)
    assert [command[1] for command in image.commands(name, "1.2.3", {})] == ["build", "run"]


class Registry(BaseHTTPRequestHandler):
    """A registry, and the address at which a workflow asks who it is."""

    published: list[Any]
    refusals: list[int]

    def log_message(self, format: str, *args: object) -> None:
        """Requests are looked at by the test."""

    def _send(self, code: int, document: object) -> None:
        data = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        assert self.headers["authorization"] == "Bearer of-the-workflow"
        assert "audience=" in self.path
        self._send(200, {"value": "who-i-am"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.endswith("/auth/github-oidc"):
            self._send(200, {"registry_token": "short"} if body == {"oidc_token": "who-i-am"} else {})
        elif self.refusals:
            self._send(self.refusals.pop(), {"error": "not there yet"})
        else:
            assert self.headers["authorization"] == "Bearer short"
            self.published.append(body)
            self._send(200, {})


@pytest.fixture
def registry() -> Iterator[tuple[str, type[Registry]]]:
    handler = type("Handler", (Registry,), {"published": [], "refusals": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", handler
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_registry_gets_the_file_once_it_sees_the_package(registry: tuple[str, type[Registry]]) -> None:
    url, handler = registry
    handler.refusals.append(400)
    variables = {
        "ACTIONS_ID_TOKEN_REQUEST_URL": f"{url}/token?v=1",
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "of-the-workflow",
    }
    said = script("publish_registry").publish(ROOT / "server.json", url, variables, pause=0.0)
    assert said.endswith(__version__)
    assert handler.published == [json.loads((ROOT / "server.json").read_text(encoding="utf-8"))]


def test_outside_of_a_workflow_nothing_is_published(registry: tuple[str, type[Registry]]) -> None:
    url, handler = registry
    with pytest.raises(SystemExit, match="id-token: write"):
        script("publish_registry").publish(ROOT / "server.json", url, {})
    handler.refusals.append(403)
    variables = {
        "ACTIONS_ID_TOKEN_REQUEST_URL": f"{url}/token?v=1",
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "of-the-workflow",
    }
    with pytest.raises(SystemExit, match="refused it with 403"):
        script("publish_registry").publish(ROOT / "server.json", url, variables, pause=0.0)
    assert handler.published == []
