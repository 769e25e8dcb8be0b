"""What is imported quickly works like anything else: its models are built on first use, and later ones at once."""

from __future__ import annotations

import gc
import threading

import pytest
from pydantic import BaseModel, ValidationError

from mcp_optimizer.runtime.lazy import quick_imports


def models() -> tuple[type[BaseModel], type[BaseModel]]:
    class Part(BaseModel):
        size: int

    class Whole(BaseModel):
        parts: list[Part]

    return Part, Whole


def test_a_model_is_built_on_first_use_and_checks_as_usual() -> None:
    with quick_imports():
        part, whole = models()
    assert not part.__pydantic_complete__
    assert whole.model_validate({"parts": [{"size": "7"}]}).model_dump() == {"parts": [{"size": 7}]}
    with pytest.raises(ValidationError):
        part.model_validate({"size": "large"})


def test_models_declared_later_are_built_at_once() -> None:
    with pytest.raises(RuntimeError), quick_imports():
        raise RuntimeError
    assert models()[0].__pydantic_complete__
    assert gc.isenabled()


def test_threads_that_use_a_model_first_at_the_same_time_get_the_same() -> None:
    for _ in range(50):
        with quick_imports():
            _, whole = models()
        begun = threading.Barrier(4)
        found: list[str] = []

        def use(whole: type[BaseModel] = whole, begun: threading.Barrier = begun, found: list[str] = found) -> None:
            begun.wait(10)
            found.append(whole.model_validate_json('{"parts": [{"size": 1}]}').model_dump_json())

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert found == ['{"parts":[{"size":1}]}'] * 4
