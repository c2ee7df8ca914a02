"""Does the protocol survive its traps, and does each rule that claims to save it do so?"""

import pytest

from tests.protocol.actors import Violation
from tests.protocol.traps import COUNT, ELSEWHERE, NOT_MODELLED, TRAPS, Trap


def named(traps: list[Trap]) -> list[object]:
    return [pytest.param(trap, id=f"{trap.id}: {trap.name}") for trap in traps]


@pytest.mark.parametrize("trap", named(TRAPS))
def test_the_protocol_walks_through_the_trap(trap: Trap) -> None:
    trap.run()


@pytest.mark.parametrize("trap", named([trap for trap in TRAPS if trap.switch]))
def test_without_its_rule_the_trap_snaps(trap: Trap) -> None:
    with pytest.raises(Violation):
        trap.run(off=trap.switch)


@pytest.mark.parametrize("trap", named(TRAPS))
def test_the_trap_says_what_must_be_true_at_the_end(trap: Trap) -> None:
    assert trap.story or trap.expect


def test_every_trap_has_its_place() -> None:
    modelled = {trap.id for trap in TRAPS}
    places = [modelled, set(ELSEWHERE), set(NOT_MODELLED)]
    assert set().union(*places) == {f"trap-{i}" for i in range(1, COUNT + 1)}
    assert sum(len(place) for place in places) == COUNT


def test_the_whole_walk_of_a_trap_ends_at_rest_and_can_be_replayed() -> None:
    trap = next(trap for trap in TRAPS if trap.id == "trap-25")
    walk = trap.actions()
    assert walk[: len(trap.path)] == list(trap.path)
    assert len(walk) > len(trap.path)
