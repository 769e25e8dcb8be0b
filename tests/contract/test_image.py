"""The container image: what its definition promises, read by the script that carries out its steps."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "dockerfile.py"), run_name="dockerfile")
STEPS: list[Any] = SCRIPT["steps_of"](ROOT / "Dockerfile")


def texts(word: str) -> list[str]:
    return [step.text for step in STEPS if step.word == word]


def test_it_runs_as_a_user_with_a_number_that_is_not_root() -> None:
    user, group = texts("USER")[-1].split(":")
    assert int(user) > 0
    assert int(group) > 0
    after = STEPS[[step.word for step in STEPS].index("USER") :]
    assert "RUN" not in [step.word for step in after]


def test_the_last_stage_gets_only_what_was_installed() -> None:
    last = [step.word for step in STEPS][::-1].index("FROM")
    copied = [step.text for step in STEPS[-last:] if step.word == "COPY"]
    assert copied == ["--from=build /app /app"]
    assert not any("pip" in step.text for step in STEPS[-last:])


def test_base_images_have_a_version_and_no_host() -> None:
    for text in texts("FROM"):
        name, _, tag = text.split()[0].partition(":")
        assert "/" not in name
        assert tag
        assert tag != "latest"


def test_its_health_check_is_our_command() -> None:
    assert SCRIPT["health_command"](STEPS) == ["mcp-optimizer", "health"]


def test_everything_that_is_copied_exists_and_is_sent_to_the_builder() -> None:
    sent = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [name for text in texts("COPY") if "--from" not in text for name in text.split()[:-1]]
    assert sorted(copied) == sorted(sent)
    assert all((ROOT / name).exists() for name in copied)


def test_an_instruction_that_the_steps_do_not_know_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text("FROM x:1\nADD https://example.com/x /\n")
    with pytest.raises(ValueError, match="line 2: ADD is not understood"):
        SCRIPT["steps_of"](file)


def test_compose_publishes_on_loopback_and_takes_no_rights() -> None:
    text = (ROOT / "compose.yaml").read_text()
    assert '- "127.0.0.1:8080:8080"' in text
    for line in ("read_only: true", "no-new-privileges:true", "- ALL"):
        assert line in text
    assert "privileged: true" not in text
