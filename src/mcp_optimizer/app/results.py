"""Builds what shrinks and keeps results. Called by the composition root."""

from __future__ import annotations

from mcp_optimizer.app.options import price_of_results, result_options
from mcp_optimizer.catalog.shapes import LearnedShapes
from mcp_optimizer.db.storage import Storage
from mcp_optimizer.results.cache import ResultCache
from mcp_optimizer.results.estimates import Estimator
from mcp_optimizer.results.pipeline import Results
from mcp_optimizer.results.store import ResultStore, StoreLimits
from mcp_optimizer.settings import Settings
from mcp_optimizer.token_counter import TokenCounter


def result_store(settings: Settings, storage: Storage) -> ResultStore:
    """Where the rest of a cut result is kept."""
    limits = StoreLimits(settings.kept_hours, settings.kept_megabytes, settings.limits.waiting_results)
    return ResultStore(storage.kept_results, limits, storage.breaker)


def results_of(
    settings: Settings, counter: TokenCounter, store: ResultStore, shapes: LearnedShapes | None, cache: ResultCache
) -> Results:
    return Results(
        Estimator(settings.token_estimate, counter),
        store,
        result_options(settings),
        cache,
        price_of_results(settings),
        settings.limits,
        shapes.learn if shapes is not None else None,
    )
