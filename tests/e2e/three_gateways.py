"""Three gateways behind HAProxy for tests, which start quickly; skips where HAProxy is not installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster import Cluster, Gateway, haproxy_program, running_cluster
from tests.e2e.running import WARM

__all__ = ["Cluster", "Gateway", "haproxy_program", "three_gateways"]


@contextmanager
def three_gateways(
    config: Path, database: str, *options: object, environment: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """The cluster, each gateway ready and in HAProxy's rotation. `database` is usually `postgres.new_database()`."""
    if haproxy_program() is None:
        pytest.skip("HAProxy is not installed")
    with running_cluster(WARM, config, database, *options, environment=environment) as cluster:
        yield cluster
