"""What did a run with faults break, by what its processes wrote down and what the logs hold in the end?

Six counts, each a list of sentences: an accepted message that is in no log (lost) or in two places (doubled), a request
that a strict model would refuse or a torn log (unpaired), two owners of one session (overlaps), a slot that nobody
gives back (leaked), and input or output out of its order (reordered). Times are seconds of one clock that all share.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from turnyard.records.commit import PLACEHOLDER
from turnyard.records.log import CALL, RESOLVED, RESULT, STRIKE, TURN_END, USER, LogRecord
from turnyard.state.oracles.sessions import DONE
from turnyard.state.oracles.transcript import transcript_findings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from turnyard.state.oracles.events import Began, Committed, Delivered, Ending, History, Sent

# What a claim may put before another, by the place where it waits: input of one class keeps its order.
_CLASSES = {"steer": "inbox", "interrupt": "inbox", "rollback": "inbox", "reject": "inbox", "follow_up": "next", "collect": "window"}


_ANSWERED = frozenset({"succeeded", "failed"})
_DECISIONS = frozenset({"allow", "deny", "denied", "allowed"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was broken, in six lists; all empty is good news."""

    lost: list[str] = field(default_factory=list[str])
    doubled: list[str] = field(default_factory=list[str])
    unpaired: list[str] = field(default_factory=list[str])
    overlaps: list[str] = field(default_factory=list[str])
    leaked_slots: list[str] = field(default_factory=list[str])
    reordered: list[str] = field(default_factory=list[str])

    def line(self) -> str:
        """Return the counts as `lost=0 doubled=0 …`."""
        return " ".join(f"{name}={len(getattr(self, name))}" for name in self.__slots__)

    @property
    def clean(self) -> bool:
        """Tell whether nothing was broken."""
        return not any(getattr(self, name) for name in self.__slots__)


def judge(history: History, ending: Ending, *, lease_s: float) -> Verdict:
    """Return what was broken. `lease_s` is how long after its successor's begin a worker may still start a call."""
    return Verdict(
        lost=list(lost(history, ending)),
        doubled=list(doubled(history, ending)),
        unpaired=list(unpaired(history, ending)),
        overlaps=list(overlaps(history, lease_s=lease_s)),
        leaked_slots=[f"{slot} is still taken" for slot in ending.slots],
        reordered=list(reordered(history, ending)),
    )


def text_of(record: LogRecord) -> str:
    """Return what a user entry says."""
    return str(record.body.get("text", ""))


def _user_entries(ending: Ending) -> dict[str, list[tuple[str, int, LogRecord, bool]]]:
    """Return by message text where it stands: session, store, record, whether a strike took it out."""
    found: dict[str, list[tuple[str, int, LogRecord, bool]]] = defaultdict(list)
    for session, stores in ending.logs.items():
        for ordinal, records in enumerate(stores):
            struck = {seq for record in records if record.type == STRIKE for seq in record.seqs}
            for record in records:
                if record.type == USER:
                    found[text_of(record)].append((session, ordinal, record, record.seq in struck))
    return found


def lost(history: History, ending: Ending) -> Iterator[str]:
    """Yield what was accepted and is nowhere: messages, ends of jobs, outcomes, replies."""
    entries = _user_entries(ending)
    for sent in history.sent:
        if sent.code not in ("accepted", "duplicate"):
            continue
        state = ending.jobs.get(sent.job)
        if state not in DONE:
            yield f"{sent.marker}: its job {sent.job} is {state or 'gone'}"
        # One that was cancelled may have left its queue before anybody saw it.
        if state != "cancelled" and not any(session == sent.session for session, *_ in entries.get(sent.marker, ())):
            yield f"{sent.marker} was accepted and is in no log of {sent.session}"
    yield from _unfounded(ending)
    yield from _untold(ending)
    delivered = {item.id for item in history.delivered}
    yield from (f"reply {owed} was never delivered" for owed in ending.owed if owed not in delivered)


def _unfounded(ending: Ending) -> Iterator[str]:
    """Yield jobs that say they are done although no turn that had them has ended."""
    ended = {job for stores in ending.logs.values() for records in stores for r in records if r.type == TURN_END for job in r.jobs}
    yield from (
        f"job {job} is {state} and no turn of it has ended" for job, state in ending.jobs.items() if state in _ANSWERED and job not in ended
    )


def _untold(ending: Ending) -> Iterator[str]:
    """Yield outcomes that were taken and never told to the model; those of struck calls need not be."""
    for session, stores in ending.logs.items():
        for records in stores:
            struck = {seq for record in records if record.type == STRIKE for seq in record.seqs}
            dropped = {record.call for record in records if record.type == CALL and record.seq in struck} | ending.pending
            told = {(record.call, record.late) for record in records if record.type == RESULT and record.outcome != PLACEHOLDER}
            for record in records:
                told_as = (record.call, record.outcome == "late")
                if record.type == RESOLVED and record.outcome not in _DECISIONS and told_as not in told and record.call not in dropped:
                    yield f"{session}: {record.call} was resolved as {record.outcome} and no result of it is in the log"


def doubled(history: History, ending: Ending) -> Iterator[str]:
    """Yield messages that count twice, or in another session, and effects that may not be repeated and were."""
    yield from _doubled_entries(history, ending)
    for asked in history.asked:
        repeated = [
            f"{marker} was shown {n} times in one request of {asked.session}" for marker, n in Counter(asked.markers).items() if n > 1
        ]
        yield from repeated
    for (key, tool), count in Counter((ran.key, ran.tool) for ran in history.ran if not ran.repeatable).items():
        if count > 1:
            yield f"{tool} ran {count} times under {key}"


