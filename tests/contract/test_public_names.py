"""The public interface of the package is these names, and importing it is quick."""

from __future__ import annotations

import subprocess
import sys

import mcp_optimizer


def test_the_public_names_are_these() -> None:
    assert mcp_optimizer.__all__ == [
        "AnthropicTools",
        "FindToolResponse",
        "McpTool",
        "OpenAITools",
        "Optimizer",
        "OptimizerError",
        "Settings",
        "TokenCounter",
        "TokenMetrics",
        "__version__",
        "load_settings",
    ]


def test_each_public_name_is_there_and_an_unknown_one_is_not() -> None:
    for name in mcp_optimizer.__all__:
        assert getattr(mcp_optimizer, name) is not None
    assert not hasattr(mcp_optimizer, "Manager")


def test_asking_for_help_loads_none_of_the_heavy_parts() -> None:
    script = (
        "import sys; from mcp_optimizer import cli; "
        "print(sorted({'mcp', 'sqlalchemy', 'numpy', 'tiktoken', 'uvicorn', 'alembic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_answers_a_client_first_loads_nothing_about_the_files_of_clients() -> None:
    script = (
        "import sys; from mcp_optimizer.cli import first_answers; "
        "print(sorted(name for name in sys.modules if '.known_clients.' in name))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['mcp_optimizer.config.known_clients.habits']"
