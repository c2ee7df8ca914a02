"""Which small deployments are searched, and which of them each rule saves.

A deployment is small on purpose: one or two sessions, two or three messages, one or two faults, so that a search reaches the end
of every interleaving. The first word of a name is its topic.
"""

from functools import partial

from tests.protocol.actors import Config, Event, message

X = ("x",)
XY = ("x", "y")
m = partial(message, "x")
n = partial(message, "y")


def control(event_id: str, kind: str, **more: str) -> Event:
    """Return a control of session x."""
    return {"id": event_id, "kind": kind, "sid": "x", **more}


CANCEL = control("c1", "cancel")
NEW = control("n1", "new")
PAUSE = control("p1", "pause")
one = partial(Config, cap=1, sids=X)
quiet = partial(one, budget=0, workers=("A",))
c = partial(m, mode="collect")

ARRIVALS = {
    "steer3": one(plan=[[m("m1", "tool"), m("m2"), m("m3")]]),
    "modes": one(plan=[[m("m1"), m("m2", mode="follow_up"), m("m3")]]),
    "follow": one(plan=[[m("m1", mode="follow_up"), m("m2", mode="follow_up")]]),
    "interrupt": one(plan=[[m("m1", "tool"), m("i1", mode="interrupt"), m("i2", mode="interrupt")]]),
    "int_steer": one(plan=[[m("m1", "tool"), m("s1"), m("i1", mode="interrupt"), m("s2")]], budget=0),
    "tt_steer": one(plan=[[m("m1", "tt"), m("m2")]], faults=("expel", "drain")),
    "newstore": one(plan=[[m("m1", "det"), NEW, m("m2"), m("m3")]], budget=0),
    "newaw": one(plan=[[m("m1", "aw"), NEW, m("m2")]]),
    "newstore2": one(plan=[[m("m1", "tool"), NEW, m("m2", mode="follow_up"), m("m3"), m("m4")]], budget=0),
    "unreadable": one(plan=[[control("u1", "?"), m("m1"), m("m2")]], budget=0, workers=("A",)),
}
CALLS = {
    "await": one(plan=[[m("m1", "aw"), m("m2")]]),
    "await2": one(plan=[[m("m1", "aa"), m("m2", asker=False)]]),
    "bystander": one(plan=[[m("m1", "ta"), m("m2", asker=False)]]),
    "approve": one(plan=[[m("m1", "ap"), m("m2")]]),
    "approve_v": one(plan=[[m("m1", "ap", user="u"), m("m2", user="v")]], budget=0, workers=("A",)),
    "approve_x": one(plan=[[m("m1", "axaw", user="u"), m("m2", asker=False, user="v")]], budget=0, workers=("A",)),
    "approve_q": one(plan=[[m("m1", "aq"), m("m2", asker=False)]], workers=("A",), faults=("timeout",)),
    "ask_first": one(plan=[[m("m1", "pqt")]], workers=("A",), faults=("expel", "drain")),
    "approve_t": one(plan=[[m("m1", "at")]]),
    "approve2": one(plan=[[m("m1", "aada")]], budget=0, workers=("A",)),
    "batch": one(plan=[[m("m1", "ata"), m("m2", asker=False)]], budget=0, workers=("A",)),
    "detached": one(plan=[[m("m1", "det"), m("m2")]]),
    "detaw": one(plan=[[m("m1", "da"), m("m2")]]),
    "demote": one(plan=[[m("m1", "aa"), m("m2")]], workers=("A",), faults=("expel",)),
    "hasty": one(plan=[[m("m1", "aa")]], workers=("A",), faults=("hasty",)),
    "queue_ap": one(plan=[[m("m1", "ap"), m("m2", mode="follow_up")]], budget=0),
    "par": one(plan=[[m("m1", "pp")]], faults=("crash", "expel", "lose", "drain")),
    "par3": one(plan=[[m("m1", "ppp")]], budget=2, faults=("expel", "drain"), workers=("A",)),
    "par_c": one(plan=[[m("m1", "pp")], [CANCEL]], workers=("A",), faults=("expel", "overdue", "drain")),
    "par_aw": one(plan=[[m("m1", "pa"), m("m2")]], workers=("A",), faults=("expel",)),
    "par_ip": one(plan=[[m("m1", "ip"), m("m2")]], budget=0, workers=("A",)),
}
CANCELS = {
    "cancel": one(plan=[[m("m1", "ta")], [CANCEL], [m("m2")]]),
    "cancel3": one(plan=[[m("m1"), m("m2", "tool")], [CANCEL]], budget=0),
    "cancel_aw": one(plan=[[m("m1", "aw")], [CANCEL]], budget=0),
    "cancel_tt": one(sids=XY, plan=[[m("m1", "tt")], [CANCEL], [n("n1")]], faults=("overdue",), workers=("A",)),
    "canceldet": one(plan=[[m("m1", "det"), m("m2", "tool")], [CANCEL]], budget=0),
    "cancel_all": quiet(plan=[[m("m1"), m("m2", mode="follow_up")], [control("c1", "cancel", all="1")]]),
    "canceljob": one(sids=XY, plan=[[m("m1"), control("c1", "canceljob", mid="m1")], [n("n1")]]),
    "roll": one(plan=[[m("m1", "det"), m("r1", mode="rollback")]], budget=0),
    "roll_c": quiet(plan=[[m("m1", "tool"), m("r1", mode="rollback")], [CANCEL]]),
    "roll2": one(plan=[[m("m1", "det"), m("m2", "tool"), m("r1", mode="rollback")]], budget=0, workers=("A",)),
    "roll_by": one(plan=[[m("m1", "tool"), m("m2", asker=False), m("r1", mode="rollback")]], budget=0, workers=("A",)),
    "roll_f": quiet(plan=[[m("m1"), m("m2", "fo", mode="follow_up"), m("r1", mode="rollback")]]),
    "roll_x": one(
        plan=[[m("m1", "tool"), m("r1", "aw", mode="rollback"), m("r2", mode="rollback")]], workers=("A",), faults=("expel", "overdue")
    ),
}
FLEET = {
    "state": one(plan=[[m("m1", "tool"), m("m2", mode="follow_up")]], faults=("expel", "crash")),
    "two": one(cap=2, sids=XY, plan=[[m("m1", "tt")], [n("n1", "tool")]], workers=("A",), faults=("crash", "expel", "lose", "drain")),
    "full": one(sids=XY, plan=[[m("m1", "da"), m("m2", mode="follow_up")], [n("n1", "tool")], [CANCEL]], budget=0),
    "full2": one(cap=2, sids=XY, plan=[[m("m1", "da"), m("i1", mode="interrupt")], [n("n1", mode="follow_up")], [CANCEL]], budget=0),
    "expel2": one(cap=2, sids=XY, plan=[[m("m1")], [n("n1")]], budget=2, workers=("A",), faults=("expel", "beginby")),
    "vers": one(plan=[[m("m1", "tt")]], vers={"A": 1, "B": 2}, faults=("expel", "drain")),
    "vers_aw": one(plan=[[m("m1", "aw"), m("m2", mode="follow_up")]], budget=0, vers={"A": 1, "B": 2}),
    "events": one(plan=[[m("m1", "ta"), m("m2")]], workers=("A",), events=True, faults=("expel", "lose")),
    "events_l": one(plan=[[m("m1", "ld")], [m("m2", "tool")]], workers=("A",), lifters=("L",), events=True, faults=("crash",)),
    "rewind": one(plan=[[m("m1", "tool"), m("m2")]], hist=2, faults=("rewind",)),
    "rewind2": one(plan=[[m("m1", "tool")]], hist=3, faults=("rewind",)),
    "rewind_b": one(plan=[[m("m1"), m("m2", mode="follow_up")]], hist=3, workers=("A",), faults=("rewind",)),
    "rewind_x": one(plan=[[m("m1", "tool")]], budget=2, hist=2, faults=("rewind", "expel")),
    "rewind_aw": one(plan=[[m("m1", "aw"), m("m2", asker=False)]], hist=2, faults=("rewind",)),
    "rewind_ev": one(plan=[[m("m1", "tool"), m("m2")]], budget=2, hist=3, workers=("A",), events=True, faults=("lose", "rewind")),
    "rewind_w": one(plan=[[m("m1")]], budget=2, hist=2, workers=("A",), faults=("crash", "rewind")),
    "par_rew": one(plan=[[m("m1", "pp")]], hist=3, workers=("A",), faults=("rewind",)),
}
lifted = partial(one, workers=("A",), lifters=("L",))
LIFTED = {
    "lift": lifted(plan=[[m("m1", "ln")]], budget=2, faults=("crash", "expel", "lose")),
    "lift_two": lifted(plan=[[m("m1", "ln")]], budget=2, lifters=("L", "M"), faults=("lexpel", "lose", "expel")),
    "lift_dup": lifted(plan=[[m("m1", "ln")]], budget=2, faults=("crash",)),
    "lift_tl": lifted(plan=[[m("m1", "ltl")]], faults=("lcrash", "expel")),
    "lift_i": lifted(plan=[[m("m1", "li")]], budget=4, faults=("lcrash",)),
    "lift_exp": lifted(plan=[[m("m1", "li")]], budget=2, lifters=("L", "M"), faults=("expel",)),
    "lift_cancel": lifted(plan=[[m("m1", "li")], [CANCEL]], faults=("crash", "lose")),
    "lift_det": lifted(plan=[[m("m1", "ld"), m("m2")]], faults=("crash", "expel")),
    "lift_time": lifted(plan=[[m("m1", "lt")]], budget=2, faults=("timeout", "crash")),
    "lift_rew": lifted(plan=[[m("m1", "li")]], hist=3, faults=("rewind",)),
    "lift_ap": lifted(plan=[[m("m1", "al")], [CANCEL]], faults=("expel",)),
    "lift_ask": lifted(plan=[[m("m1", "ll"), m("m2")]], faults=("lexpel", "expel")),
}
OUTSIDE = {
    "poll": lifted(plan=[[m("m1", "po")]], budget=2, faults=("lcrash", "lose")),
    "poll_c": lifted(plan=[[m("m1", "po"), m("m2")], [CANCEL]], faults=("lexpel", "timeout")),
    "read": lifted(plan=[[m("m1", "cb")]], faults=("lcrash", "crash")),
    "read_d": lifted(plan=[[m("m1", "cd"), m("m2")]], faults=("lexpel", "timeout")),
    "read2": lifted(plan=[[m("m1", "cc")]], budget=0),
    "read_c": lifted(plan=[[m("m1", "cb"), m("m2")], [CANCEL]], faults=("lose", "timeout")),
    "poll_rew": lifted(plan=[[m("m1", "po")]], hist=3, faults=("rewind",)),
    "read_rew": lifted(plan=[[m("m1", "cb")]], hist=3, faults=("rewind",)),
    "long_rew": lifted(plan=[[m("m1", "lxo")]], hist=3, faults=("rewind",)),
    "long_i": lifted(plan=[[m("m1", "lx")]], faults=("crash", "expel")),
}
WAITING = {
    "collect": one(plan=[[c("m1"), c("m2"), c("m3")]], workers=("A",), faults=("beginby", "expel")),
    "collect_f": quiet(plan=[[m("m1", "tool", mode="follow_up"), c("m2"), c("m3"), m("m4")]]),
    "collect_c": quiet(plan=[[c("m1"), c("m2"), control("c1", "canceljob", mid="m1")], [m("m3", mode="later", delay=1)]]),
    "collect_n": quiet(plan=[[c("m1"), NEW, c("m2"), m("m3", mode="later", delay=1)]]),
    "notice": quiet(plan=[[control(f"n{i}", "notice", group="g") for i in range(3)], [m("m1", "tool")]]),
    "notice_n": quiet(plan=[[control("n1", "notice", group="g"), control("w", "new"), control("n2", "notice", group="g"), m("m1")]]),
    "pause": one(plan=[[m("m1", "tool"), m("m2")], [PAUSE]], workers=("A",), faults=("expel", "drain", "beginby")),
    "pause_c": one(plan=[[m("m1", "aw"), PAUSE, CANCEL]], workers=("A",), faults=("expel", "drain")),
    "retry": quiet(plan=[[m("m1", "re"), m("m2")], [CANCEL]]),
    "long": one(plan=[[m("m1", "lo")]], workers=("A",), faults=("crash", "expel")),
    "long_t": one(plan=[[m("m1", "lot"), m("m2")], [CANCEL]], workers=("A",), faults=("expel",)),
    "pause_d": quiet(plan=[[c("m1"), m("m2", mode="follow_up")], [PAUSE]]),
}
CONFIGS: dict[str, Config] = {**ARRIVALS, **CALLS, **CANCELS, **FLEET, **LIFTED, **OUTSIDE, **WAITING}

