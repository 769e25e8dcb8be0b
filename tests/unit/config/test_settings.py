"""Options: which source takes precedence, and what a user reads when a value is wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.app.part_options import is_open, token_issuers
from mcp_optimizer.config.settings import Settings, load_settings
from mcp_optimizer.config.trusted_files import trust
from mcp_optimizer.domain.credentials import TokenIssuer
from mcp_optimizer.errors import ConfigurationError


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "options.toml"


def load(
    flags: dict[str, Any] | None = None, environment: dict[str, str] | None = None, toml: Path | None = None
) -> Settings:
    return load_settings(flags, environment or {}, toml)


def test_flags_beat_the_environment_which_beats_the_file(toml: Path) -> None:
    toml.write_text("find_limit = 1\nwait = 1\nlog_level = 'debug'\n")
    environment = {"MCP_OPTIMIZER_FIND_LIMIT": "2", "MCP_OPTIMIZER_WAIT": "2"}
    found = load({"find_limit": 3}, environment, toml)
    assert (found.find_limit, found.wait, found.log_level, found.encoding) == (3, 2.0, "debug", "cl100k_base")


def test_a_flag_that_was_not_given_decides_nothing(toml: Path) -> None:
    toml.write_text("find_limit = 7\n")
    assert load({"find_limit": None, "demo": False}, {}, toml).find_limit == 7


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load(environment={"MCP_OPTIMIZER_FIND_LIMIT": "", "MCP_OPTIMIZER_CONFIG": ""}) == Settings()


def test_variables_of_other_programs_are_left_alone() -> None:
    assert load(environment={"FIND_LIMIT": "x", "MCP_FIND_LIMIT": "x"}) == Settings()


@pytest.mark.parametrize("source", ["flag", "environment", "file"])
def test_an_unknown_option_is_refused_by_name_with_its_source_and_the_nearest_known_one(
    source: str, toml: Path
) -> None:
    where = {"flag": "on the command line", "environment": "in the environment", "file": f"in {toml}"}[source]
    toml.write_text("find_limt = 3\n" if source == "file" else "")
    flags = {"find_limt": 3} if source == "flag" else {}
    environment = {"MCP_OPTIMIZER_FIND_LIMT": "3"} if source == "environment" else {}
    with pytest.raises(ConfigurationError) as raised:
        load(flags, environment, toml)
    assert "'find_limt'" in str(raised.value)
    assert where in str(raised.value)
    assert "Did you mean 'find_limit'?" in str(raised.value)


def test_an_unknown_option_like_no_other_is_refused_with_all_that_are_known() -> None:
    with pytest.raises(ConfigurationError, match=r"'zzz'.*Known: config, demo, servers, database"):
        load({"zzz": 1})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("find_limit", 0),
        ("find_limit", "many"),
        ("find_limit", 101),
        ("start_timeout", 0),
        ("call_timeout", -1),
        ("restart_pause", "soon"),
        ("wait", -0.5),
        ("encoding", "p50k_base"),
        ("log_level", "loud"),
        ("demo", "perhaps"),
    ],
)
@pytest.mark.parametrize("source", ["flag", "environment", "file"])
def test_a_bad_value_is_refused_with_its_option_value_and_source(
    source: str, option: str, value: object, toml: Path
) -> None:
    where = {"flag": "on the command line", "environment": "in the environment", "file": f"in {toml}"}[source]
    toml.write_text(f"{option} = {value!r}\n" if source == "file" else "")
    flags = {option: value} if source == "flag" else {}
    environment = {f"MCP_OPTIMIZER_{option.upper()}": str(value)} if source == "environment" else {}
    shown = repr(str(value)) if source == "environment" else repr(value)
    with pytest.raises(ConfigurationError) as raised:
        load(flags, environment, toml)
    assert str(raised.value).startswith(f"Bad value {shown} for '{option}' {where}")


def test_all_bad_values_are_named_at_once() -> None:
    with pytest.raises(ConfigurationError, match=r"'find_limit'.*'wait'"):
        load({"find_limit": 0, "wait": -1})


@pytest.mark.promise("loopback-by-default")
@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("8765", ("127.0.0.1", 8765)),
        (":8765", ("127.0.0.1", 8765)),
        ("127.0.0.1:8765", ("127.0.0.1", 8765)),
        ("localhost:0", ("localhost", 0)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),  # noqa: S104
        ("[::1]:8765", ("::1", 8765)),
        ("gateway.internal:65535", ("gateway.internal", 65535)),
    ],
)
def test_an_http_address_is_a_host_and_a_port_or_a_port_on_loopback(text: str, address: tuple[str, int]) -> None:
    assert load({"http": text}).http_address == address


@pytest.mark.parametrize("text", ["", "localhost", "localhost:", "127.0.0.1:http", "host:65536", "host:-1", "host:8²"])
def test_what_is_no_http_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"not HOST:PORT, such as 127\.0\.0\.1:8765"):
        _ = Settings(http=text).http_address


@pytest.mark.parametrize("text", ["none", "None", "NONE"])
def test_database_none_means_no_file(text: str) -> None:
    assert load({"database": text}).database_place is None


def test_the_database_is_in_the_data_folder_unless_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load().database_place == tmp_path / "xdg_data_home" / "mcp-optimizer" / "catalog.db"
    assert load({"database": "~/kept.db"}).database_place == tmp_path / "kept.db"


@pytest.mark.parametrize(
    "text", ["postgresql://me:secret@host/name", "postgres://host", "postgresql:///name?host=/run/postgresql"]
)
def test_a_postgresql_url_is_a_database(text: str) -> None:
    settings = load({"database": text})
    assert settings.database_place == text
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("mysql://me:secret@host/name", "mysql:// is not supported.*postgresql://.*or none"),
        ("sqlite:///secret.db", "name of a file"),
        ("postgresql+asyncpg://me:secret@host/name", "is not supported"),
        ("postgresql://me:sec/secret@host/name", "%2F for /"),
        ("postgresql://me:sec#secret@host/name", "%XX"),
        ("postgresql://me:sec?secret@host/name", "%XX"),
        ("postgresql://me:sec@secret@host/name", "%40 for @"),
        ("postgresql://me:[secret@host/name", "%XX"),
        ("postgresql://me:secret\u2100@host/name", "%XX"),
    ],
)
def test_a_url_that_is_no_database_of_ours_is_refused_without_being_shown(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        load({"database": text})
    assert "'database' on the command line" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_config_and_demo_together_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="either config or demo, not both"):
        load({"demo": True}, {"MCP_OPTIMIZER_CONFIG": "mcp.json"})


def test_the_server_file_is_the_one_named_else_the_trusted_one_here_else_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    users = tmp_path / "xdg_config_home" / "mcp-optimizer" / "mcp.json"
    assert load().server_file == users
    Path("mcp.json").write_text("{}")
    assert load().server_file == users
    trust({Path("mcp.json"): b"{}"})
    assert load().server_file == tmp_path / "here" / "mcp.json"
    assert load({"config": "~/named.json"}).server_file == tmp_path / "named.json"


def test_the_settings_file_is_the_one_named_else_the_trusted_one_here_else_the_users(tmp_path: Path) -> None:
    users = tmp_path / "xdg_config_home" / "mcp-optimizer" / "settings.toml"
    users.parent.mkdir(parents=True)
    users.write_text("find_limit = 1\n")
    assert load().find_limit == 1
    Path("mcp-optimizer.toml").write_text("find_limit = 2\n")
    assert load().find_limit == 1
    trust({Path("mcp-optimizer.toml"): b"find_limit = 2\n"})
    assert load().find_limit == 2
    Path("mcp-optimizer.toml").write_text("find_limit = 4\n")
    assert load().find_limit == 1
    named = tmp_path / "named.toml"
    named.write_text("find_limit = 3\n")
    assert load(environment={"MCP_OPTIMIZER_SETTINGS": str(named)}).find_limit == 3


def test_a_settings_file_that_is_not_there_or_not_toml_is_refused_by_name(toml: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"No settings file at {toml}"):
        load(environment={"MCP_OPTIMIZER_SETTINGS": str(toml)})
    toml.write_text("find_limit: 3\n")
    with pytest.raises(ConfigurationError, match=rf"Cannot read the settings file {toml}.*line 1"):
        load(toml=toml)


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().find_limit = 3


@pytest.mark.parametrize("value", [-1, 1, 199])
def test_a_token_limit_leaves_room_for_something(value: int) -> None:
    with pytest.raises(ConfigurationError, match=r"'max_tokens' .*at least 200"):
        load_settings({"max_tokens": value}, {})
    assert load_settings({"max_tokens": 0}, {}).max_tokens == 0


def test_results_of_one_server_or_tool_are_set_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("[server_results.github]\nmax_tokens = 5000\n[tool_results.git_log]\nencoding = 'csv'\n")
    settings = load_settings({}, {}, path)
    assert settings.server_results["github"].max_tokens == 5_000
    assert settings.tool_results["git_log"].encoding == "csv"
    path.write_text("[tool_results.git_log]\nmax_tokens = 7\n")
    with pytest.raises(ConfigurationError, match="tool_results"):
        load_settings({}, {}, path)


def test_a_wrong_token_issuer_is_named_and_its_secret_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    issuer = 'name = "corp"\nissuer = "https://login.example"\nclient_secret = "planted"\n'
    path.write_text(f'[[token_issuers]]\n{issuer}algorithms = ["HS256"]\n')
    with pytest.raises(ConfigurationError, match=r"'token_issuers\.0\.algorithms\.0' in ") as error:
        load_settings(settings_file=path, environment={})
    assert "planted" not in str(error.value)
    path.write_text(f"[[token_issuers]]\n{issuer}[[token_issuers]]\n{issuer}")
    with pytest.raises(ConfigurationError, match="two issuers have the name 'corp'") as error:
        load_settings(settings_file=path, environment={})
    path.write_text(f"[[token_issuers]]\n{issuer}")
    loaded = load_settings(settings_file=path, environment={})
    assert "planted" not in f"{error.value} {loaded!r} {loaded.token_issuers!r}"


def test_secrets_of_token_issuers_come_from_the_environment() -> None:
    corp = TokenIssuer(name="corp", issuer="https://login.example", client_secret="${CORP_SECRET}")
    settings = Settings(token_issuers=[corp])
    assert token_issuers(settings, {"CORP_SECRET": "planted"})[0].client_secret == "planted"
    with pytest.raises(ConfigurationError, match="CORP_SECRET is not set"):
        token_issuers(settings, {})


@pytest.mark.parametrize(
    ("said", "is_loopback", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"require_auth": True}, True, False),
        ({"require_auth": False}, True, True),
        ({"open_to_anyone": True}, False, True),
    ],
)
def test_beyond_loopback_callers_need_a_key_or_token_unless_told_in_so_many_words(
    said: dict[str, Any], is_loopback: bool, expected: bool
) -> None:
    assert is_open(Settings(**said), is_loopback=is_loopback) is expected


def test_contradictions_about_who_may_call_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="--open-to-anyone"):
        is_open(Settings(require_auth=False), is_loopback=False)
    with pytest.raises(ConfigurationError, match="not both"):
        load_settings({"require_auth": True, "open_to_anyone": True}, environment={})


def test_the_settings_of_the_folder_count_only_with_a_server_file_there(tmp_path: Path) -> None:
    (tmp_path / "here" / "mcp-optimizer.toml").write_text("find_limit = 1\n")
    trust({tmp_path / "here" / "mcp-optimizer.toml": b"find_limit = 1\n"})
    for config in (None, "mcp.json", "./below/mcp.json", tmp_path / "here" / "mcp.json"):
        assert load({"config": config}).find_limit == 1
    for config in (tmp_path / "mcp.json", "../mcp.json", "../here-too/mcp.json"):
        assert load({"config": config}).find_limit != 1
        assert load(environment={"MCP_OPTIMIZER_CONFIG": str(config)}).find_limit != 1


@pytest.mark.parametrize("made", ["pipe", "device", "folder"])
def test_what_is_not_a_file_is_never_found_in_the_folder(made: str, tmp_path: Path) -> None:
    for name in ("mcp.json", "mcp-optimizer.toml"):
        path = tmp_path / "here" / name
        if made == "pipe":
            os.mkfifo(path)
        elif made == "device":
            path.symlink_to("/dev/zero")
        else:
            path.mkdir()
    assert load().server_file == tmp_path / "xdg_config_home" / "mcp-optimizer" / "mcp.json"
    assert load() == Settings()


def test_trusted_settings_cannot_name_a_server_file_that_nobody_trusted(tmp_path: Path) -> None:
    content = b"config = 'other.json'\n"
    Path("mcp-optimizer.toml").write_bytes(content)
    trust({Path("mcp-optimizer.toml"): content})
    with pytest.raises(ConfigurationError, match=r"names a server file.*--settings"):
        load()
    assert load(toml=tmp_path / "here" / "mcp-optimizer.toml").server_file == Path("other.json")


@pytest.mark.parametrize("token", ["x", "fifteen-letters", " " * 40, "  short  " + " " * 20])
def test_a_token_of_the_dashboard_that_can_be_guessed_is_refused_unseen_with_a_way_to_make_one(token: str) -> None:
    with pytest.raises(ConfigurationError, match=r"at least 16 characters.*token_urlsafe\(24\)") as caught:
        load(environment={"MCP_OPTIMIZER_DASHBOARD_TOKEN": token})
    assert "'dashboard_token' in the environment" in str(caught.value)
    assert repr(token) not in str(caught.value)
    assert load({"dashboard_token": "sixteen-letters!"}).dashboard_token == "sixteen-letters!"
    assert load({"dashboard_token": ""}).dashboard_token == ""
