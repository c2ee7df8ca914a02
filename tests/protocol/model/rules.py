"""Which rules make the protocol safe, one switch each.

On is the rule as the protocol states it; off is a plausible design without it. A rule earns its place by an interleaving that
goes wrong when it is off: test_search.py demands one for every switch.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

FIXES: dict[str, str] = {
    "park_zero": "commit(park) with awaiting = 0 goes on instead of parking",
    "rows_first": "a claim first writes the results of settled and demoted rows, then inbox (off: awaited outcomes travel in inbox)",
    "begin_between": "begin claims inbox only when no declared call is unanswered",
    "begin_next": "begin takes from next when nothing in inbox wakes",
    "one_store": "inbox holds items of one store, whatever the state",
    "interrupt_inbox": "interrupt = cancel, then inbox (off: front of next)",
    "cancel_no_claim": "a cancelled turn never claims and never goes on",
    "park_cancel": "commit(park) under a cancel does not park",
    "fence_owner": "the fence compares the owner, too: after a failover an epoch is minted twice",
    "fence_state": "the fence needs state running, admit clears owner",
    "beat_xx": "beat renews only a present incarnation",
    "begin_live": "begin checks that owner is in workers",
    "dying": "a dead worker stays findable until its set is empty",
    "allowed": "allow moves the row to allowed, not started",
    "unstart": "YIELD/CANCEL answers and yield leave no STARTED mark on a call that was not run",
    "count_parked": "awaiting counts a call from the commit that parks it, not from its declaration",
    "cas_awaiting": "awaiting moves with the outcome CAS, in the same script",
    "new_turn": "going on at finish ends the turn and opens a new one",
    "row_turn": "cancel touches only rows that its turn opened",
    "ready_empty": "a ready session with nothing left to do becomes idle",
    "queue_supersede": "only what goes to inbox supersedes or demotes",
    "finish_awaits": "finish with awaiting > 0 is refused unless it closes a cancelled turn",
    "demote_parked": "only a parked call is demoted; one that is still open is launched first (off: its placeholder may be written, and nobody launches it)",
    "cancel_open": "job.open drops when its call is cancelled, not when an aside is shown",
    "displaced": "a steer or result that had to go to next keeps its right to join: opening a turn of its store takes it, later ones queue behind it",
    "lift_release": "an outcome from a lifted task (accepted or refused), and a begin refused to the row's own owner, take the row out of w:<owner>",
    "lift_try": "every relay of a row has an arq job id of its own (arq refuses an id that it still knows); begin takes the first that comes",
    "lift_again": "a relayed row that nobody has begun is relayed again after a while",
    "lift_job": "a begun row names (owner, arq job id): another job of the same owner is refused, ALREADY only for the same one",
    "lane_parked": "an item of the arq lane is the record of the park (off: the tool/call record, which lies before the cursor while its row is open)",
    "lift_bound": "a lifted task that died 3 times is not relayed again",
    "lift_owner": "begin of a row needs its owner in workers and nobody else's task on it",
    "collect_closed": "a collect window that has closed stays closed: later ones join it until it is taken",
    "collect_group": "begin takes a collect window whole",
    "dl_member": "deadlines has one member per window or item, not one per session",
    "par_rows": "a parallel result lands in its row; after a take-over the batch completes from the rows",
    "pause_gate": "every way into a flow asks paused (tick, begin-by, yield, finish, wake, cancel)",
    "pause_close": "a cancelled turn is closed even while its session is paused",
    "pause_assigned": "pause takes an assignment back",
    "strike_kept": "a later cancel never removes the strike of a rollback",
    "strike_own": "a strike leaves what other turns' calls brought",
    "strike_note": "an item of a struck call is dropped at the claim, and its job is settled",
    "strike_other": "a strike leaves the messages of others than the asker of the rollback (they come back to inbox)",
    "notice_store": "a notice replaces only an unshown one of its own store; one of an older store is removed",
    "list_version": "an assignment goes to a list that only workers of the open turn's version or newer read, room counts only those",
    "entry_seq": "compare-and-set is on the last ENTRY seq",
    "dead_letter": "an ingress entry that cannot be read goes to dead, the drain goes on",
    "job_leaves": "a queued job ends in the script that accepts its cancel, wherever it lies (off: when the cancel is drained; begin may come first)",
    "cancel_all": "a cancel of all empties inbox and next, and voids what lies in ingress, in the script that accepts it",
    "retry_stays": "a retry delay stays when the asker writes",
    "ask_own": "what people are asked gives way to a message of its asker, or of anyone where it says so, and to no other",
    "park_kind": "a parked call is what it waits for now: one that asks first waits for people, an approved lift for its task",
    "long_task": "an effect that goes on after its call was let go of is a task of its worker: found when that dies, and told once",
    "long_again": "what its worker let go of is handed on when that dies, where it may be repeated",
    "not_early": "a call that is looked at again is nobody's before its time, whatever stale job comes for it",
    "later_lives": "a task that puts its call off has not died: only deaths in a row count",
    "raw_kept": "an answer counts as read when its reader says so (off: when somebody begins to read it)",
    "raw_wakes": "an answer hands its call out unless a task has it",
    "raw_left": "a task that lets go of its call hands it out again while answers wait",
    "raw_parks": "a call whose answer came before it was parked is handed out by the park",
    "state_fenced": "a turn's state is written by the commit that passes the fence, in the same script",
    "state_kept": "a turn's state is what its last commit left, whoever begins it next",
    "state_ends": "a turn's state ends with the turn",
    "strike_folds": "a strike takes the summaries of its turn along, and a struck summary hides nothing",
    "strike_low": "a strike sets back from where a begin reads",
    # The worker's side: what its engine must keep to.
    "base_entry": "a worker's base is the seq of its last ENTRY, never of an event (a failover loses events without moving rev)",
    "approved_waits": "an allowed call waits for the awaited calls before it, as a plain one does",
    "sequential": "a plain call never starts while an awaited call before it is open",
}


class Rules:
    """The protocol with the rules named in `off` switched off; each rule is a bool attribute named as in FIXES."""

    def __init__(self, off: Iterable[str] = ()) -> None:
        """Raise ValueError for a name that is no rule, so that a typo cannot pass as a mutation."""
        self.off = tuple(off)
        unknown = set(self.off) - FIXES.keys()
        if unknown:
            raise ValueError(f"no such rule: {sorted(unknown)}; the names are the keys of FIXES")
        for name in FIXES:
            setattr(self, name, name not in self.off)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> bool: ...
