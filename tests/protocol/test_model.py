"""Do the model's own parts do what its readers rely on?"""

import pytest

from tests.protocol import model
from tests.protocol.actors import Config, act, copy, fingerprint, message, new_world, quiesce
from tests.protocol.model import Rules

RULES = Rules()


def test_a_rule_that_does_not_exist_cannot_be_switched_off() -> None:
    with pytest.raises(ValueError, match="park_zeroo"):
        Rules(off=["park_zeroo"])


def test_a_rule_is_on_unless_named() -> None:
    rules = Rules(off=["park_zero"])
    assert (rules.park_zero, rules.rows_first) == (False, True)


def test_lifted_tasks_take_no_session_s_room() -> None:
    shard = model.new_shard(4, ["x", "y"])
    model.register(shard, "A0", capacity=2)
    model.register(shard, "L0", capacity=0)
    shard["w"] = {"L0": ["c!m1.0", "c!m2.0"], "A0": ["x"]}
    assert model.worker_room(shard, since=0) == 1


def test_a_session_is_admitted_while_a_lifted_worker_is_busy() -> None:
    shard, env = new_world(Config(cap=1, sids=["x"], plan=[[message("x", "m1")]], lifters=("L",), workers=("A",), capacity=1))
    shard["w"]["L0"] = ["c!other.0"]
    model.accept(shard, RULES, dict(env["plan"][0][0], n=1))
    model.dispatch(shard, RULES)
    assert shard["s"]["x"]["state"] == "assigned"


def test_an_unreadable_entry_goes_to_dead_and_the_drain_goes_on() -> None:
    shard = model.new_shard(1, ["x"])
    shard["ingress"] = [{"kind": "?", "sid": "x"}, {"kind": "wake", "sid": "nobody"}, {"kind": "new", "sid": "x"}]
    assert model.dispatch(shard, RULES) == ["DEAD", "DEAD", "OK"]
    assert (len(shard["dead"]), shard["ingress"], shard["s"]["x"]["store"]) == (2, [], "x/1")


def test_a_repeated_accept_gets_the_first_answer() -> None:
    shard = model.new_shard(1, ["x"])
    event = dict(message("x", "m1"), n=1)
    assert model.accept(shard, RULES, event) == {"code": 202}
    assert model.accept(shard, RULES, event) == {"code": 202, "dup": True}
    assert len(shard["ingress"]) == 1


def test_equal_worlds_have_equal_fingerprints_whatever_led_to_them() -> None:
    config = Config(cap=1, sids=["x"], plan=[[message("x", "m1")]], budget=0)
    shard, env = new_world(config)
    key = fingerprint(shard, env)
    other, around = copy(shard), copy(env)
    assert fingerprint(dict(reversed(other.items())), dict(reversed(around.items()))) == key
    act(other, around, RULES, ("accept", 0))
    assert fingerprint(other, around) != key
    assert fingerprint(shard, env) == key


def test_a_world_at_rest_stays_at_rest() -> None:
    shard, env = new_world(Config(cap=1, sids=["x"], plan=[[message("x", "m1", "tool")]]))
    quiesce(shard, env, RULES)
    key = fingerprint(shard, env)
    quiesce(shard, env, RULES)
    assert fingerprint(shard, env) == key
