"""Is slot time shared by weight, and is everyone who waits served soon?"""

import random
from typing import Literal

import pytest

from tests.protocol.fair import QUANTUM, FairRules, Session, Yard

SEEDS = range(150)
Kind = Literal["chat", "queue", "flap"]


def backlog(tenant: str, count: int, length: int, again: Kind | None = "queue") -> list[tuple[str, Session]]:
    return [(tenant, Session(length, again)) for _ in range(count)]


def chatty(rules: FairRules) -> Yard:
    """A bot that writes each tick has the only slot; one other session waits."""
    return Yard(1, {"A": 1, "B": 1}, rules).run(200, [("A", Session(1, "chat")), ("B", Session(3))])


def burst(rules: FairRules) -> Yard:
    """Two tenants with much work meet four free slots."""
    return Yard(4, {"A": 1, "B": 1}, rules).run(8, backlog("A", 12, 100) + backlog("B", 12, 100))


def flapping(rules: FairRules) -> Yard:
    """A tenant of weight 1 leaves and returns all the time; one of weight 4 has a backlog."""
    return Yard(1, {"A": 1, "B": 4}, rules).run(3000, [("A", Session(5, "flap")), *backlog("B", 4, 5)])


def test_a_turn_that_goes_on_and_on_gives_its_slot_up_after_the_quantum() -> None:
    yard = chatty(FairRules())
    assert yard.got["B"] == 3
    assert yard.worst_delay() <= QUANTUM


def test_a_quantum_counted_per_turn_starves_who_waits_behind_a_chat() -> None:
    assert chatty(FairRules(held="turn")).got == {"A": 200, "B": 0}


def test_free_slots_are_shared_from_the_first_moment() -> None:
    assert burst(FairRules()).got == {"A": 16, "B": 16}


def test_a_charge_only_at_release_gives_every_free_slot_to_one_flow() -> None:
    assert burst(FairRules(charge="release")).got == {"A": 32, "B": 0}


def test_a_tenant_that_comes_and_goes_gets_its_share_and_no_more() -> None:
    assert flapping(FairRules()).got == {"A": 600, "B": 2400}


def test_tags_that_go_with_an_idle_tenant_give_it_credit_at_each_return() -> None:
    assert flapping(FairRules(tags="idle")).got["A"] == 1500


def test_no_tag_outlives_the_work() -> None:
    yard = Yard(2, {"A": 1, "B": 1, "C": 1}).run(300, [("A", Session(5)), ("B", Session(7)), ("C", Session(4))])
    assert yard.tags == {}


def test_a_tenant_at_its_own_cap_does_not_push_its_own_turn_out() -> None:
    work = backlog("A", 2, 300, again=None)
    assert Yard(2, {"A": 1, "B": 1}, limits={"A": 1}).run(300, work).yields == 0
    work = backlog("A", 2, 300, again=None)
    assert Yard(2, {"A": 1, "B": 1}, FairRules(waiting="ready"), limits={"A": 1}).run(300, work).yields > 0


def random_yard(seed: int) -> tuple[Yard, list[tuple[str, Session]]]:
    rnd = random.Random(seed)
    weights = {tenant: rnd.choice([1, 1, 2, 4]) for tenant in "ABCDE"[: rnd.randint(2, 5)]}
    yard = Yard(rnd.randint(1, 3), weights)
    arrivals: list[tuple[str, Session]] = []
    for tenant in weights:
        again: Kind = rnd.choice(["chat", "queue", "queue", "flap"])
        arrivals += [(tenant, Session(rnd.randint(1, 25), again)) for _ in range(rnd.randint(1, 5))]
    return yard, arrivals


@pytest.mark.parametrize("chunk", range(3))
def test_whoever_waits_gets_a_slot_within_a_bound_of_weights_and_quanta(chunk: int) -> None:
    for seed in SEEDS[chunk::3]:
        yard, arrivals = random_yard(seed)
        count, weights = len(arrivals), yard.weights.values()
        bound = (QUANTUM + 1) * count * max(weights) / min(weights) * 2 / yard.slots + 2 * QUANTUM
        assert yard.run(1000, arrivals).worst_delay() <= bound, f"seed {seed}"
