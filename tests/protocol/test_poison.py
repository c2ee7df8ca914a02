"""Is a turn that kills closed soon, and is no other ever closed for it?"""

import random
from dataclasses import replace

import pytest

from tests.protocol.poison import Fleet, Plague, PoisonRules

SEEDS = range(60)
RULES = PoisonRules()
PLAGUES = {
    "in its tool": Plague(),
    "in the tool of its second step": Plague(at=1),
    "in a tool that is not idempotent": Plague(idempotent=False),
    "while it waits for the model": Plague(phase="model"),
    "and a second one": Plague(poison=2),
    "and its host": Plague(kills_host=True),
    "and its host, with others on it for long": Plague(kills_host=True, slow=True),
}


def fleets(rules: PoisonRules, plague: Plague) -> list[Fleet]:
    return [Fleet(random.Random(seed), rules, plague).run() for seed in SEEDS]


@pytest.mark.parametrize("name", PLAGUES)
def test_a_turn_that_kills_is_closed_after_a_few_deaths_and_no_innocent_is(name: str) -> None:
    plague = PLAGUES[name]
    for fleet in fleets(RULES, plague):
        assert fleet.poison_closed()
        assert not fleet.innocents_closed()
        assert all(turn.over for turn in fleet.turns)
        assert fleet.child_deaths <= 6 * plague.poison + plague.turns


def test_deaths_by_chance_never_leave_a_turn_open() -> None:
    assert all(turn.over for fleet in fleets(RULES, Plague(poison=0, chance=4)) for turn in fleet.turns)


def test_an_idempotent_poison_is_never_closed_when_its_started_mark_is_forgiven() -> None:
    assert not any(fleet.poison_closed() for fleet in fleets(replace(RULES, forgive="any"), PLAGUES["in its tool"]))


def test_a_poison_that_becomes_unknown_is_never_closed_when_that_entry_is_forgiven() -> None:
    plague = PLAGUES["in a tool that is not idempotent"]
    assert not any(fleet.poison_closed() for fleet in fleets(replace(RULES, forgive="entries"), plague))
    assert not any(fleet.poison_closed() for fleet in fleets(replace(RULES, forgive="entries", keep_level=False), plague))


def test_a_killer_that_waits_for_the_model_is_never_closed_when_only_tools_are_suspect() -> None:
    plague = PLAGUES["while it waits for the model"]
    assert not any(fleet.poison_closed() for fleet in fleets(replace(RULES, suspect_all=False), plague))


def test_innocents_on_lost_hosts_are_closed_when_all_of_a_host_are_charged() -> None:
    plague = PLAGUES["and its host, with others on it for long"]
    assert any(fleet.innocents_closed() for fleet in fleets(replace(RULES, charge_alone=False), plague))
    assert any(
        fleet.innocents_closed() for fleet in fleets(replace(RULES, charge_alone=False, lost_forgiven=False), PLAGUES["and its host"])
    )