def _doubled_entries(history: History, ending: Ending) -> Iterator[str]:
    home = {sent.marker: sent.session for sent in history.sent}
    for marker, places in _user_entries(ending).items():
        if marker not in home:
            continue
        standing = [(session, ordinal, record.seq) for session, ordinal, record, struck in places if not struck]
        if len(standing) > 1:
            yield f"{marker} stands in {standing}"
        yield from (f"{marker} of {home[marker]} is in {session}" for session, *_ in places if session != home[marker])


def unpaired(history: History, ending: Ending) -> Iterator[str]:
    """Yield requests that a strict API refuses, and what is torn in the logs."""
    for asked in history.asked:
        for complaint in asked.complaints:
            yield f"{asked.session}: {complaint}"
    for session, stores in ending.logs.items():
        for records in stores:
            for finding in transcript_findings(session, records, pending=ending.pending):
                yield f"{session}: {finding.invariant}: {finding.detail}"


def overlaps(history: History, *, lease_s: float) -> Iterator[str]:
    """Yield commits of one number by two owners, epochs that fall, and calls that a fenced worker started."""
    yield from _commit_overlaps(history.committed)
    begins: dict[str, list[Began]] = defaultdict(list)
    for began in history.began:
        begins[began.session].append(began)
    for commit in history.committed:
        later = [b.epoch for b in begins[commit.session] if b.epoch > commit.epoch and b.at_s < commit.asked_s]
        if later and not commit.repeat:
            yield f"{commit.session}: commit {commit.rev} of epoch {commit.epoch} was taken after epoch {later[0]} had begun"
    for asked in history.asked:
        mine = [b for b in begins[asked.session] if b.pid == asked.pid and b.at_s <= asked.at_s]
        epoch = max((b.epoch for b in mine), default=None)
        if epoch is None:
            continue
        later = [b for b in begins[asked.session] if b.epoch > epoch and b.pid != asked.pid and b.at_s + lease_s < asked.at_s]
        if later:
            late_s = asked.at_s - min(b.at_s for b in later)
            yield f"{asked.session}: process {asked.pid} called its model in epoch {epoch}, {late_s:.1f} s after epoch {later[0].epoch} began"


def _commit_overlaps(commits: Sequence[Committed]) -> Iterator[str]:
    owners: dict[tuple[str, int], tuple[int, str]] = {}
    epochs: dict[tuple[str, int], str] = {}
    for commit in commits:
        first = owners.setdefault((commit.session, commit.rev), (commit.epoch, commit.owner))
        if first != (commit.epoch, commit.owner):
            yield f"{commit.session}: commit {commit.rev} was made by {first} and by {(commit.epoch, commit.owner)}"
        owner = epochs.setdefault((commit.session, commit.epoch), commit.owner)
        if owner != commit.owner:
            yield f"{commit.session}: epoch {commit.epoch} has two owners, {owner} and {commit.owner}"
    by_session: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for (session, rev), (epoch, _) in owners.items():
        by_session[session].append((rev, epoch))
    for session, made in by_session.items():
        for (rev, epoch), (after, later) in pairwise(sorted(made)):
            if later < epoch:
                yield f"{session}: commit {after} is of epoch {later}, commit {rev} before it of {epoch}"


def reordered(history: History, ending: Ending) -> Iterator[str]:
    """Yield messages that stand before one whose acceptance was answered before they were sent, and deliveries that go back."""
    entries = _user_entries(ending)
    lines: dict[tuple[str, int, str], list[tuple[Sent, int]]] = defaultdict(list)
    for sent in history.sent:
        places = entries.get(sent.marker, ())
        # What a rollback gave back to its asker stands where it was claimed again.
        if sent.code == "accepted" and not sent.delayed and len(places) == 1:
            session, ordinal, record, _ = places[0]
            lines[session, ordinal, _CLASSES[sent.mode]].append((sent, record.seq))
    for (session, _, _), line in lines.items():
        yield from _disorder(session, line)
    yield from _sent_back(history.delivered)


def _disorder(session: str, line: list[tuple[Sent, int]]) -> Iterator[str]:
    latest: Sent | None = None
    for sent, _ in sorted(line, key=lambda pair: pair[1]):
        if latest is not None and sent.answered_s < latest.asked_s:
            yield f"{session}: {sent.marker} was accepted before {latest.marker} was sent, and stands behind it"
        if latest is None or sent.asked_s > latest.asked_s:
            latest = sent


def _sent_back(delivered: Sequence[Delivered]) -> Iterator[str]:
    reached: dict[str, int] = {}
    seen: dict[str, tuple[str, int]] = {}
    known: dict[str, set[int]] = defaultdict(set)
    for item in delivered:
        first = seen.setdefault(item.id, (item.store, item.seq))
        if first != (item.store, item.seq):
            yield f"{item.store}: id {item.id} stands for {first} and for {(item.store, item.seq)}"
        if item.seq < reached.get(item.store, 0) and item.seq not in known[item.store]:
            yield f"{item.store}: record {item.seq} was delivered after {reached[item.store]}"
        known[item.store].add(item.seq)
        reached[item.store] = max(item.seq, reached.get(item.store, 0))
