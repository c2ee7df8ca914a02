"""A whole is divided over shards, and is never exceeded, not even while its parts change."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnyard.state import shares
from turnyard.state.fleet import Beat
from workers.rooms import Rooms

wholes = st.integers(0, 60)
some = st.lists(st.integers(0, 30), min_size=1, max_size=8)


@given(wholes, some, st.integers(0, 3), st.integers(0, 9))
def test_the_parts_are_the_whole_and_nobody_goes_short_while_another_has_more_than_it_wants(
    whole: int, wants: list[int], floor: int, turn: int
) -> None:
    parts = shares.divide(whole, wants, floor=floor, turn=turn)
    assert sum(parts) == whole
    assert min(parts) >= min(floor, whole // len(parts))
    floor = min(floor, whole // len(parts))
    short = [part for part, want in zip(parts, wants, strict=True) if part < want]
    spare = [part for part, want in zip(parts, wants, strict=True) if part > max(want, floor)]
    assert not (short and spare)
    if short:
        assert max(*short, floor) - min(short) <= 1 or floor > 1


def test_where_it_does_not_come_out_even_everybody_is_first_in_turn() -> None:
    assert {shares.divide(1, [1, 1, 1], turn=turn).index(1) for turn in range(3)} == {0, 1, 2}


def test_parts_that_serve_everybody_stay_as_they_are() -> None:
    assert shares.next_parts(10, [7, 3], [1, 2], [5, 3], floor=1) == [7, 3]
    assert shares.next_parts(10, [7, 3], [1, 2], [5, 4], floor=1) == [6, 4]
    assert shares.next_parts(8, [7, 3], [1, 2], [1, 2], floor=1) == [4, 4]


@given(st.integers(0, 40), st.integers(1, 6), st.integers(0, 2**32))
def test_no_order_of_lowering_and_raising_and_no_change_of_the_whole_lets_the_parts_exceed_it(whole: int, count: int, seed: int) -> None:
    rnd = random.Random(seed)
    parts, used = [0] * count, [0] * count
    for step in range(30):
        if rnd.random() < 0.2:
            whole = rnd.randint(0, 40)
        wants = [rnd.randint(0, 20) for _ in range(count)]
        # turns end; others begin within the parts
        used = [rnd.randint(0, max(part, busy)) if rnd.random() < 0.5 else busy for part, busy in zip(parts, used, strict=True)]
        busy = sum(max(p, u) for p, u in zip(parts, used, strict=True))
        target = shares.next_parts(whole, parts, used, wants, turn=step)
        parts = shares.lowered(parts, target)
        assert sum(max(p, u) for p, u in zip(parts, used, strict=True)) <= max(whole, sum(used)) <= max(busy, whole)
        held = sum(max(p, u) for p, u in zip(parts, used, strict=True))
        parts = shares.raised(whole, parts, used, target)
        assert sum(max(p, u) for p, u in zip(parts, used, strict=True)) <= max(held, whole)
        if sum(used) <= whole:
            assert sum(parts) <= whole


@pytest.mark.parametrize("whole", [1, 3, 16, 100])
def test_a_child_is_counted_once_whatever_is_lost_between_it_and_the_shards(whole: int) -> None:
    rnd = random.Random(whole)
    count = 16
    rooms = Rooms(whole, count, "0badcafe")
    known = list(rooms.parts)
    held = [0] * count
    assert sum(known) == whole
    for _ in range(200):
        held = [rnd.randint(0, part) if rnd.random() < 0.5 else min(was, part) for part, was in zip(known, held, strict=True)]
        asked = rooms.ask()
        answered = rnd.random() < 0.8
        for i in range(count):
            if answered or rnd.random() < 0.5:
                known[i] = max(asked[i], held[i])
                assert sum(known) <= whole
        if answered:
            waiting = [rnd.choice([0, 0, 0, 5]) for _ in range(count)]
            rooms.heard([Beat(False, room=known[i], held=held[i], waiting=waiting[i]) for i in range(count)])


def test_room_goes_where_sessions_wait_for_it() -> None:
    rooms = Rooms(20, 4, "00000000")
    assert rooms.parts == [5, 5, 5, 5]
    for _ in range(3):
        asked = rooms.ask()
        rooms.heard(
            [Beat(False, room=room, held=min(5, room) if i == 0 else 0, waiting=30 if i == 0 else 0) for i, room in enumerate(asked)]
        )
    assert rooms.parts[0] >= 17
    assert min(rooms.parts) == 1