# Configurations that go wrong within a small search when the rule is off.
BREAKS: dict[str, str] = {
    "park_zero": "await bystander await2 approve",
    "rows_first": "bystander await approve",
    "begin_between": "bystander steer3 tt_steer",
    "begin_next": "follow modes",
    "one_store": "newstore newaw",
    "interrupt_inbox": "interrupt int_steer",
    "cancel_no_claim": "interrupt int_steer",
    "park_cancel": "cancel_aw",
    "fence_owner": "rewind2",
    "fence_state": "rewind_b",
    "beat_xx": "rewind_w",
    "begin_live": "steer3 expel2",
    "dying": "two expel2",
    "allowed": "approve approve_t",
    "unstart": "two tt_steer",
    "count_parked": "await approve_t",
    "cas_awaiting": "await cancel_aw await2",
    "new_turn": "cancel3",
    "row_turn": "canceldet",
    "ready_empty": "canceljob",
    "queue_supersede": "queue_ap",
    "finish_awaits": "hasty",
    "demote_parked": "demote",
    "cancel_open": "canceldet",
    "displaced": "newstore newstore2",
    "lift_release": "lift_cancel",
    "lift_try": "lift_exp lift_i",
    "lift_again": "lift lift_exp",
    "lift_job": "lift_dup",
    "lane_parked": "lift_tl",
    "lift_bound": "lift_i",
    "lift_owner": "lift lift_exp lift_two",
    "collect_closed": "collect",
    "collect_group": "collect collect_f",
    "dl_member": "collect_c collect_n",
    "par_rows": "par",
    "pause_gate": "pause pause_c pause_d",
    "pause_close": "pause_c",
    "pause_assigned": "pause",
    "strike_kept": "roll_c",
    "strike_own": "roll2",
    "strike_note": "roll roll2",
    "strike_other": "roll_by",
    "notice_store": "notice_n",
    "list_version": "vers vers_aw",
    "entry_seq": "events events_l",
    "dead_letter": "unreadable",
    "job_leaves": "canceljob",
    "cancel_all": "cancel_all",
    "retry_stays": "retry",
    "ask_own": "approve_v",
    "park_kind": "lift_ap",
    "long_task": "long",
    "long_again": "long_i",
    "not_early": "poll",
    "later_lives": "poll",
    "raw_kept": "read",
    "raw_wakes": "read",
    "raw_left": "read",
    "raw_parks": "read",
    "state_fenced": "state expel2",
    "state_kept": "state two",
    "state_ends": "state",
    "strike_folds": "roll_f",
    "strike_low": "roll_f",
    "base_entry": "rewind_ev",
    "approved_waits": "approve2",
    "sequential": "approve_t",
}
# Rules that heal the same hole: it shows only with both off.
TOGETHER: dict[str, tuple[str, ...]] = {"lane_parked": ("lift_again",)}
