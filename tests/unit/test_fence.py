"""Which requests a tool's own server lets in: those of the newest attempt of a call, and no older ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis

from turnyard import ToolContext
from turnyard.errors import InvalidRequest
from turnyard.fence import Claim, MemoryGate, RedisGate, claim_headers, lifted_fence, read_claim, turn_fence

CLAIMS = st.lists(st.builds(Claim, st.sampled_from("ab"), st.integers(0, 5)), max_size=12)


def expected(claims: list[Claim]) -> list[bool]:
    """Which of the claims are not behind one that came before under their key."""
    return [all(before.fence <= claim.fence for before in claims[:n] if before.key == claim.key) for n, claim in enumerate(claims)]


@given(claims=CLAIMS)
async def test_of_one_key_an_attempt_enters_unless_a_later_one_did(claims: list[Claim]) -> None:
    gate = MemoryGate()
    assert [await gate.enter(claim) for claim in claims] == expected(claims)


async def test_a_gate_of_several_processes_says_the_same(clean: str) -> None:
    claims = [
        Claim("a", 1),
        Claim("a", 3),
        Claim("b", 1),
        Claim("a", 2),
        Claim("a", 3),
        Claim("a", (1 << 53) - 1),
        Claim("a", (1 << 53) - 2),
    ]
    async with Redis.from_url(clean) as one, Redis.from_url(clean) as other:
        gates = [RedisGate(one, ttl_s=60), RedisGate(other, ttl_s=60)]
        assert [await gates[n % 2].enter(claim) for n, claim in enumerate(claims)] == expected(claims)
        assert 0 < await one.ttl("fence:a") <= 60


async def test_a_gate_of_one_process_forgets_the_oldest_key() -> None:
    gate = MemoryGate(most=2)
    for key in "abc":
        await gate.enter(Claim(key, 9))
    assert [await gate.enter(Claim(key, 1)) for key in "cba"] == [False, False, True]


def test_a_context_says_which_attempt_it_is_and_a_server_reads_it() -> None:
    headers = claim_headers(ToolContext.fake(idempotency_key="k", fence=7))
    assert read_claim({name.upper(): value for name, value in headers.items()}) == Claim("k", 7)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Idempotency-Key": "k"},
        {"Turnyard-Fence": "1"},
        {"Idempotency-Key": " ", "Turnyard-Fence": "1"},
        {"Idempotency-Key": "k" * 256, "Turnyard-Fence": "1"},
        *({"Idempotency-Key": "k", "Turnyard-Fence": bad} for bad in ("-1", "1.5", "x", "", "٣", str(1 << 53), "9" * 5000)),
    ],
)
def test_a_request_that_does_not_say_which_attempt_it_is_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        read_claim(headers)


def test_what_runs_outside_its_turn_comes_after_what_ran_in_it() -> None:
    assert lifted_fence(1) > turn_fence(1_000_000_000)
    assert lifted_fence(2) > lifted_fence(1)
