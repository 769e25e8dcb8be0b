"""Reads from a server's entry how to log in and which headers to send: `auth`, and the keys of other programs.

`auth` is ours (Cursor's is read too) and is checked strictly. `oauth` belongs to Claude Code, VS Code, Gemini CLI,
opencode and Codex, whose other keys are ignored. Called by `parser`. Pure, except that it reads files named for a
secret or a key. No message quotes a value.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mcp_optimizer.config.serverfile.spec import AuthKind, AuthSpec, ExchangeKind, ExchangeSpec, SubjectKind
from mcp_optimizer.config.serverfile.variables import from_environment, located, meant, text_at
from mcp_optimizer.config.textfiles.checked_values import UnusableEntry, mapping, text_of
from mcp_optimizer.runtime.patterns import regex

_LARGEST_FILE = 64 * 1024
_HIGHEST_PORT = 65_535
_SCOPE = regex(r"[!#-\[\]-~]+")
"""Characters that RFC 6749 allows: printable ASCII without quotes and backslashes."""
_PRIVATE_KEY = regex(r"-----BEGIN (?:EC |RSA )?PRIVATE KEY-----(?!\s+Proc-Type: 4,ENCRYPTED)")


class LoginValues:
    """The login values of an entry. Later values replace earlier ones."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._values: dict[str, tuple[str, Any]] = {}
        """By our spelling of the key: the key as written, for messages, and the value."""

    def add(
        self,
        section: str,
        values: Mapping[str, Any],
        keys: Collection[str],
        *,
        is_ours: bool = False,
        written: Mapping[str, str] | None = None,
    ) -> None:
        """Add the values of known keys. In our own sections, a mistyped key is refused; in those of other programs, an
        empty value is ignored.
        """
        known = {_folded(key): key for key in keys}
        added: set[str] = set()
        for spelled, value in values.items():
            name = f"{section}.{spelled}" if section else (written or {}).get(spelled, spelled)
            key = known.get(_folded(spelled))
            if key is None:
                if is_ours and (ours := meant(spelled, keys)):
                    raise UnusableEntry(f'"{name}" is not known; did you mean "{ours}"?')
                continue
            if value is None or (not is_ours and value in ("", [])):
                continue
            if key in added:
                raise UnusableEntry(f'"{name}" is there in two spellings; keep one')
            added.add(key)
            self._values[key] = (name, value)

    def has(self, key: str) -> bool:
        """Whether the key has a value."""
        return key in self._values

    def name(self, key: str) -> str:
        """A key as written in the entry."""
        return self._values[key][0]

    def text(self, key: str) -> str:
        """A text that is not blank; empty if the key is missing."""
        if key not in self._values:
            return ""
        name, value = self._values[key]
        if not (found := text_of(value, name).strip()):
            raise UnusableEntry(f'"{name}" is empty; fill it in or remove it')
        return found

    def choice(self, key: str, choices: Collection[str]) -> str:
        """One of the given words; empty if the key is missing."""
        found = self.text(key)
        if found and found not in choices:
            raise UnusableEntry(f'"{self.name(key)}" must be one of {", ".join(sorted(choices))}')
        return found

    def url(self, key: str) -> str:
        """A web address; empty if the key is missing."""
        found = self.text(key)
        if found and not _is_web_address(found):
            raise UnusableEntry(
                f'"{self.name(key)}" must be a URL that starts with https:// or http://, without password and fragment'
            )
        return found

    def section(self, key: str, keys: Collection[str]) -> LoginValues | None:
        """The values of an object inside; None if the key is missing."""
        if key not in self._values:
            return None
        name, value = self._values[key]
        if not isinstance(value, dict):
            raise UnusableEntry(f'"{name}" must be an object')
        found = LoginValues(self._folder, self._environment)
        found.add(name, value, keys, is_ours=True)
        return found

    def port(self, key: str) -> int | None:
        """A port; text counts too, because a variable gives text."""
        if key not in self._values:
            return None
        name, value = self._values[key]
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 6:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _HIGHEST_PORT:
            raise UnusableEntry(f'"{name}" must be a port, a number from 1 to {_HIGHEST_PORT}')
        return value

    def scopes(self) -> tuple[str, ...]:
        """`scopes` or `scope`: a list, or a text separated by spaces."""
        if not self.has("scopes") and not self.has("scope"):
            return ()
        name, value = self._values["scopes" if self.has("scopes") else "scope"]
        found = value.split() if isinstance(value, str) else value
        if not isinstance(found, list) or not all(isinstance(item, str) and _SCOPE.fullmatch(item) for item in found):
            raise UnusableEntry(f'"{name}" must be a list of scopes, or a text with blanks between them')
        if not found:
            raise UnusableEntry(f'"{name}" is empty; name a scope or remove it')
        return tuple(dict.fromkeys(found))

    def secret(self, key: str) -> str:
        """A secret: its value, or the environment variable (`..._env`) or the file (`..._file`) that holds it."""
        sources = [source for source in (key, f"{key}_env", f"{key}_file") if self.has(source)]
        if len(sources) > 1:
            raise UnusableEntry(f"{' and '.join(self.name(source) for source in sources)} say the same; keep one")
        if self.has(f"{key}_env"):
            return from_environment(self.text(f"{key}_env"), self.name(f"{key}_env"), self._environment)
        return self._file(f"{key}_file") or self.text(key)

    def private_key(self, key: str) -> str:
        """A private key in PEM from a file; empty if the key is missing."""
        found = self._file(key)
        if found and not _PRIVATE_KEY.search(found):
            raise UnusableEntry(f'the file of "{self.name(key)}" is not a private key in PEM without a passphrase')
        return found

    def _file(self, key: str) -> str:
        if not (named := self.text(key)):
            return ""
        file = f'the file of "{self.name(key)}"'
        path = located(named, self.name(key), self._folder)
        if not path.is_file():
            raise UnusableEntry(f"{file} does not exist; its path is relative to the folder of the server file")
        try:
            with path.open("rb") as opened:
                content = opened.read(_LARGEST_FILE + 1)
            found = content.decode("utf-8-sig").strip()
        except OSError as error:
            raise UnusableEntry(f"{file} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UnusableEntry(f"{file} is not text") from None
        if len(content) > _LARGEST_FILE:
            raise UnusableEntry(f"{file} is larger than {_LARGEST_FILE // 1024} KB")
        if not found:
            raise UnusableEntry(f"{file} is empty")
        return found


def _folded(key: str) -> str:
    """One spelling for `clientId`, `client_id` and `CLIENT_ID`."""
    return key.replace("_", "").lower()


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    is_plain = "@" not in parts.netloc and "#" not in url and url.isprintable() and " " not in url
    return parts.scheme in ("http", "https") and has_host and is_plain


KEYS_OF_AUTH = frozenset(
    "auth oauth headersHelper scopes oauth_resource bearer_token_env_var http_headers env_http_headers".split()
)
"""The keys of an entry that this module reads."""

_KINDS = {"none": AuthKind.NONE, "oauth": AuthKind.OAUTH, "client_credentials": AuthKind.CLIENT_CREDENTIALS}
_WRITE_A_KIND = 'write "none", "oauth" or "client_credentials"'
_PKCE = {"strict": False, "assume": True}
_PRINCIPALS = {"shared": False, "caller": True}
_BEFORE_LOGIN = {"hide": False, "list": True}
_ALGORITHMS = frozenset("ES256 ES384 ES512 RS256 RS384 RS512 PS256 PS384 PS512 EdDSA".split())
_OF_AUTH = frozenset(
    "type client_id client_secret client_secret_env client_secret_file private_key_file algorithm scopes scope issuer "
    "resource client_metadata_url callback_port pkce principal before_login exchange".split()
)
_WITH_EXCHANGE = frozenset("principal before_login exchange".split())
_WITH_ID_JAG = _WITH_EXCHANGE.union(
    "issuer client_id client_secret client_secret_env client_secret_file private_key_file algorithm scopes scope "
    "resource".split()
)
_OF_EXCHANGE = frozenset(
    "type subject_token_type issuer token_url client_id client_secret client_secret_env client_secret_file "
    "private_key_file algorithm scopes scope audience resource".split()
)
_OF_OAUTH = frozenset(
    "enabled client_id client_secret scopes scope issuer resource client_metadata_url callback_port".split()
)
_LONGEST_COMMAND = 10_000


def refuse_login_of_a_child(entry: Mapping[str, Any]) -> None:
    """A server that we start gets its credentials in its environment, not by a login."""
    if entry.get("auth") not in (None, "none"):
        raise UnusableEntry('"auth" is for servers with a "url"; give a server with a "command" its secrets in "env"')


def login(entry: Mapping[str, Any], folder: Path, environment: Mapping[str, str]) -> AuthSpec:
    """How to log in to a server over HTTP. `folder` is that of the server file; other files are relative to it."""
    given = LoginValues(folder, environment)
    kind = _kind_of_others(entry, given)
    kind = _kind(entry, given) or kind
    if (values := given.section("exchange", _OF_EXCHANGE)) is not None:
        exchange = _exchange(values)
        _refuse_beside_exchange(entry, given, exchange.kind)
        kind = AuthKind.EXCHANGE
    else:
        exchange = None
    spec = AuthSpec(
        kind=kind or AuthKind.AUTO,
        client_id=given.text("client_id"),
        client_secret=given.secret("client_secret"),
        private_key=given.private_key("private_key_file"),
        algorithm=given.choice("algorithm", _ALGORITHMS) or AuthSpec.algorithm,
        scopes=given.scopes(),
        issuer=given.url("issuer"),
        resource=given.url("resource"),
        client_metadata_url=given.url("client_metadata_url"),
        callback_port=given.port("callback_port"),
        assumes_pkce=_PKCE.get(given.choice("pkce", _PKCE), False),
        per_caller=exchange is not None or _PRINCIPALS.get(given.choice("principal", _PRINCIPALS), False),
        lists_before_login=_BEFORE_LOGIN.get(given.choice("before_login", _BEFORE_LOGIN), False),
        headers_command=_headers_command(entry),
        exchange=exchange,
    )
    _refuse_unusable(spec, is_ours=entry.get("auth") is not None)
    return spec


def _exchange(given: LoginValues) -> ExchangeSpec:
    """How callers' tokens are exchanged."""
    found = ExchangeSpec(
        kind=ExchangeKind(given.choice("type", tuple(ExchangeKind)) or ExchangeKind.STANDARD),
        subject=SubjectKind(given.choice("subject_token_type", tuple(SubjectKind)) or SubjectKind.ACCESS),
        issuer=given.url("issuer"),
        token_url=given.url("token_url"),
        client_id=given.text("client_id"),
        client_secret=given.secret("client_secret"),
        private_key=given.private_key("private_key_file"),
        algorithm=given.choice("algorithm", _ALGORITHMS) or ExchangeSpec.algorithm,
        scopes=given.scopes(),
        audience=given.text("audience"),
        resource=given.url("resource"),
    )
    if not (found.issuer or found.token_url):
        raise UnusableEntry('"auth.exchange" needs "issuer" or "token_url": who exchanges the tokens of callers')
    # A company's provider may know the gateway as a public client, because the grant that it gives serves one client.
    has_credential = bool(found.client_secret or found.private_key) or found.kind is ExchangeKind.ID_JAG
    if not has_credential or (found.client_secret and found.private_key) or not found.client_id:
        raise UnusableEntry(
            '"auth.exchange" needs the gateway\'s own client there: "client_id", and either "client_secret" (or '
            '"client_secret_env", "client_secret_file") or "private_key_file"'
        )
    if found.kind is ExchangeKind.ON_BEHALF_OF and (found.audience or found.resource or not found.scopes):
        raise UnusableEntry(
            '"auth.exchange" of type "on-behalf-of" names the server by "scopes", such as "api://crm/.default", and '
            'takes no "audience" or "resource"'
        )
    return found


def _refuse_beside_exchange(entry: Mapping[str, Any], given: LoginValues, kind: ExchangeKind) -> None:
    """An exchange takes the place of a login, so nothing else can say how to log in. With enterprise-managed
    authorization, the rest of `auth` is about the server's own authorization server.
    """
    beside_it = _WITH_ID_JAG if kind is ExchangeKind.ID_JAG else _WITH_EXCHANGE
    if beside := next((key for key in sorted(_OF_AUTH - beside_it) if given.has(key)), ""):
        raise UnusableEntry(f'"{given.name(beside)}" and "auth.exchange" both say how to log in; keep one')
    if given.choice("principal", _PRINCIPALS) == "shared":
        raise UnusableEntry('"auth.exchange" exchanges the token of each caller: write "principal": "caller"')
    if entry.get("headersHelper") is not None:
        raise UnusableEntry('"auth.exchange" and "headersHelper" both say who calls; keep one')
    if kind is not ExchangeKind.ID_JAG:
        return
    credentials = ("client_secret", "client_secret_env", "client_secret_file", "private_key_file")
    if not (given.has("issuer") and given.has("client_id") and any(map(given.has, credentials))):
        raise UnusableEntry(
            '"auth.exchange" of type "id-jag" needs the server\'s authorization server beside it, in "auth": "issuer", '
            'and the gateway\'s client there: "client_id" with "client_secret" (or "client_secret_env", '
            '"client_secret_file") or "private_key_file"'
        )


def _kind(entry: Mapping[str, Any], given: LoginValues) -> AuthKind | None:
    """The kind in `auth`, whose values are added to `given`."""
    value = entry.get("auth")
    if value is None:
        return None
    if isinstance(value, str):
        return _kind_named(value, "auth")
    if not isinstance(value, dict):
        raise UnusableEntry(f'"auth" must be a string or an object; {_WRITE_A_KIND}')
    given.add("auth", value, _OF_AUTH, is_ours=True)
    return _kind_named(given.text("type"), given.name("type")) if given.has("type") else AuthKind.OAUTH


def _kind_named(value: str, where: str) -> AuthKind:
    if value not in _KINDS:
        # Other programs put a token here.
        raise UnusableEntry(
            f'"{where}" says nothing that is known; {_WRITE_A_KIND}. '
            'A token belongs in "headers": {"Authorization": "Bearer ${TOKEN}"}'
        )
    return _KINDS[value]


def _kind_of_others(entry: Mapping[str, Any], given: LoginValues) -> AuthKind | None:
    """The kind in other programs' keys: `oauth`, and Codex's keys beside it."""
    codex = {"resource": entry.get("oauth_resource"), "scopes": entry.get("scopes")}
    given.add("", codex, _OF_OAUTH, written={"resource": "oauth_resource"})
    value = entry.get("oauth")
    if value is None:
        return None
    if isinstance(value, bool):
        return AuthKind.OAUTH if value else AuthKind.NONE
    if not isinstance(value, dict):
        raise UnusableEntry('"oauth" must be an object, or false if this server needs no login')
    given.add("oauth", value, _OF_OAUTH)
    return AuthKind.NONE if value.get("enabled") is False else AuthKind.OAUTH


def _headers_command(entry: Mapping[str, Any]) -> str:
    """Claude Code's `headersHelper`."""
    if entry.get("headersHelper") is None:
        return ""
    command = text_at(entry, "headersHelper")
    if not command.strip():
        raise UnusableEntry('"headersHelper" is empty; write a command that prints a JSON object of headers')
    if len(command) > _LONGEST_COMMAND or "\0" in command:
        raise UnusableEntry('"headersHelper" is not a usable command')
    return command


def _refuse_unusable(spec: AuthSpec, *, is_ours: bool) -> None:
    """Refuses values that contradict each other, or are incomplete."""
    if spec.client_secret and spec.private_key:
        raise UnusableEntry('"auth" has a client secret and a private key; keep one')
    if (spec.client_secret or spec.private_key) and not spec.client_id:
        raise UnusableEntry('a client secret or private key is of no use without its client; add "client_id"')
    if spec.kind is AuthKind.CLIENT_CREDENTIALS:
        if spec.client_secret and not spec.issuer:
            raise UnusableEntry(
                '"auth" sends its client secret to the authorization server without asking, so name that server: '
                'add "issuer", such as "https://login.example.com"'
            )
        if not spec.client_id:
            raise UnusableEntry('"auth" of type "client_credentials" needs "client_id"')
        if not (spec.client_secret or spec.private_key):
            raise UnusableEntry(
                '"auth" of type "client_credentials" needs "client_secret" (or "client_secret_env", '
                '"client_secret_file") or "private_key_file"'
            )
    if is_ours and spec.headers_command and spec.kind is not AuthKind.NONE:
        raise UnusableEntry('"auth" and "headersHelper" both say who calls; keep one')


def configured_headers(entry: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    """The headers of an entry: `headers`, and Codex's keys for the same."""
    headers = mapping(entry.get("headers", {}), "headers") | mapping(entry.get("http_headers") or {}, "http_headers")
    for header, variable in mapping(entry.get("env_http_headers") or {}, "env_http_headers").items():
        headers[header] = from_environment(variable, f"env_http_headers.{header}", environment)
    if entry.get("bearer_token_env_var"):
        where = "bearer_token_env_var"
        token = from_environment(text_of(entry[where], where), where, environment)
        headers = {name: value for name, value in headers.items() if name.lower() != "authorization"}
        headers["Authorization"] = f"Bearer {token}"
    return headers
