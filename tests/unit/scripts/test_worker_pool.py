"""Workers that do not start: others take their place, or the script is refused with a reason."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest
from pydantic_monty import AsyncMonty

from mcp_optimizer.errors import InvalidRequest
from mcp_optimizer.scripts.workers import WorkerPool

REAL = Path(sysconfig.get_path("scripts")) / "monty"


def failing(folder: Path, times: int) -> Path:
    """A worker's program that ends at once so often, and then is the real one."""
    program, starts = folder / "monty", folder / "starts"
    program.write_text(
        f'#!/bin/sh\necho >> {starts}\n[ $(wc -l < {starts}) -gt {times} ] || exit 1\nexec {REAL} "$@"\n'
    )
    program.chmod(0o755)
    return program


def pool_of(program: Path) -> WorkerPool:
    return WorkerPool(lambda: AsyncMonty(binary_path=program, min_processes=0, max_processes=1))


async def value(pool: WorkerPool) -> object:
    async with pool.session() as session:
        return await session.feed_run("1 + 1")


@pytest.mark.parametrize("times", [0, 1, 2])
async def test_a_worker_that_ends_before_it_begins_is_replaced(tmp_path: Path, times: int) -> None:
    pool = pool_of(failing(tmp_path, times))
    assert await value(pool) == 2
    await pool.close()


@pytest.mark.parametrize("times", [None, 9], ids=["missing", "ends"])
async def test_a_script_whose_worker_never_starts_is_refused_and_the_next_is_tried(
    tmp_path: Path, times: int | None
) -> None:
    program = tmp_path / "monty" if times is None else failing(tmp_path, times)
    pool = pool_of(program)
    with pytest.raises(InvalidRequest, match="nothing was called"):
        await value(pool)
    program.unlink(missing_ok=True)
    os.symlink(REAL, program)
    assert await value(pool) == 2
    await pool.close()
