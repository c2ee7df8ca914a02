"""Commands that tools run: what they give, what bounds them, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from turnyard import ToolContext, ToolError
from turnyard.testing import wait_until
from turnyard.tools.command import Ran

CTX = ToolContext.fake()
# Starts a child that starts one of its own, says who they are, and waits.
FAMILY = 'sh -c \'sleep 600 & echo $! >> "$0"; wait\' "$0" & echo $! >> "$0"; echo $$ >> "$0"; wait'


def alive(pid: int) -> bool:
    """Tell whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def told(path: Path) -> list[int]:
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


async def family(path: Path) -> list[int]:
    await wait_until(lambda: len(told(path)) == 3, description="the family to be there")
    return told(path)


async def gone(pids: list[int]) -> None:
    await wait_until(lambda: not any(map(alive, pids)), description="the family to be gone")


async def test_a_command_gives_its_exit_code_and_what_it_wrote() -> None:
    ran = await CTX.run("sh", "-c", "cat; echo oops >&2; exit 3", given="hello")
    assert (ran, ran.ok) == (Ran(3, "hello", "oops\n"), False)
    assert (await CTX.run("printenv", "A", env={"A": "1", "PATH": os.environ["PATH"]})).stdout == "1\n"


async def test_of_a_long_output_the_beginning_is_kept() -> None:
    ran = await CTX.run("sh", "-c", "yes é | head -c 100001", kept_bytes=1000)
    assert ran.stdout.startswith("é\né\n")
    assert ran.stdout.endswith("[cut after 1,000 of 100,001 bytes]")
    assert len(ran.stdout) < 1000


async def test_a_command_that_is_not_there_is_the_models_to_know() -> None:
    with pytest.raises(ToolError, match="nowhere cannot be run"):
        await CTX.run("nowhere")


async def test_a_command_over_its_time_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    running = asyncio.ensure_future(CTX.run("sh", "-c", FAMILY, tmp_path / "pids", timeout=0.5))
    pids = await family(tmp_path / "pids")
    with pytest.raises(ToolError, match=r"stopped after 0\.5 s"):
        await running
    await gone(pids)


@pytest.mark.spec("runner-31")
async def test_a_call_that_is_cancelled_ends_its_command_with_all_that_it_started(tmp_path: Path) -> None:
    running = asyncio.ensure_future(CTX.run("sh", "-c", FAMILY, tmp_path / "pids"))
    pids = await family(tmp_path / "pids")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await gone(pids)


async def test_what_a_command_left_running_does_not_hold_its_result_up() -> None:
    ran = await CTX.run("sh", "-c", "sleep 600 & echo $!")
    assert ran.ok
    await gone([int(ran.stdout)])
