"""Does every interleaving of a small world keep the invariants, and does each rule earn its place?"""

import os

import pytest

from tests.protocol.configs import BREAKS, CONFIGS, TOGETHER
from tests.protocol.model import FIXES
from tests.protocol.search import search

THOROUGH = bool(os.environ.get("THOROUGH"))
MAX_STATES = 20_000 if THOROUGH else 1_200
DRAIN_EVERY = 5 if THOROUGH else 10
# The hardest rule to catch needs 1,589.
MUTANT_STATES = 2_000

pytestmark = pytest.mark.timeout(900 if THOROUGH else 180)


@pytest.mark.parametrize("name", CONFIGS)
def test_no_interleaving_breaks_an_invariant(name: str) -> None:
    found = search(CONFIGS[name], max_states=MAX_STATES, drain_every=DRAIN_EVERY)
    assert found.bad is None, str(found)


@pytest.mark.parametrize(("rule", "name"), [(rule, name) for rule, names in BREAKS.items() for name in names.split()])
def test_a_protocol_without_the_rule_goes_wrong(rule: str, name: str) -> None:
    off = (rule, *TOGETHER.get(rule, ()))
    assert search(CONFIGS[name], off=off, max_states=MUTANT_STATES, drain_every=1).bad is not None


def test_every_rule_has_a_world_that_breaks_without_it() -> None:
    assert set(BREAKS) == set(FIXES)


def test_a_search_to_the_end_of_a_small_world_leaves_nothing_unexplored() -> None:
    found = search(CONFIGS["cancel_aw"], max_states=1_000)
    assert (found.bad, found.unexplored) == (None, 0)
