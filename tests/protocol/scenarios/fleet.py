"""Workers and failover: who holds a turn, and what a dead, frozen or rewound holder may still do."""

from tests.protocol.configs import CONFIGS, XY, m, n, one
from tests.protocol.scenarios.trap import AGAIN, START, STEP, Trap, steps

B_STEP = "effect B x; commit B x"
both = one(cap=2, sids=XY, plan=[[m("m1")], [n("n1")]], workers=("A",), faults=("crash", "expel"))
BOTH_RUN = "accept 0; accept 1; dispatch; take A; take A; begin A x; begin A y"

TRAPS = [
    Trap(
        id="trap-7",
        name="a failover mints one epoch twice: the owner tells the holders apart",
        config=CONFIGS["rewind2"],
        path=steps(START, "rewind 3; dispatch; take B; begin B x; effect A x; commit A x", B_STEP),
        switch=("fence_owner",),
        story={"x/0": "m1, ask m1.0, m1.0 ok, say"},
    ),
    Trap(
        id="trap-17",
        name="a failover loses a commit: its worker cannot append behind the gap",
        config=one(plan=[[m("m1", "tool")]], hist=1, workers=("A",), faults=("rewind",)),
        path=steps(START, STEP, "rewind 1", STEP, "begin A x", STEP),
        story={"x/0": "m1, ask m1.0, m1.0 ok, say"},
    ),
    Trap(
        id="trap-35",
        name="SIGTERM between begin and the first step",
        config=one(plan=[[m("m1", "tool")]], faults=("drain",)),
        path=steps(START, "drain A x", STEP, "dispatch; take B; begin B x", B_STEP),
        story={"x/0": "m1, ask m1.0, m1.0 ok, say"},
        expect=lambda shard, env: (env["effects"], shard["s"]["x"]["epoch"]) == ({"m1.0": 1}, 2),
    ),
    Trap(
        id="trap-38",
        name="a frozen reader swallows an assignment; its begin comes after somebody else's",
        config=one(plan=[[m("m1")]], faults=("beginby",)),
        path=steps("accept 0; dispatch; take A; beginby x; take B; begin B x; begin A x", B_STEP),
        story={"x/0": "m1, say"},
        expect=lambda shard, env: shard["s"]["x"]["epoch"] == 2,
    ),
    Trap(
        id="trap-51",
        name="a failover loses a begin: its owner's commit does not pass in state assigned",
        config=one(plan=[[m("m1", "tool")]], hist=1, budget=2, workers=("A",), faults=("drain", "rewind")),
        path=steps(START, STEP, "drain A x", STEP, AGAIN, "effect A x; rewind 1; commit A x"),
        switch=("fence_state",),
        story={"x/0": "m1, ask m1.0, m1.0 ok, say"},
    ),
    Trap(
        id="trap-52",
        name="a delayed begin of an expelled incarnation",
        config=one(plan=[[m("m1")]], workers=("A",), faults=("expel",)),
        path=steps("accept 0; dispatch; take A; expel A; begin A x"),
        switch=("begin_live",),
        story={"x/0": "m1, say"},
    ),
    Trap(
        id="trap-53",
        name="a tick dies half-way through a dead worker's set",
        config=both,
        path=steps(BOTH_RUN, "crash A; tick_dead A0; restart A; walk A0"),
        switch=("dying",),
        story={"x/0": "m1, say", "y/0": "n1, say"},
    ),
    Trap(
        id="trap-54",
        name="a beat does not bring an expelled worker back",
        config=both,
        path=steps(BOTH_RUN, "expel A; beat A"),
        switch=("beat_xx",),
        expect=lambda shard, env: env["workers"]["A"]["inc"] == 1 and "A0" not in shard["workers"],
    ),
    Trap(
        id="trap-54",
        name="a worker whose registration was lost registers again, with its capacity",
        config=CONFIGS["rewind_w"],
        path=steps("accept 0; dispatch; take A; crash A; tick_dead A0; restart A; rewind 1; beat A"),
        switch=("beat_xx",),
        story={"x/0": "m1, say"},
    ),
    Trap(
        id="trap-78",
        name="a turn of the newer agent is not handed to a worker with the older one",
        config=CONFIGS["vers"],
        path=steps("accept 0; dispatch; take B; begin B x", B_STEP, "drain B x", B_STEP, "dispatch"),
        switch=("list_version",),
        story={"x/0": "m1, ask m1.0 m1.1, m1.0 ok, m1.1 ok, say"},
    ),
    Trap(
        id="trap-85",
        name="a failover loses an event: a commit's answer still carries its own entry",
        config=CONFIGS["rewind_ev"],
        path=steps("accept 0; dispatch; take A; begin_lost A x; accept 0; beat A; begin A x; rewind 3", STEP),
        switch=("base_entry",),
        story={"x/0": "m1, ask m1.0, m1.0 ok, say"},
    ),
]
