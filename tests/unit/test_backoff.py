"""How delays between tries grow."""

from __future__ import annotations

import random

from turnyard.backoff import Backoff


def test_delays_double_up_to_the_most_and_are_never_below_half() -> None:
    backoff = Backoff(first_s=1, most_s=4, rng=random.Random(1))
    for whole in (1, 2, 4, 4):
        assert whole / 2 <= backoff.next_s() <= whole


def test_a_success_starts_over_and_tells_whether_it_ended_failures() -> None:
    backoff = Backoff(first_s=1, most_s=4)
    assert not backoff.reset()
    backoff.next_s()
    assert backoff.failing
    assert backoff.reset()
    assert not backoff.failing
    assert backoff.next_s() <= 1
