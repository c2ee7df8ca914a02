"""The switches of what is modelled alone, off: blocked resources, lanes, shares of slot time, poison."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.protocol import admission, lanes
from tests.protocol.fair import QUANTUM, FairRules, Session, Yard
from tests.protocol.poison import Fleet, Plague, PoisonRules

FLOWS = ["F1", "F2", "F3", "F1", "F2", "F3"]
SEEDS = range(60)
LONG = Session(100, "queue")
TOOL = Plague()
MODEL = Plague(phase="model")
HOST = Plague(kills_host=True, slow=True)


def _one_wake_is_kept() -> str | None:
    return admission.explore(admission.Wakes("one"), FLOWS).bad


def _a_raised_limit_wakes_nobody() -> str | None:
    return admission.explore(admission.Wakes("chain", by_limits=False), FLOWS).bad


def _a_commit_arms_a_lane_again() -> str | None:
    return lanes.explore(lanes.LaneRules(nx=False)).bad


def _sent_asks_for_no_lease() -> str | None:
    return lanes.explore(lanes.LaneRules(cas=False)).bad


def _quantum_per_turn() -> str | None:
    yard = Yard(1, {"A": 1, "B": 1}, FairRules(held="turn")).run(200, [("A", Session(1, "chat")), ("B", Session(3))])
    return f"B got {yard.got['B']} of 3" if yard.worst_delay() > QUANTUM else None


def _charge_at_release() -> str | None:
    work = [(tenant, replace(LONG)) for tenant in ("A", "B") for _ in range(12)]
    got = Yard(4, {"A": 1, "B": 1}, FairRules(charge="release")).run(8, work).got
    return f"slots went to {got}" if got["A"] != got["B"] else None


def _tags_go_with_an_idle_tenant() -> str | None:
    work = [("A", Session(5, "flap")), *(("B", Session(5, "queue")) for _ in range(4))]
    got = Yard(1, {"A": 1, "B": 4}, FairRules(tags="idle")).run(3000, work).got
    return f"weight 1 got {got['A']} of 3000" if got["A"] > 700 else None


def _waiting_without_room_pushes_out() -> str | None:
    work = [("A", Session(300)), ("A", Session(300))]
    yields = Yard(2, {"A": 1, "B": 1}, FairRules(waiting="ready"), limits={"A": 1}).run(300, work).yields
    return f"{yields} yields to nobody" if yields else None


def _never_closed(plague: Plague, rules: PoisonRules) -> str | None:
    fleets = [Fleet(random.Random(seed), rules, plague).run() for seed in SEEDS]
    return None if any(fleet.poison_closed() for fleet in fleets) else "the turn that kills is never closed"


def _innocents(rules: PoisonRules) -> str | None:
    fleets = [Fleet(random.Random(seed), rules, HOST).run() for seed in SEEDS]
    return "an innocent turn is closed" if any(fleet.innocents_closed() for fleet in fleets) else None


def _mark_forgives() -> str | None:
    return _never_closed(TOOL, replace(PoisonRules(), forgive="any"))


def _unknown_forgives() -> str | None:
    return _never_closed(Plague(idempotent=False), replace(PoisonRules(), forgive="entries"))


def _only_tools_are_suspect() -> str | None:
    return _never_closed(MODEL, replace(PoisonRules(), suspect_all=False))


def _a_lost_host_charges_all() -> str | None:
    return _innocents(replace(PoisonRules(), charge_alone=False))


PARTS: dict[str, Callable[[], str | None]] = {
    "a wake that its flow cannot use is kept": _one_wake_is_kept,
    "a raised limit wakes nobody": _a_raised_limit_wakes_nobody,
    "a commit arms a lane again": _a_commit_arms_a_lane_again,
    "a lane's cursor moves without its lease": _sent_asks_for_no_lease,
    "the quantum is counted per turn": _quantum_per_turn,
    "slot time is charged at release alone": _charge_at_release,
    "a tag goes with its idle tenant": _tags_go_with_an_idle_tenant,
    "who waits without room pushes others out": _waiting_without_room_pushes_out,
    "a start mark forgives deaths": _mark_forgives,
    "an unknown outcome forgives deaths": _unknown_forgives,
    "only turns in tools are suspect": _only_tools_are_suspect,
    "a lost host charges all its turns": _a_lost_host_charges_all,
}
