"""An authorization server, as it was found. A frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Provider:
    """An authorization server, and what it was found to be asked for."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    resource: str
    scopes: tuple[str, ...] = ()
    registration_endpoint: str = ""
    revocation_endpoint: str = ""
    auth_methods: tuple[str, ...] = ()
    """How clients may authenticate at the token endpoint; empty if it does not say."""
    takes_metadata_urls: bool = False
    has_pkce: bool = False
    says_issuer: bool = False
    """It promises to name itself when it redirects back."""

    @property
    def other_host(self) -> str | None:
        """Where people log in, if that is not where the authorization server says it is."""
        host = urlsplit(self.authorization_endpoint).hostname
        return host if host != urlsplit(self.issuer).hostname else None
