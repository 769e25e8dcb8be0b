"""The values of `auth`, one by one: where secrets come from, and what is wrong with each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcp_optimizer.config.serverfile.spec import AuthKind, AuthSpec
from tests.unit.upstream.login_entries import ACCOUNT, KEY, SECRET, auth, problem


@pytest.mark.parametrize("source", ["client_secret", "client_secret_env", "client_secret_file"])
def test_a_secret_is_in_the_entry_in_the_environment_or_in_a_file(source: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    value = {"client_secret": "${SECRET}", "client_secret_env": "SECRET", "client_secret_file": "secret"}[source]
    found = auth({"auth": {**ACCOUNT, source: value}}, tmp_path, SECRET=SECRET)
    assert found == AuthSpec(
        AuthKind.CLIENT_CREDENTIALS, client_id="gateway", client_secret=SECRET, issuer=ACCOUNT["issuer"]
    )


def test_a_private_key_is_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text(KEY)
    found = auth({"auth": {**ACCOUNT, "private_key_file": str(tmp_path / "key.pem")}})
    assert found == AuthSpec(
        AuthKind.CLIENT_CREDENTIALS, client_id="gateway", private_key=KEY, issuer=ACCOUNT["issuer"]
    )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (SECRET, '"auth" says nothing that is known; write "none", "oauth" or "client_credentials"'),
        (7, '"auth" must be a string or an object'),
        ([], '"auth" must be a string or an object'),
        ({"type": SECRET}, '"auth.type" says nothing that is known'),
        ({"type": 7}, '"auth.type" must be a string, not int'),
        ({"clientt_id": "c"}, '"auth.clientt_id" is not known; did you mean "client_id"?'),
        ({"Scpoes": ["a"]}, 'did you mean "scopes"?'),
        ({"client_id": "c", "clientId": "d"}, '"auth.clientId" is there in two spellings'),
        ({"client_id": ["c"]}, '"auth.client_id" must be a string, not list'),
        ({"client_id": " "}, '"auth.client_id" is empty'),
        ({"client_id": "c", "client_secret": ""}, '"auth.client_secret" is empty'),
        ({"client_secret": SECRET}, 'add "client_id"'),
        ({"client_secret": SECRET, "clientSecretFile": "x"}, "auth.clientSecretFile say the same; keep one"),
        ({"client_secret": [SECRET]}, '"auth.client_secret" must be a string'),
        ({"client_secret_file": SECRET}, 'the file of "auth.client_secret_file" does not exist'),
        ({"client_secret_file": "~nobody-here/x"}, '"auth.client_secret_file" is not a usable path'),
        ({"client_secret_file": "\0"}, "auth.client_secret_file"),
        ({"private_key_file": KEY}, 'the file of "auth.private_key_file" does not exist'),
        ({"callback_port": 0}, '"auth.callback_port" must be a port, a number from 1 to 65535'),
        ({"callbackPort": 65_536}, '"auth.callbackPort" must be a port'),
        ({"callback_port": True}, "must be a port"),
        ({"callback_port": "x"}, "must be a port"),
        ({"issuer": f"ftp://{SECRET}"}, '"auth.issuer" must be a URL'),
        ({"issuer": f"https://ada:{SECRET}@example.com"}, '"auth.issuer" must be a URL'),
        ({"resource": "https://"}, '"auth.resource" must be a URL'),
        ({"resource": "https://[::1"}, '"auth.resource" must be a URL'),
        ({"client_metadata_url": "x"}, '"auth.client_metadata_url" must be a URL'),
        ({"scopes": []}, '"auth.scopes" is empty'),
        ({"scope": " "}, '"auth.scope" is empty'),
        ({"scopes": ["a b"]}, '"auth.scopes" must be a list of scopes'),
        ({"scopes": {"a": 1}}, '"auth.scopes" must be a list of scopes'),
        ({"pkce": "maybe"}, '"auth.pkce" must be one of assume, strict'),
        ({"algorithm": "none"}, '"auth.algorithm" must be one of ES256'),
        ({"principal": "all"}, '"auth.principal" must be one of caller, shared'),
        ("client_credentials", 'needs "client_id"'),
        ({"type": "client_credentials", "client_id": "c", "client_secret": "s3cret"}, 'name that server: add "issuer"'),
        (ACCOUNT, 'needs "client_secret"'),
    ],
)
def test_what_is_wrong_names_the_key_and_what_to_write(given: Any, reason: str) -> None:
    assert reason in problem({"auth": given})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"x" * (64 * 1024 + 1), "is larger than 64 KB"),
        (b" \n", "is empty"),
        (b"\xff\xfe" + SECRET.encode(), "is not text"),
    ],
)
def test_a_file_that_is_no_secret_is_a_problem(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(content)
    assert reason in problem({"auth": {**ACCOUNT, "client_secret_file": "secret"}}, tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        SECRET,
        KEY.replace("PRIVATE", "ENCRYPTED PRIVATE"),
        KEY.replace("PRIVATE", "PUBLIC"),
        KEY.replace("PRIVATE KEY-----\n", "EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n", 1),
    ],
    ids=["no key", "encrypted", "public", "encrypted in the old way"],
)
def test_a_file_that_is_no_private_key_is_a_problem(content: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(content)
    reason = 'the file of "auth.private_key_file" is not a private key in PEM without a passphrase'
    assert reason in problem({"auth": {**ACCOUNT, "private_key_file": "key"}}, tmp_path)


def test_one_client_has_a_secret_or_a_key(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    given = {**ACCOUNT, "private_key_file": "key", "client_secret": SECRET}
    assert "keep one" in problem({"auth": given}, tmp_path)
