"""The variables of our environment that a child process gets without its entry naming them."""

from __future__ import annotations

DEPTH_VARIABLE = "MCP_OPTIMIZER_DEPTH"
"""How many gateways are above a process. Set for every child; no option."""

NEEDED_TO_RUN = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "TMPDIR", "LANG", "LANGUAGE"}
    | {"APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE"}
    | {"PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR"}
)

NETWORK = frozenset(
    {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "NODE_USE_ENV_PROXY", "NPM_CONFIG_PROXY"}
    | {"NPM_CONFIG_HTTPS_PROXY", "NPM_CONFIG_NOPROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"}
    | {"CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "NODE_USE_SYSTEM_CA", "NPM_CONFIG_CAFILE", "PIP_CERT"}
    | {"UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE", "DENO_CERT", "DENO_TLS_CA_STORE"}
)
"""Variables that a process needs to reach the network behind a proxy, or with an organisation's own certificate
authority. In upper case; compared without case, because proxies are often set in lower case.
"""


def is_passed(name: str, *, network: bool = True) -> bool:
    """Whether a child gets this variable."""
    passed = NEEDED_TO_RUN | NETWORK if network else NEEDED_TO_RUN
    return name.upper() in passed or name.startswith("LC_")
