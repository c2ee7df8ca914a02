"""Calls that were cut off at their time limit: what they leave behind must not cost the worker anything."""

from __future__ import annotations

import pytest

from tests.integration.conversation import Talk, check_log
from tests.integration.sample_app import SampleApp
from tests.processes import Roles


@pytest.mark.spec("L08")
async def test_after_a_hundred_calls_that_were_cut_off_plain_functions_still_run(
    talk: Talk, clean: str, roles: Roles, app: SampleApp
) -> None:
    """Half of the bodies are threads that nothing can stop: far more of them than the worker runs turns at a time."""
    roles.dispatcher(clean)
    roles.worker(clean, app.path, "--processes", "1", "--concurrency", "4")
    asked = [await talk.say(f"{kind}{i}", kind) for i in range(15) for kind in ("stuck", "late")]
    for job in asked:
        assert (await talk.done(job)).state == "succeeded"
    assert len(app.ran("stuck")) + len(app.ran("late+1")) * 3 >= 100
    together = [await talk.say(f"after{i}", "sleepy 0.2") for i in range(4)]
    for job in together:
        ended = await talk.done(job)
        assert ended.output is not None
        assert ended.output["text"] == "then: woke up"


@pytest.mark.spec("rival-40")
async def test_a_call_that_was_cut_off_is_gone_before_the_next_one_starts(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    roles.dispatcher(clean)
    roles.worker(clean, app.path, "--processes", "1")
    assert (await talk.done(await talk.say("s1", "late"))).state == "succeeded"
    assert [what for what, _ in app.trace()] == ["late+1", "late-1", "late+2", "late-2", "late+3", "late-3"]
    assert [r.outcome for r in await talk.log("s1") if r.type == "tool/result"] == ["error"] * 3
    check_log(await talk.log("s1"))
