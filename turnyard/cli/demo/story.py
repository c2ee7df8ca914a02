"""The story of the demo, in four acts: a call that is parked, four things in one context, a kill, a hand-over.

Every act checks what it shows, against what the API says and against the calls that were really made.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnyard.cli.demo import journal
from turnyard.cli.demo.journal import MODEL, Made
from turnyard.cli.demo.scene import SESSION, JsonObject, Scene
from turnyard.cli.demo.studio import AGENT, PICTURE
from turnyard.records import log
from turnyard.state.yard import Yard

if TYPE_CHECKING:
    from turnyard.client.handle import JobHandle

RENDER = "Render the harbour."
WISHES = ("Make the sky red.", "And add a boat.")
NEWS = "It began to rain."
CARDS = 5
LEASE_S = 10.0


async def tell_story(scene: Scene) -> None:
    """Play all acts.

    Raises:
        NeverCame: something that had to happen did not.
        TurnyardError: the API refused something, or did not answer.
    """
    job = await scene.say(RENDER)
    async with scene.watched():
        await _parks(scene, job)
        await _arrive_together(scene, job)
        await _killed(scene)
        await _stopped(scene)
    await _account(scene)


async def _parks(scene: Scene, job: JobHandle) -> None:
    await scene.turn_ends(1)
    session = await scene.client.session(SESSION)
    parked = ", ".join(f"{call['tool']} ({call['kind']})" for call in session["parked"])
    open_job = (await scene.client.job(job.id)).data
    scene.tell.check(
        "the call parks, and the turn ends",
        session["state"] == "idle" and parked == "render (lift)" and open_job["state"] == "waiting",
        seen=f"session {session['state']}, parked: {parked or 'nothing'}, job {open_job['state']}",
    )
    pool = await scene.client.scale("default")
    busy = sum(worker["running"] for worker in await scene.client.workers() if worker["role"] == "worker")
    scene.tell.check(
        "no slot is held meanwhile",
        pool["running"] == 0 and pool["ready"] == 0 and busy == 0 and session["holder"] is None,
        seen=f"turns running: {pool['running']}, in the hands of workers: {busy}, holder of the session: {session['holder'] or 'nobody'}",
    )
    explained = await scene.client.explain(SESSION)
    scene.tell.line("yard", f"why does it stand still? {explained['code']}: {explained['detail']}")


async def _arrive_together(scene: Scene, job: JobHandle) -> None:
    scene.tell.chapter("2 · Four things arrive while the session is idle")
    yard = await Yard.open(scene.stage.redis_url)
    try:
        with scene.stage.stopped("dispatcher") as pid:
            scene.tell.line("demo", f"holds the dispatcher still (SIGSTOP {pid}), so that all four arrive before anything moves")
            jobs = await _send_four(scene, yard)
        scene.tell.line("demo", "lets the dispatcher go on (SIGCONT)")
    finally:
        await yard.aclose()
    await scene.turn_ends(2)
    await _one_call_saw_all(scene)
    done = [(await scene.client.job(each.id)).data for each in (job, *jobs)]
    scene.tell.check(
        "each message has its answer, all from one turn",
        all(d["state"] == "succeeded" for d in done) and len({d["turn"] for d in done[1:]}) == 1,
        seen=f"jobs {', '.join(d['state'] for d in done)}; turns of the two messages: {len({d['turn'] for d in done[1:]})}",
    )


async def _send_four(scene: Scene, yard: Yard) -> list[JobHandle]:
    """Send a lifted result, two messages and a notice, one after the other; return the jobs of the messages."""
    (shard,) = yard.shards
    stream = shard.keys.ingress

    async def waiting(count: int) -> bool:
        return await yard.redis.xlen(stream) >= count

    (scene.folder / PICTURE).touch()
    scene.tell.line("tool", "the picture is finished")
    await scene.until("the result of the lifted call to be accepted", lambda: waiting(1))
    jobs = [await scene.say(wish) for wish in WISHES]
    scene.tell.line("demo", f"leaves a notice: {NEWS}")
    await scene.client.notice(SESSION, NEWS, group="weather", key="today", agent=AGENT)
    await scene.until("all four to be accepted", lambda: waiting(4))
    state = (await scene.client.session(SESSION))["state"]
    scene.tell.line("yard", f"{await yard.redis.xlen(stream)} events are stored and wait in the stream; the session is {state}")
    return jobs


async def _one_call_saw_all(scene: Scene) -> None:
    entries = await scene.client.entries(SESSION)
    answer = max(i for i, e in enumerate(entries) if e["type"] == log.ASSISTANT)
    before = max(i for i, e in enumerate(entries[:answer]) if e["type"] == log.ASSISTANT)
    turn = entries[answer]["turn"]
    kinds = [e["type"] for e in entries[before + 1 : answer]]
    scene.tell.check(
        "the late result, both messages and the notice are one context, in the order of arrival",
        kinds == [log.RESULT, log.USER, log.USER, log.NOTICE] and {e["turn"] for e in entries[before + 1 : answer]} == {turn},
        seen=f"between two answers the log holds {', '.join(kinds) or 'nothing'}",
    )
    # The first turn's calls came before the picture was done.
    done_s = max((m.at_s for m in scene.made() if m.name == "render" and m.phase == "end"), default=0.0)
    asked = [m for m in journal.begun(scene.made()) if m.name == MODEL and m.at_s > done_s]
    for text in asked[-1].shown if asked else ():
        scene.tell.line("model", f"reads: {text}")
    scene.tell.check("ONE model call saw all of it", len(asked) == 1 and saw_all(asked[0].shown), seen=f"model calls: {len(asked)}")


def saw_all(shown: Sequence[str]) -> bool:
    """Tell whether a model call was shown the late result, the two messages and the notice as new, in this order."""
    if len(shown) != 4:
        return False
    late, first, second, notice = shown
    return late.startswith("[render ") and late.endswith("harbour.png") and (first, second) == WISHES and notice.endswith(NEWS)


async def _killed(scene: Scene) -> None:
    scene.tell.chapter("3 · A worker is killed in mid-turn")
    await scene.say("Print cards for the family.")
    await scene.until("card 2 to be in print", lambda: _in_print(scene.made(), "card 2 for the family"))
    victim = await scene.holder()
    killed_s = scene.clock.monotonic()
    os.kill(victim["pid"], signal.SIGKILL)
    scene.tell.line("demo", f"kill -9 {victim['pid']}: the child that runs this turn")
    found: Made = await scene.until("another worker to go on", lambda: journal.takeover(scene.made(), old=victim["pid"], after_s=killed_s))
    scene.tell.line("yard", f"process {found.pid} goes on after {found.at_s - killed_s:.2f} s: {found.about}")
    await scene.turn_ends(3)
    scene.figures["recovery after kill -9"] = f"{found.at_s - killed_s:.2f} s to the next call"
    scene.tell.check(
        "another worker goes on, without waiting for the lease",
        found.at_s - killed_s < LEASE_S,
        seen=f"{found.at_s - killed_s:.2f} s after the kill; a lease is {LEASE_S:g} s",
    )
    again, same = journal.repeats(scene.made()), journal.keys_stay(scene.made())
    scene.tell.check(
        "a kill repeats at most one call, under the same key",
        len(again) <= 1 and same,
        seen=f"repeated: {', '.join(f'{m.name} ({m.about})' for m in again) or 'none'}; {'one key' if same else 'several keys'} per call",
    )
    await _all_printed(scene, "family")


async def _stopped(scene: Scene) -> None:
    scene.tell.chapter("4 · A worker is told to stop in mid-turn")
    repeated = len(journal.repeats(scene.made()))
    await scene.say("Print cards for the office.")
    await scene.until("card 2 to be in print", lambda: _in_print(scene.made(), "card 2 for the office"))
    worker = await scene.holder()
    told_s = scene.clock.monotonic()
    os.kill(worker["supervisor_pid"], signal.SIGTERM)
    names = {pid: name for name, pid in scene.stage.roles}
    scene.tell.line("demo", f"SIGTERM {worker['supervisor_pid']}: {names.get(worker['supervisor_pid'], 'a worker')} ends, as in a rollout")
    found: Made = await scene.until("another worker to go on", lambda: journal.takeover(scene.made(), old=worker["pid"], after_s=told_s))
    last_s = journal.last_sign(scene.made(), old=worker["pid"], before_s=found.at_s) or told_s
    scene.tell.line("yard", f"it ends the call in hand and hands over; process {found.pid} goes on {found.at_s - last_s:.2f} s later")
    await scene.turn_ends(4)
    scene.figures["hand-over after SIGTERM"] = f"{found.at_s - last_s:.2f} s from its last call to the next one elsewhere"
    after = [m for m in scene.made() if m.at_s > found.at_s and m.pid == worker["pid"]]
    scene.tell.check(
        "a worker that is told to stop hands its turn over", not after, seen=f"calls it made after the hand-over: {len(after)}"
    )
    again = len(journal.repeats(scene.made())) - repeated
    scene.tell.check("a hand-over repeats nothing", again == 0, seen=f"repeated: {again}")
    await _all_printed(scene, "office")


def _in_print(made: Sequence[Made], about: str) -> bool:
    """Tell whether a card has begun to be printed."""
    return any(m.about == about for m in made)


async def _all_printed(scene: Scene, whom: str) -> None:
    """Check that each card was printed, and that the log holds each call, its one result and one answer."""
    printed = {m.about for m in scene.made() if m.name == "print_card" and m.phase == "end"}
    wanted = {f"card {n} for the {whom}" for n in range(1, CARDS + 1)}
    entries = await scene.client.entries(SESSION)
    turn = [e for e in entries if e["turn"] == entries[-1]["turn"]]
    calls, results = ([e["call"] for e in turn if e["type"] == kind] for kind in (log.CALL, log.RESULT))
    answers = answered(turn)
    scene.tell.check(
        "nothing is lost: each call has one result, and the message one answer",
        wanted <= printed and calls == results and len(calls) == CARDS and len(answers) == 1,
        seen=f"cards printed: {len(wanted & printed)} of {CARDS}; calls {len(calls)}, results {len(results)}, answers {len(answers)}",
    )


def answered(entries: Sequence[JsonObject]) -> list[str]:
    """Return the texts that a model said at the end of a turn."""
    return [e["body"]["text"] for e in entries if e["type"] == log.ASSISTANT and e["body"].get("text")]


async def _account(scene: Scene) -> None:
    """Add up the calls of the whole story."""
    entries = await scene.client.entries(SESSION)
    again = journal.repeats(scene.made())
    begun = journal.begun(scene.made())
    for name, tools in (("model calls", False), ("tool calls", True)):
        made = [m for m in begun if (m.name != MODEL) is tools]
        twice = [m for m in again if (m.name != MODEL) is tools]
        scene.figures[name] = f"{len(made)}, of them repeated: {len(twice)}"
    scene.figures["turns"] = str(len({e["turn"] for e in entries if e["turn"]}))
