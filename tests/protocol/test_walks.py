"""Do random long runs of random worlds keep the promises?"""

import os
from collections import Counter

import pytest

from tests.protocol.actors.actions import PERFORM
from tests.protocol.search import Walk

THOROUGH = bool(os.environ.get("THOROUGH"))
CHUNKS = 8
WALKS_PER_CHUNK = 4_000 if THOROUGH else 250
# Too rare for a walk: they need a world of their own, and a search has it (configs.py).
ONLY_SEARCHED = {"hasty", "walk", "arq_rerun", "lbegin_lost"}

pytestmark = pytest.mark.timeout(900 if THOROUGH else 60)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_walk_breaks_a_promise(chunk: int) -> None:
    for seed in range(chunk * WALKS_PER_CHUNK, (chunk + 1) * WALKS_PER_CHUNK):
        walk = Walk(seed).run()
        assert walk.bad is None, f"seed {seed}: {walk.bad}\n{walk.config}\n{walk.path}"


def test_walks_take_every_action_there_is() -> None:
    taken: Counter[str] = Counter()
    for seed in range(600):
        taken.update(action[0] for action in Walk(seed).run().path)
    assert set(PERFORM) - set(taken) <= ONLY_SEARCHED


def test_a_walk_is_the_same_each_time() -> None:
    first, second = Walk(7).run(), Walk(7).run()
    assert (first.path, first.config) == (second.path, second.config)


def test_walks_notice_a_missing_rule() -> None:
    assert any(Walk(seed, off=("park_zero",)).run().bad for seed in range(400))
