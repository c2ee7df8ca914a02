"""What processes write down while a run with faults goes on, and what is left at its end.

Times are seconds of one clock that all processes share. A session is named the same in all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from turnyard.records.log import LogRecord


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that somebody submitted: when it was asked and when the answer came; `code` is `unknown` without one."""

    marker: str
    session: str
    mode: str
    code: str
    job: str
    asked_s: float
    answered_s: float
    delayed: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as a model got it: the markers it holds, each as often as it does, and what a strict API says of it."""

    session: str
    pid: int
    at_s: float
    markers: tuple[str, ...]
    complaints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ran:
    """A tool's body that began, under the key that stays the same when the call is repeated."""

    key: str
    tool: str
    repeatable: bool


@dataclass(frozen=True, slots=True)
class Began:
    """A turn that a worker got: `begin` answered OK or ALREADY."""

    session: str
    epoch: int
    owner: str
    pid: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that was answered OK, or ALREADY (`repeat`): `rev` is the number it has in its session, `asked_s` when it was sent."""

    session: str
    epoch: int
    owner: str
    rev: int
    asked_s: float
    repeat: bool = False


@dataclass(frozen=True, slots=True)
class Delivered:
    """A record that a sender handed over, under an id that stays the same when it is sent again."""

    store: str
    seq: int
    id: str


@dataclass(frozen=True, slots=True)
class History:
    """What all processes wrote down, each list in the order of its times."""

    sent: tuple[Sent, ...] = ()
    asked: tuple[Asked, ...] = ()
    ran: tuple[Ran, ...] = ()
    began: tuple[Began, ...] = ()
    committed: tuple[Committed, ...] = ()
    delivered: tuple[Delivered, ...] = ()


@dataclass(frozen=True, slots=True)
class Ending:
    """What is left when all has drained: logs by session and store, jobs by id, names of slots still taken.

    `pending` are calls of turns that are still open, which only a run that did not drain has; `owed` the ids under which
    what the logs say had to be delivered.
    """

    logs: Mapping[str, Sequence[Sequence[LogRecord]]]
    jobs: Mapping[str, str]
    slots: Sequence[str] = ()
    pending: frozenset[str] = frozenset()
    owed: frozenset[str] = frozenset()
