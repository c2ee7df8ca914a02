"""A few points of the sweep, on real processes: `make sweep` has them all (see README.md)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.faults.checks import Cost, findings
from tests.faults.deployment import Deployment
from tests.faults.golden import Golden
from tests.faults.points import MODES, Point, parse_plan, plans_of, recoveries
from tests.faults.sweep import Sweep
from turnyard.state.yard import Yard

pytestmark = [pytest.mark.xdist_group("sweep"), pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    directory = Path(tempfile.mkdtemp(prefix="sweep-"))
    with Deployment(directory) as deployment:
        yield deployment
    shutil.rmtree(directory, ignore_errors=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sweep(deployment: Deployment) -> AsyncIterator[Sweep]:
    yard = await Yard.open(deployment.url)
    yield Sweep(deployment, yard)
    await yard.aclose()


async def test_a_run_without_harm_costs_nothing_and_names_its_points(sweep: Sweep) -> None:
    assert await sweep.run([]) == []
    points = [point for plan in plans_of(sweep.watch.seen) for point in plan]
    assert len({point.moment for point in points}) >= 40
    assert {point.mode for point in points} == set(MODES)


@pytest.mark.spec("I3", "I5", "I9")
@pytest.mark.parametrize(
    "name",
    [
        "submitter:accept#1:after",
        "dispatcher:dispatch#1:before",
        "dispatcher:dispatch#2:after",
        "worker.child:commit#2:before",
        "worker.child:commit#5:after",
        "platform:accept#1:before",
        "platform:accept#1:after",
        "lifted.child:accept#1:before",
        "sender:sent#1:before",
        "worker.child:commit#3:restart",
        "worker.child:commit#1:stop",
        "worker.child:commit#2:before+worker:tick#1:after",
    ],
)
async def test_whoever_dies_at_a_command_nothing_is_lost_doubled_or_left_over(sweep: Sweep, name: str) -> None:
    assert await sweep.run(parse_plan(name)) == []


async def test_a_recovery_is_harmed_at_the_commands_that_only_it_has() -> None:
    first = Point("w:commit#2", "before")
    plans = recoveries(first, ["w:commit#1", "w:commit#2", "s:tick#1", "s:tick#2", "w2:blmpop#7", "w:begin#2"], ["w:commit#1", "w:begin#1"])
    assert [[str(point) for point in plan] for plan in plans] == [
        ["w:commit#2:before", "s:tick#1:before"],
        ["w:commit#2:before", "s:tick#1:after"],
        ["w:commit#2:before", "w2:blmpop#7:after"],
    ]


async def test_a_check_that_finds_nothing_would_find_a_reply_that_is_missing_or_doubled(sweep: Sweep) -> None:
    golden = Golden(sweep.deployment, sweep.yard, "checked", sweep.tend)
    await sweep.ready()
    await golden.run()
    assert await findings(golden, Cost()) == []
    file = sweep.deployment.directory / "sent"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-1]))
    assert any("delivered" in found for found in await findings(golden, Cost()))
    file.write_text("".join(lines) + lines[-1].replace('"id": "', '"id": "0'))
    assert any("delivered" in found for found in await findings(golden, Cost()))
    file.write_text("".join(lines) + lines[-1])
    assert await findings(golden, Cost()) == []
    with (sweep.deployment.directory / "checked").open("a") as trace:
        trace.write("once\nmodel\n")
    found = await findings(golden, Cost())
    assert len(found) == 2
