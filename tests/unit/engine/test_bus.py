"""Who is told of an event, and in which order."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from turnyard.engine.bus import AgentStart, Event, EventBus, TurnStart


def test_listeners_are_told_in_the_order_they_subscribed() -> None:
    bus, heard = EventBus(), list[str]()
    for name in "abc":
        bus.subscribe(lambda event, name=name: heard.append(f"{name} {event.type}"))
    bus.emit(AgentStart())
    assert heard == ["a agent_start", "b agent_start", "c agent_start"]


def test_to_unsubscribe_twice_takes_out_no_other_and_the_same_listener_may_listen_twice() -> None:
    bus, heard = EventBus(), list[Event]()
    listen = heard.append
    first = bus.subscribe(listen)
    bus.subscribe(listen)
    first()
    first()
    bus.emit(TurnStart())
    assert heard == [TurnStart()]


def test_who_subscribes_or_leaves_while_an_event_is_told_matters_from_the_next_one_on() -> None:
    bus, heard = EventBus(), list[str]()
    leave: list[Callable[[], None]] = []

    def first(event: Event) -> None:
        heard.append("first")
        leave.pop()()
        bus.subscribe(lambda event: heard.append("third"))

    bus.subscribe(first)
    leave.append(lambda: None)
    leave.append(bus.subscribe(lambda event: heard.append("second")))
    bus.emit(AgentStart())
    assert heard == ["first", "second"]
    bus.emit(AgentStart())
    assert heard == ["first", "second", "first", "third"]


def test_a_listener_that_raises_is_logged_and_the_others_are_told(caplog: pytest.LogCaptureFixture) -> None:
    bus, heard = EventBus(), list[Event]()

    def broken(event: Event) -> None:
        raise ZeroDivisionError

    bus.subscribe(broken)
    bus.subscribe(heard.append)
    with caplog.at_level(logging.ERROR, logger="turnyard.engine"):
        bus.emit(AgentStart())
    assert heard == [AgentStart()]
    assert "a listener failed on agent_start" in caplog.text
