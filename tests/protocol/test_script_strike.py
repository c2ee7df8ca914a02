"""A rollback takes a whole turn out of the view, however long it became."""

from __future__ import annotations

import pytest

from tests.protocol.broken import Broken, snaps
from tests.protocol.scene import Scene, shown
from turnyard.records.commit import Say

pytestmark = pytest.mark.asyncio

HOUR_MS = 3_600_000


@pytest.mark.spec("trap-74")
async def test_a_rollback_of_a_turn_of_any_length_strikes_all_of_it_and_gives_every_bystanders_message_back(scene: Scene) -> None:
    owner = await scene.worker()
    view = await scene.open_turn(owner, "one")
    for i in range(7):
        await scene.say(f"by{i}", asker=False, user="bob")
        await scene.dispatch()
        view = await scene.commit(view, append=tuple(Say({"text": "x"}) for _ in range(350)), claim=True)
    await scene.say("better", mode="rollback")
    await scene.dispatch()
    for _ in range(3):
        assert not view.ended
        view = await scene.commit(view, ending="finish", closing=True)
    assert view.ended
    view = await scene.start(owner)
    assert shown(view) == [*(f"by{i}" for i in range(7)), "better"]
    await scene.reply(view)


async def test_a_strike_that_its_worker_did_not_end_is_ended_by_the_next(scene: Scene) -> None:
    first, second = await scene.worker(), await scene.worker()
    view = await scene.open_turn(first, "one")
    for _ in range(5):
        view = await scene.commit(view, append=tuple(Say({"text": "x"}) for _ in range(400)))
    await scene.say("better", mode="rollback")
    await scene.dispatch()
    view = await scene.commit(view, ending="finish", closing=True)
    assert not view.ended
    await scene.tick(first, parts="")
    view = await scene.start(second)
    assert view.cancel == "superseded"
    for _ in range(2):
        view = await scene.commit(view, ending="finish", closing=True)
    assert view.ended
    view = await scene.start(second)
    assert shown(view) == ["better"]
    await scene.reply(view)


BROKEN: dict[str, Broken] = {
    "a strike of a thousand": (
        test_a_rollback_of_a_turn_of_any_length_strikes_all_of_it_and_gives_every_bystanders_message_back,
        *("if closing and h.ck ~= '' and strike() then return 'none' end", "if closing and h.ck ~= '' then strike() end"),
    ),
    "a strike begins anew": (
        test_a_strike_that_its_worker_did_not_end_is_ended_by_the_next,
        *("  if #page == STRIKES then set(h, 'tz',", "  if false then set(h, 'tz',"),
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
async def test_without_its_rule_what_waits_goes_wrong(clean: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await snaps(clean, monkeypatch, BROKEN[rule])
