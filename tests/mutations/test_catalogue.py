"""Can every mutation be tried, and do the tests notice those that the guarantees name?"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import redis

from tests.mutations.mutation import copied
from tests.mutations.product import MUTATIONS
from tests.mutations.switches import COUNTERPARTS
from tests.protocol.configs import BREAKS
from tests.protocol.model import FIXES
from turnyard.state import scripts


def _folder(state: Path, package: str) -> Path:
    assert package == "turnyard.state"
    return state


ALL = [*MUTATIONS, *COUNTERPARTS.values()]
# The ones that every queue is tempted by: identity, acknowledging early, counters, short memory, other people's leases, no sweep.
NAMED = (
    "commit does not compare the owner",
    "dispatch removes what it has not applied",
    "slots are counted, and a begin-by forgets to count back",
    "a repeat is known for five minutes",
    "a dead worker's turn is taken back whoever has it now",
    "nobody looks at deadlines",
)


@pytest.mark.parametrize("name", NAMED)
def test_a_mutation_turns_its_tests_red(name: str) -> None:
    (mutation,) = [m for m in MUTATIONS if m.name == name]
    assert mutation.caught_by()


def test_every_switch_of_the_model_has_a_world_and_a_counterpart_in_the_sources() -> None:
    assert set(COUNTERPARTS) == set(BREAKS) == set(FIXES)


def test_no_two_mutations_share_a_name() -> None:
    assert len({m.name for m in ALL}) == len(ALL)


# A library that does not load turns every test red and proves nothing.
def test_every_mutated_library_still_loads(clean: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with redis.Redis.from_url(clean, socket_timeout=10) as client:
        for edits in [m.edits for m in ALL if all(edit.file.endswith(".lua") for edit in m.edits)]:
            with copied(edits, only=("turnyard/state/lua",)) as copy, monkeypatch.context() as patch:
                state = copy / "turnyard" / "state"
                patch.setattr(scripts, "files", partial(_folder, state))
                client.execute_command("FUNCTION", "LOAD", "REPLACE", scripts.Library().source)
