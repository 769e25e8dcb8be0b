"""Which settings can change while the gateway runs, and how they reach its parts. Every setting is in one of two sets.

`docs/running.md` lists them from here. Called by `reloading`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from mcp_optimizer.app.part_options import budgets, concise_profiles, result_options, rulebook
from mcp_optimizer.app.parts import Parts, keeping_signpost
from mcp_optimizer.app.setting_values import items
from mcp_optimizer.config.settings import Settings

Tell = Callable[[Parts, Settings], None]


def _tell_policy(parts: Parts, settings: Settings) -> None:
    parts.policy.use(rulebook(settings), settings.tool_risks)
    parts.signposts.begin_again(keeping_signpost(settings))
    parts.for_clients.relay.announce_tools()


def _tell_rate(parts: Parts, settings: Settings) -> None:
    parts.gateway.permissions.use_rate(settings.calls_per_minute)


def _tell_results(parts: Parts, settings: Settings) -> None:
    parts.gateway.results.use(result_options(settings))


def _tell_find(parts: Parts, settings: Settings) -> None:
    parts.gateway.use_limits_of_find(settings.find_limit, settings.find_tokens, says_savings=settings.find_savings)


def _tell_lists(parts: Parts, settings: Settings) -> None:
    parts.refresher.use(items(settings.pinned_tools), budgets(settings), concise_profiles(settings))


def _tell_log(_parts: Parts, settings: Settings) -> None:
    logging.getLogger("mcp_optimizer").setLevel(settings.log_level.upper())


OF_SERVERS: Final = frozenset("servers trust_local trust_remote servers_trust".split())
"""Applied whenever the server file is read."""

_TOLD: Final[dict[frozenset[str], Tell]] = {
    frozenset({"rules", "tool_risks"}): _tell_policy,
    frozenset({"calls_per_minute"}): _tell_rate,
    frozenset(
        "max_rows max_tokens preview_tokens result_encoding cache_seconds server_results tool_results "
        "plain_meta".split()
    ): _tell_results,
    frozenset({"find_limit", "find_tokens", "find_savings"}): _tell_find,
    frozenset({"pinned_tools", "minimal_budget", "standard_budget", "full_budget", "concise_profiles"}): _tell_lists,
    frozenset({"log_level"}): _tell_log,
}

LIVE: Final = frozenset[str]().union(OF_SERVERS, *_TOLD)
"""Settings that take effect when their file changes."""

NEEDS_RESTART: Final = frozenset(
    "config demo database mode encoding encoder encoder_key learn_from_use learn_shapes detail signature_notes "
    "schema_notes name_servers network_variables "
    "dialect groups tool_profile app_tools description_writer description_writer_key client_profiles token_estimate "
    "cache_megabytes kept_hours kept_megabytes start_timeout call_timeout start_servers idle_timeout shared "
    "restart_pause restart_pause_max "
    "max_in_flight max_waiting client_sessions answer_timeout limits workers peer_address shutdown_timeout "
    "shutdown_delay wait http allowed_hosts allowed_origins dashboard dashboard_token public_url history history_days "
    "requests_per_session context_window price_model log_format otlp_endpoint split_calls scripts audit audit_file "
    "audit_megabytes audit_files audit_days audit_arguments require_auth open_to_anyone token_issuers reload "
    "dashboard_changes".split()
)
"""Settings that take effect at the next start."""


def differing(one: Settings, other: Settings) -> frozenset[str]:
    """The names of the settings that differ."""
    return frozenset(name for name in Settings.model_fields if getattr(one, name) != getattr(other, name))


def tell(parts: Parts, settings: Settings, changed: frozenset[str]) -> None:
    """Pass changed settings to the parts that use them."""
    for names, told in _TOLD.items():
        if names & changed:
            told(parts, settings)
