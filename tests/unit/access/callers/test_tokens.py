"""Tokens signed by an issuer: what is accepted, and everything that is not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from mcp_optimizer.access.callers.keys import Rejected, ScopesMissing
from mcp_optimizer.access.callers.signed_tokens import unverified_issuer
from mcp_optimizer.domain.caller import Risk, Role
from tests.unit.access.callers.issuing import (
    ISSUER,
    OTHER_KEY,
    RESOURCE,
    RSA_KEY,
    IssuerWeb,
    claims,
    token,
    token_issuer,
)


async def test_a_good_token_is_its_holder() -> None:
    principal = await IssuerWeb().verifier().principal(token(), RESOURCE)
    assert (principal.id, principal.name) == (f"token:{ISSUER} ada", "corp:ada")
    assert (principal.risk, principal.role, principal.servers) == (Risk.DESTRUCTIVE, Role.NONE, None)
    assert principal.scopes == frozenset({"mcp:read"})


async def test_every_algorithm_of_the_settings_is_accepted() -> None:
    issuer = IssuerWeb()
    verifier = issuer.verifier(algorithms=["RS256", "PS256"])
    for algorithm in ("RS256", "PS256"):
        assert await verifier.principal(token(RSA_KEY, "rsa", algorithm), RESOURCE)
    with pytest.raises(Rejected, match="algorithm"):
        await verifier.principal(token(), RESOURCE)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"aud": "https://other.example/mcp"}, "audience"),
        ({"aud": [f"{RESOURCE}/", RESOURCE[:-1]]}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": {RESOURCE: True}}, "audience"),
        ({"iss": f"{ISSUER}/"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"exp": None}, "expires"),
        ({"exp": "tomorrow"}, "expires"),
        ({"exp": True}, "expires"),
        ({"exp": int(time.time()) - 60}, "expired"),
        ({"nbf": int(time.time()) + 9_000}, "not valid yet"),
        ({"nbf": "soon"}, "not valid yet"),
        ({"sub": None}, "'sub'"),
        ({"sub": "a\nb"}, "'sub'"),
        ({"sub": "a\u200bb"}, "'sub'"),
        ({"sub": "x" * 501}, "'sub'"),
        ({"sub": 7}, "'sub'"),
    ],
)
async def test_a_token_that_says_something_wrong_is_rejected(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(Rejected, match=reason):
        await IssuerWeb().verifier().principal(token(**changes), RESOURCE)


async def test_clocks_may_differ_a_little() -> None:
    now = int(time.time())
    assert await IssuerWeb().verifier().principal(token(exp=now - 10, nbf=now + 20), RESOURCE)


async def test_one_of_several_audiences_is_enough() -> None:
    assert await IssuerWeb().verifier().principal(token(aud=["https://a.example", RESOURCE]), RESOURCE)
    assert await IssuerWeb().verifier(audience="api://us").principal(token(aud="api://us"), RESOURCE)


def unsigned(header: Any, said: dict[str, Any], sign: Any = lambda _: b"") -> str:
    def encoded(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    signed = f"{encoded(head)}.{encoded(json.dumps(said).encode())}"
    return f"{signed}.{encoded(sign(signed.encode()))}"


async def test_a_forged_token_is_rejected() -> None:
    pem = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def with_public_key(signed: bytes) -> bytes:
        return hmac.new(pem, signed, hashlib.sha256).digest()

    body, _, signature = token().rpartition(".")
    forged = [
        unsigned({"alg": "none"}, claims()),
        unsigned({"alg": "None", "kid": "ec"}, claims()),
        unsigned({"alg": "HS256", "kid": "rsa"}, claims(), with_public_key),
        unsigned({"alg": ["ES256"], "kid": "ec"}, claims()),
        unsigned({"alg": "ES256", "kid": {"a": 1}}, claims()),
        unsigned({"alg": "ES256", "kid": "ec", "crit": ["x"], "x": 1}, claims()),
        unsigned({"alg": "RS256", "kid": "ec"}, claims()),
        unsigned(b"[" * 9_000, claims()),
        unsigned(b"[]", claims()),
        token(OTHER_KEY),
        f"{body}.{signature[:-8]}AAAAAAAA",
        f"{token(sub='eve').rpartition('.')[0]}.{signature}",
        f"{body}.",
        "a.b.c",
        "..",
        "\ud800.a.b",
    ]
    verifier = IssuerWeb().verifier()
    await verifier.principal(token(), RESOURCE)
    for made in forged:
        with pytest.raises(Rejected):
            await verifier.principal(made, RESOURCE)


async def test_a_key_with_a_secret_never_verifies_anything() -> None:
    issuer = IssuerWeb()
    secret = b"s" * 32
    issuer.keys = [{"kty": "oct", "kid": "s", "k": base64.urlsafe_b64encode(secret).decode()}, *issuer.keys]
    with pytest.raises(Rejected):
        await issuer.verifier().principal(jwt.encode(claims(), secret, "HS256", {"kid": "s"}), RESOURCE)


async def test_claims_say_what_the_settings_ask_them_for() -> None:
    said = {
        "name_claim": "email",
        "tenant_claim": "org",
        "servers_claim": "srv",
        "profile_claim": "prof",
        "role_claim": "groups",
    }
    verifier = IssuerWeb().verifier(**said)
    one = token(email="ada@example.com", org="acme", srv="a b", prof="minimal", groups=["see", "manage", "x"])
    principal = await verifier.principal(one, RESOURCE)
    assert (principal.id, principal.name) == (f"token:{ISSUER} ada acme", "corp:ada@example.com")
    assert (principal.tenant, principal.servers) == ("acme", frozenset("ab"))
    assert (principal.profile, principal.role) == ("minimal", Role.MANAGE)
    bare = await verifier.principal(token(email="e", org="o", srv={"a": 1}, prof="huge", groups=7), RESOURCE)
    assert (bare.servers, bare.profile, bare.role) == (frozenset(), None, Role.NONE)
    with pytest.raises(Rejected, match="'org'"):
        await verifier.principal(token(email="e"), RESOURCE)


@pytest.mark.parametrize(
    ("claim", "said", "groups"),
    [
        ("groups", {"groups": ["dev", "/ops/eu", "Domain Users", "*"]}, {"dev", "/ops/eu", "Domain Users", "*"}),
        ("groups", {"groups": "dev ops  dev"}, {"dev", "ops"}),
        ("groups", {"groups": []}, set()),
        ("groups", {"groups": ""}, set()),
        ("groups", {}, set()),
        ("realm_access.roles", {"realm_access": {"roles": ["admin"]}}, {"admin"}),
        ("realm_access.roles", {"realm_access": "admin"}, set()),
        ("realm_access.roles", {"realm_access": {"roles": ["a"]}, "realm_access.roles": ["b"]}, {"b"}),
        ("https://corp.example/roles", {"https://corp.example/roles": ["admin"]}, {"admin"}),
        ("groups", {"groups": ["key:ci", "local", "anyone"]}, {"key:ci", "local", "anyone"}),
    ],
)
async def test_groups_are_read_as_providers_write_them(claim: str, said: dict[str, Any], groups: set[str]) -> None:
    principal = await IssuerWeb().verifier(groups_claim=claim).principal(token(**said), RESOURCE)
    assert principal.groups == groups


async def test_without_a_claim_of_groups_in_the_settings_a_caller_is_in_none() -> None:
    assert (await IssuerWeb().verifier().principal(token(groups=["admin"]), RESOURCE)).groups == frozenset()


@pytest.mark.parametrize(
    "said",
    [
        {"groups": 7},
        {"groups": True},
        {"groups": {"admin": True}},
        {"groups": ["admin", 7]},
        {"groups": [["admin"]]},
        {"groups": ["a\nb"]},
        {"groups": ["admin\u202e"]},
        {"groups": ["a\u200bb"]},
        {"groups": ["\ud800"]},
        {"groups": [""]},
        {"groups": ["x" * 129]},
        {"groups": [str(number) for number in range(1_001)]},
        {"_claim_names": {"groups": "src1"}},
    ],
)
async def test_a_token_whose_groups_cannot_all_be_read_is_rejected(said: dict[str, Any]) -> None:
    with pytest.raises(Rejected, match="'groups'") as rejected:
        await IssuerWeb().verifier(groups_claim="groups").principal(token(**said), RESOURCE)
    assert len(str(rejected.value)) < 200


async def test_no_subject_can_be_spelled_as_another_with_its_tenant() -> None:
    verifier = IssuerWeb().verifier(tenant_claim="org")
    ids = {
        (await verifier.principal(token(sub=sub, org=org), RESOURCE)).id
        for sub, org in (("a b", "c"), ("a", "b c"), ("a%20b", "c"), ("a", "b%20c"))
    }
    assert len(ids) == 4


@pytest.mark.parametrize(
    ("changes", "scopes"),
    [
        ({"scope": "a b"}, {"a", "b"}),
        ({"scope": None, "scp": ["a", "b"]}, {"a", "b"}),
        ({"scope": ["a", 'quo"te', 7]}, {"a"}),
        ({"scope": None}, set()),
        ({"scope": 7}, set()),
    ],
)
async def test_scopes_are_read_as_issuers_write_them(changes: dict[str, Any], scopes: set[str]) -> None:
    assert (await IssuerWeb().verifier().principal(token(**changes), RESOURCE)).scopes == frozenset(scopes)


async def test_a_token_without_the_scopes_for_every_call_is_told_which() -> None:
    with pytest.raises(ScopesMissing) as missing:
        await IssuerWeb().verifier(required_scopes=["mcp:read", "mcp:use"]).principal(token(), RESOURCE)
    assert missing.value.scopes == ("mcp:read", "mcp:use")


def test_what_a_token_says_of_its_issuer_is_read_without_believing_it() -> None:
    assert unverified_issuer(token(iss="https://x")) == "https://x"
    for text in ("", "opaque", "a.b", "a.b.c", "..", unsigned({}, {"iss": 7}), "a." + "[" * 9_999 + ".b"):
        assert unverified_issuer(text) is None


@pytest.mark.parametrize(
    "said",
    [
        {"name": "key"},
        {"name": "Corp"},
        {"name": ""},
        {"issuer": "login.example"},
        {"issuer": "https://x?y"},
        {"algorithms": ["HS256"]},
        {"algorithms": ["none"]},
        {"algorithms": []},
        {"required_scopes": ['a"b']},
        {"risk_scopes": {"write": ["a b"]}},
        {"risk_scopes": {"all": ["a"]}},
        {"secret": "x"},
    ],
)
def test_settings_of_an_issuer_that_cannot_be_right_are_refused(said: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        token_issuer(**said)
