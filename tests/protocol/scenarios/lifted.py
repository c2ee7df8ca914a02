"""Lifted tasks: who runs a row when the relay, arq or a lifted worker fails."""

from tests.protocol.configs import CONFIGS, lifted, m
from tests.protocol.scenarios.trap import AGAIN, START, STEP, Trap, steps

PARKED = f"{START}; {STEP}; {STEP}"
DIES_BEFORE_BEGIN = "relay; lpick L; lcrash L; lrestart L; tick_dead L0; again m1.0; relay; lpick L"

TRAPS = [
    Trap(
        id="trap-22",
        name="the relay enqueues and dies before it says so: it enqueues again, the task runs once",
        config=lifted(plan=[[m("m1", "ln")]], faults=("lose",)),
        path=steps(PARKED, "relay_twice; relay; lpick L; lbegin L m1.0:1; lrun L m1.0:1; lout L m1.0:1", AGAIN),
        story={"x/0": "m1, ask m1.0, m1.0 real, say"},
        expect=lambda shard, env: env["effects"] == {"m1.0": 1},
    ),
    Trap(
        id="trap-23",
        name="arq runs the job of a dead worker again: a task that is not idempotent becomes unknown",
        config=lifted(plan=[[m("m1", "ln")]], budget=2, faults=("crash",)),
        path=steps(
            PARKED,
            "relay; lpick L; lbegin L m1.0:1; lrun L m1.0:1; lcrash L; lrestart L; arq_rerun m1.0:1; lpick L; lbegin L m1.0:1",
            "tick_dead L0; take A; begin A x",
        ),
        switch=("lift_owner",),
        story={"x/0": "m1, ask m1.0, m1.0 unknown, say"},
        expect=lambda shard, env: env["effects"] == {"m1.0": 1},
    ),
    Trap(
        id="trap-64",
        name="a lifted job dies before it begins: it is relayed again, not called unknown",
        config=lifted(plan=[[m("m1", "ln")]], faults=("lcrash",)),
        path=steps(PARKED, DIES_BEFORE_BEGIN, "lbegin L m1.0:2; lrun L m1.0:2; lout L m1.0:2", AGAIN),
        switch=("lift_again",),
        story={"x/0": "m1, ask m1.0, m1.0 real, say"},
    ),
    Trap(
        id="trap-67",
        name="[lift, tool, lift] in a batch: the second lift is launched when it parks",
        config=CONFIGS["lift_tl"],
        path=steps(PARKED, "relay; lpick L; lbegin L m1.0:1"),
        switch=("lane_parked", "lift_again"),
        story={"x/0": "m1, ask m1.0 m1.1 m1.2, m1.0 real, m1.1 ok, m1.2 real, say"},
    ),
    Trap(
        id="trap-68",
        name="arq still holds the id of a dead worker's job: the next relay has an id of its own",
        config=lifted(plan=[[m("m1", "li")]], faults=("lcrash",)),
        path=steps(PARKED, DIES_BEFORE_BEGIN),
        switch=("lift_try",),
        story={"x/0": "m1, ask m1.0, m1.0 real, say"},
    ),
    Trap(
        id="trap-69",
        name="two arq jobs of one worker begin one row",
        config=CONFIGS["lift_dup"],
        path=steps(
            PARKED,
            "relay; lpick L; lcrash L; lrestart L; again m1.0; relay; lpick L; lbegin L m1.0:2; lrun L m1.0:2",
            "arq_rerun m1.0:1; lpick L; lbegin L m1.0:1",
        ),
        switch=("lift_job",),
        story={"x/0": "m1, ask m1.0, m1.0 real, say"},
        expect=lambda shard, env: env["effects"] == {"m1.0": 1},
    ),
    Trap(
        id="trap-69",
        name="the jobs of two workers begin one row",
        config=CONFIGS["lift_two"],
        path=steps(PARKED, "relay_twice; lpick L; lbegin_lost L m1.0:1; relay; lpick M; lbegin M m1.0:1"),
        switch=("lift_owner",),
        story={"x/0": "m1, ask m1.0, m1.0 real, say"},
        expect=lambda shard, env: env["effects"] == {"m1.0": 1},
    ),
]
