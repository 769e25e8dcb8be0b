"""What of our environment a child process gets to see: what any process needs, and what its entry says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.upstream.transports.processes import child_environment

OURS = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/home/ada",
    "USER": "ada",
    "SHELL": "/bin/bash",
    "TERM": "xterm",
    "TZ": "UTC",
    "TMPDIR": "/tmp",
    "LANG": "pt_BR.UTF-8",
    "LC_ALL": "C.UTF-8",
    "LC_TIME": "pt_BR.UTF-8",
    "SystemRoot": "C:\\Windows",
}
SECRETS = {
    "GITHUB_TOKEN": "ghp_secret",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "OPENAI_API_KEY": "sk-secret",
    "MCP_OPTIMIZER_CONFIG": "/home/ada/mcp.json",
    "DATABASE_URL": "postgres://ada:secret@db",
    "PATH_TO_SECRET": "secret",
    "MY_HOME": "secret",
    "LCX": "secret",
}


NETWORK = {
    "HTTPS_PROXY": "http://ada:secret@proxy",
    "no_proxy": "localhost",
    "SSL_CERT_FILE": "/etc/ours.pem",
    "NODE_EXTRA_CA_CERTS": "/etc/ours.pem",
}


@pytest.mark.promise("child-environment")
def test_a_child_gets_what_any_process_needs_to_run_and_nothing_else_of_ours() -> None:
    assert child_environment({}, {**OURS, **SECRETS}) == OURS


def test_a_child_gets_what_its_entry_configures_also_over_ours() -> None:
    configured = {"GITHUB_TOKEN": "its own", "PATH": "/opt/bin", "EMPTY": ""}
    assert child_environment(configured, {**OURS, **SECRETS}) == {**OURS, **configured}


def test_a_child_reaches_the_network_as_a_shell_does_unless_that_is_turned_off() -> None:
    assert child_environment({}, {**OURS, **NETWORK, **SECRETS}) == {**OURS, **NETWORK}
    assert child_environment({}, {**OURS, **NETWORK}, network=False) == OURS
    assert child_environment({"HTTPS_PROXY": ""}, NETWORK)["HTTPS_PROXY"] == ""


def test_a_shell_function_dressed_as_a_variable_is_not_passed_on() -> None:
    assert child_environment({}, {"TERM": "() { :; }; echo hacked", "HOME": "/home/ada"}) == {"HOME": "/home/ada"}


@pytest.mark.slow
@given(
    ours=st.dictionaries(st.text().map(lambda name: f"OUR_{name}"), st.text()),
    configured=st.dictionaries(st.text(min_size=1), st.text()),
)
def test_whatever_else_we_have_stays_with_us(ours: dict[str, str], configured: dict[str, str]) -> None:
    assert child_environment(configured, ours) == configured
