"""Is every waiter with room found without a scan?"""

import pytest

from tests.protocol.admission import Wakes, explore

ARRIVALS = ["F1", "F2", "F3", "F1", "F2", "F3"]


def test_one_wake_per_freed_resource_that_is_passed_on_finds_every_waiter_with_room() -> None:
    found = explore(Wakes(), ARRIVALS)
    assert found.bad is None
    assert found.states > 10_000


def test_a_pool_that_starts_without_workers_wakes_its_waiters_when_they_come() -> None:
    assert explore(Wakes(), ARRIVALS, {"p": 0}).bad is None


@pytest.mark.parametrize("how", ["one", "chain"])
def test_a_raised_limit_that_wakes_nobody_strands_a_waiter(how: str) -> None:
    assert "waits with room" in str(explore(Wakes(how, by_limits=False), ARRIVALS).bad)  # pyright: ignore[reportArgumentType]


def test_a_wake_that_its_flow_cannot_use_and_keeps_strands_the_next_waiter() -> None:
    assert "waits with room" in str(explore(Wakes("one"), ARRIVALS).bad)
