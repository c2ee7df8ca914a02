"""Do random long runs of random worlds keep the promises?"""

import os
from collections import Counter

import pytest

from tests.protocol.actors.actions import PERFORM
from tests.protocol.configs import CONFIGS
from tests.protocol.search import Walk

THOROUGH = bool(os.environ.get("THOROUGH"))
CHUNKS = 8
WALKS_PER_CHUNK = 4_000 if THOROUGH else 250
SEEDS_PER_WORLD = 10
# Too rare for so few walks; the searches take them.
RARE = {"deadline", "overdue", "lbegin_lost", "relay_twice", "arq_rerun"}

pytestmark = pytest.mark.timeout(900 if THOROUGH else 180)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_walk_breaks_a_promise(chunk: int) -> None:
    for seed in range(chunk * WALKS_PER_CHUNK, (chunk + 1) * WALKS_PER_CHUNK):
        walk = Walk(seed).run()
        assert walk.bad is None, f"seed {seed}: {walk.bad}\n{walk.config}\n{walk.path}"


def test_walks_take_every_action_there_is() -> None:
    taken: Counter[str] = Counter()
    for config in CONFIGS.values():
        for seed in range(SEEDS_PER_WORLD):
            taken.update(action[0] for action in Walk(seed, config=config).run().path)
    assert set(PERFORM) - set(taken) <= RARE


def test_a_walk_is_the_same_each_time() -> None:
    first, second = Walk(7).run(), Walk(7).run()
    assert (first.path, first.config) == (second.path, second.config)


def test_walks_notice_a_missing_rule() -> None:
    assert any(Walk(seed, off=("park_zero",)).run().bad for seed in range(400))
