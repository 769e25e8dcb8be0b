"""Translates the settings into the options of each part.

Also names the configuration of a gateway; its history is kept under that name. Pure, except for paths and a look at
which packages are installed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mcp_optimizer.access.audit.audit_file import AuditOptions
from mcp_optimizer.access.policy.policy import Policy, RuleBook
from mcp_optimizer.app.setting_values import items
from mcp_optimizer.catalog.tool_forms import Detail
from mcp_optimizer.compression.compress import Dialect
from mcp_optimizer.config.serverfile.spec import ServerSpec, Start
from mcp_optimizer.config.serverfile.variables import Variables, expanded
from mcp_optimizer.config.settings import Settings
from mcp_optimizer.config.settings_groups import ResultSettings
from mcp_optimizer.config.textfiles.checked_values import UnusableEntry
from mcp_optimizer.domain.caller import Clientele
from mcp_optimizer.domain.credentials import TokenIssuer
from mcp_optimizer.domain.own_tools import ScriptMode
from mcp_optimizer.errors import ConfigurationError
from mcp_optimizer.metrics.savings import prices_of
from mcp_optimizer.profiles.tiers import ProfileName
from mcp_optimizer.results.calls import ResultOptions, Treatment
from mcp_optimizer.results.encodings import Encoding
from mcp_optimizer.results.metadata import Price
from mcp_optimizer.runtime.signatures import OwnedNames
from mcp_optimizer.upstream.questions import ParkingLimits
from mcp_optimizer.upstream.state import PoolOptions

if TYPE_CHECKING:
    from mcp_optimizer.profiles.written_descriptions import DescriptionWriter
    from mcp_optimizer.serving.server import ServerOptions

_DIGEST_LETTERS = 16


def configuration_of(settings: Settings, given: Iterable[ServerSpec] | None = None) -> str:
    """A name for the configuration: the same for all gateways with one server file; `given` servers have their own."""
    if given is not None:
        return _label("given", *sorted(f"{spec.name} {spec.fingerprint}" for spec in given))
    return _label("demo") if settings.demo else _label("file", os.path.realpath(settings.server_file))


def _label(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:_DIGEST_LETTERS]


def is_transparent(settings: Settings) -> bool:
    return settings.mode == "transparent"


def is_native(settings: Settings) -> bool:
    return settings.mode == "native"


def audit_options(settings: Settings) -> AuditOptions:
    return AuditOptions(
        file=settings.audit_path,
        megabytes=settings.audit_megabytes,
        files=settings.audit_files,
        days=settings.audit_days,
        arguments=settings.audit_arguments,
    )


def token_issuers(settings: Settings, environment: Mapping[str, str]) -> list[TokenIssuer]:
    """The issuers, with environment variables in their client secrets replaced."""
    return [_with_secret(issuer, environment) for issuer in settings.token_issuers]


def _with_secret(issuer: TokenIssuer, environment: Mapping[str, str]) -> TokenIssuer:
    where, login = f"client_secret of the token issuer {issuer.name}", issuer.dashboard_login
    try:
        secret = expanded(issuer.client_secret, where, Variables(environment))
        if login is not None:
            of_login = expanded(login.client_secret, f"dashboard_login.{where}", Variables(environment))
            login = login.model_copy(update={"client_secret": of_login})
    except UnusableEntry as error:
        raise ConfigurationError(f"{error}.") from None
    return issuer.model_copy(update={"client_secret": secret, "dashboard_login": login})


def is_open(settings: Settings, *, is_loopback: bool) -> bool:
    """Whether HTTP callers need neither a key nor a token. Beyond loopback, the settings must say so explicitly."""
    if settings.open_to_anyone:
        return True
    if settings.require_auth is False and not is_loopback:
        raise ConfigurationError(
            "require_auth = false admits anyone who reaches this gateway, which is not on loopback. If you want "
            "that, use --open-to-anyone."
        )
    return is_loopback and not settings.require_auth


def pool_options(settings: Settings, names: OwnedNames | None = None, *, clients: Clientele) -> PoolOptions:
    return PoolOptions(
        start_timeout=settings.start_timeout,
        call_timeout=settings.call_timeout,
        first_pause=settings.restart_pause,
        longest_pause=settings.restart_pause_max,
        most_under_way=settings.max_in_flight,
        most_waiting=settings.max_waiting,
        own_sessions=settings.client_sessions,
        has_one_client=clients is Clientele.ONE,
        has_joined_clients=clients is Clientele.JOINED,
        has_one_caller=settings.http is None,
        limits=settings.limits,
        network=settings.network_variables,
        start=Start(settings.start_servers),
        idle_timeout=settings.idle_timeout,
        parking=ParkingLimits(seconds=settings.answer_timeout),
        name_call=names.waiting_call if names is not None else None,
    )


def policy_of(settings: Settings) -> Policy:
    """What callers may do."""
    return Policy(rulebook(settings), settings.tool_risks)


def rulebook(settings: Settings) -> RuleBook:
    return RuleBook([rule.rule for rule in settings.rules])


def result_options(settings: Settings) -> ResultOptions:
    """How results are handled, from the settings."""
    return ResultOptions(
        everywhere=Treatment(
            max_rows=settings.max_rows,
            max_tokens=settings.max_tokens,
            preview_tokens=settings.preview_tokens,
            encoding=Encoding(settings.result_encoding),
            cache_seconds=settings.cache_seconds,
        ),
        servers={name: _said(said) for name, said in settings.server_results.items()},
        tools={name: _said(said) for name, said in settings.tool_results.items()},
        plain_meta=settings.plain_meta,
    )


def _said(settings: ResultSettings) -> dict[str, Any]:
    said = settings.model_dump(exclude_none=True)
    return {**said, "encoding": Encoding(said["encoding"])} if "encoding" in said else said


def price_of_results(settings: Settings) -> Price | None:
    """What results cost, if a model is set."""
    if not settings.price_model:
        return None
    prices = prices_of(settings.price_model)
    return Price(prices.model, prices.currency, prices.input)


def server_options(settings: Settings) -> ServerOptions:
    """What clients get by default."""
    # Loaded only here, as all that only serving needs.
    from mcp_optimizer.serving.server import ServerOptions

    return ServerOptions(
        detail=Detail(settings.detail),
        profile=_default_profile(settings),
        dialect=Dialect(settings.dialect),
        profile_of_client={name: _profile(value) for name, value in settings.client_profiles.items()},
        transparent=is_transparent(settings),
        native=is_native(settings),
        split_calls=settings.split_calls,
        scripts=ScriptMode(settings.scripts),
        app_tools=settings.app_tools,
    )


def budgets(settings: Settings) -> dict[ProfileName, int | None]:
    return {
        ProfileName.MINIMAL: settings.minimal_budget,
        ProfileName.STANDARD: settings.standard_budget,
        ProfileName.FULL: settings.full_budget,
    }


def concise_profiles(settings: Settings) -> frozenset[ProfileName]:
    """The profiles whose tools are described in at most five words."""
    return frozenset(map(_profile, items(settings.concise_profiles)))


def profiles_in_use(settings: Settings) -> set[ProfileName]:
    used = {_default_profile(settings), *map(_profile, settings.client_profiles.values())}
    return {profile for profile in used if profile is not None}


def _default_profile(settings: Settings) -> ProfileName | None:
    """The profile of clients without one of their own. For clients that search themselves, it has everything."""
    if settings.tool_profile:
        return _profile(settings.tool_profile)
    return ProfileName.FULL if is_native(settings) else None


def selected_profile(settings: Settings) -> ProfileName:
    """The profile that reports and `show` use."""
    return _profile(settings.tool_profile or "minimal")


def _profile(name: str) -> ProfileName:
    return ProfileName(name.title())


def description_writer(settings: Settings) -> DescriptionWriter | None:
    if not settings.description_writer:
        return None
    from mcp_optimizer.profiles.written_descriptions import DescriptionWriter

    return DescriptionWriter(settings.description_writer, settings.description_writer_key)
