"""In which order, and how many at a time, a queue gives out its messages."""

from __future__ import annotations

from threading import Thread

from hypothesis import given
from hypothesis import strategies as st

from turnyard.engine.queues import Drain, MessageQueue


@given(st.sampled_from(["one", "all"]), st.lists(st.one_of(st.integers(), st.none())))
def test_a_queue_gives_out_the_oldest_or_all_and_nothing_when_it_is_empty(mode: Drain, steps: list[int | None]) -> None:
    queue, held = MessageQueue(mode), list[dict[str, int]]()
    for step in steps:
        if step is not None:
            held.append({"n": step})
            queue.enqueue({"n": step})
        else:
            due = held[:1] if mode == "one" else held[:]
            assert queue.drain() == due
            del held[: len(due)]
        assert len(queue) == len(held)


def test_a_queue_that_is_cleared_holds_nothing_and_can_be_filled_again() -> None:
    queue = MessageQueue()
    queue.enqueue({"text": "a"})
    queue.clear()
    assert queue.drain() == []
    queue.enqueue({"text": "b"})
    assert queue.drain() == [{"text": "b"}]


def test_a_queue_that_threads_fill_and_empty_gives_out_each_message_once() -> None:
    queue, taken = MessageQueue("all"), list[int]()

    def fill(first: int) -> None:
        for n in range(first, first + 500):
            queue.enqueue({"n": n})

    def empty() -> None:
        for _ in range(500):
            taken.extend(body["n"] for body in queue.drain())

    threads = [Thread(target=fill, args=(0,)), Thread(target=fill, args=(500,)), Thread(target=empty), Thread(target=empty)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken.extend(body["n"] for body in queue.drain())
    assert sorted(taken) == list(range(1000))
