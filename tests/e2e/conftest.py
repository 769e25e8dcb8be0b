"""End-to-end tests start many gateways, so they search by words only, except those about the encoder."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _by_words(monkeypatch: pytest.MonkeyPatch, _own_folders: None) -> None:
    monkeypatch.setenv("MCP_OPTIMIZER_ENCODER", "none")
