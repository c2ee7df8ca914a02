"""Every switch of the model, off: in the model, where a search must find what breaks, and in the sources, where a test must."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.mutations.mutation import Edit, Mutation, lua
from tests.protocol.configs import BREAKS, CONFIGS, TOGETHER
from tests.protocol.search import search

MOST_STATES = 2_000
BATCH = "turnyard/engine/batch.py"


def switched_off(rule: str) -> Callable[[], str | None]:
    """Return a search for what goes wrong in the model without the rule; it answers with what it found, or None."""
    return partial(_search, rule)


def _search(rule: str) -> str | None:
    for world in BREAKS[rule].split():
        found = search(CONFIGS[world], off=(rule, *TOGETHER.get(rule, ())), max_states=MOST_STATES, drain_every=1)
        if found.bad:
            return f"a search of the world {world}: {found.bad}"
    return None


def trap(number: int, *edits: Edit) -> tuple[tuple[Edit, ...], tuple[str, ...]]:
    """Return edits, and the walk into a trap that must notice."""
    return edits, ("tests/protocol/test_traps.py", "-k", f"come_out and trap-{number}")


def walks(*edits: Edit) -> tuple[tuple[Edit, ...], tuple[str, ...]]:
    """Return edits that random walks beside the model must notice."""
    return edits, ("tests/protocol/test_differential.py", "-k", "every_step")


def script(by: str, *edits: Edit) -> tuple[tuple[Edit, ...], tuple[str, ...]]:
    """Return edits, and the test `file::test` of tests/protocol that must notice."""
    file, _, test = by.partition("::")
    return edits, (f"tests/protocol/test_{file}.py::{test}",)


def unit(by: str, *edits: Edit) -> tuple[tuple[Edit, ...], tuple[str, ...]]:
    """Return edits, and the test of the engine that must notice."""
    return edits, (f"tests/unit/engine/{by}",)


_EDITS = {
    "park_zero": trap(43, lua("lib/append", "  if h.aw == 0 then\n    claim(h)\n    return 'none'\n  end\n", "")),
    "rows_first": walks(lua("lib/claim", "  if h.pe ~= '' then settled_rows(h) end\n", "")),
    "begin_between": trap(47, lua("lib/claim", "  if h.pe ~= '' then return end\n", "")),
    "begin_next": trap(48, lua("lib/claim", "  if not wakes(h) then\n    local it =", "  if false then\n    local it =")),
    "one_store": trap(50, lua("lib/items", "same = h.nj == 0 and (h.ib == '' or h.ib == it.st)", "same = true")),
    "interrupt_inbox": trap(49, lua("lib/arrive", "    mode = 'steer'\n", "    mode = 'follow_up'\n")),
    "cancel_no_claim": trap(49, lua("lib/append", "wakes(h) and not closing and not tired", "wakes(h) and not tired")),
    "park_cancel": walks(lua("lib/append", "  if closing then return 'none' end\n", "")),
    "fence_owner": trap(7, lua("commit", "h.ow ~= owner or ", "")),
    "fence_state": trap(
        51,
        lua("commit", "h.st ~= 'running' or ", ""),
        lua("lib/admit", "  set(h, 'ow', '')\n", ""),
    ),
    "beat_xx": trap(
        54,
        lua(
            "beat",
            "  if not score or score == '-inf' then return {'LOST'} end\n  call('ZADD', WORKERS, 'XX', 'GT',",
            "  call('ZADD', WORKERS,",
        ),
    ),
    "begin_live": trap(52, lua("begin", "  if not lease or lease == '-inf' then return {'FENCED'} end\n", "")),
    "dying": script(
        "script_tick::test_a_dead_worker_with_more_than_a_hundred_turns_is_expelled_in_parts_that_may_stop_anywhere",
        lua("lib/upkeep", "if call('SCARD', key) == 0 then", "if true then"),
    ),
    "allowed": trap(55, lua("lib/rows", "r.s, r.aw = 'allowed', 0", "r.s, r.aw = 'started', 0")),
    "unstart": trap(56, lua("commit", "  unstart_rows(a.unstart or {})\n", "")),
    "count_parked": trap(
        44,
        lua(
            "lib/append",
            "      calls[#calls + 1] = c.id\n",
            "      if c.aw == 1 then add(h, 'aw', 1) end\n      calls[#calls + 1] = c.id\n",
        ),
        lua("lib/append", "  if r.aw == 1 and r.de ~= 1 then add(h, 'aw', 1) end\n", ""),
    ),
    "cas_awaiting": walks(
        lua(
            "lib/rows",
            "    if r.aw == 1 then add(h, 'aw', -1) end\n    waits_no_more(h, r)\n    if only_wakes",
            "    waits_no_more(h, r)\n    if only_wakes",
        ),
    ),
    "new_turn": trap(
        58,
        lua("lib/append", "  local store, goes_on = h.ts,", "  local same = h.tu\n  local store, goes_on = h.ts,"),
        lua("lib/append", "    set(h, 'tu', turn)\n", "    set(h, 'tu', same)\n"),
    ),
    "row_turn": trap(59, lua("lib/cancel", "function(r) return r.t == turn end", "function(r) return true end")),
    "ready_empty": trap(
        61, lua("lib/cancel", "if h.st == 'ready' and h.tu == '' and not wakes(h) and not next_due(h) then", "if false then")
    ),
    "queue_supersede": script(
        "script_dispatch::test_a_message_that_waits_for_a_turn_of_its_own_leaves_a_parked_approval_open",
        lua("lib/arrive", "local joined = mode == 'steer' and", "local joined ="),
    ),
    "finish_awaits": script(
        "script_commit::test_finish_is_refused_while_an_awaited_call_is_parked",
        lua("commit", "then return {'AWAITS'} end", "then end"),
    ),
    "demote_parked": trap(
        57,
        lua(
            "lib/cancel",
            "  for _, c in ipairs(waiting(h, h.ts)) do\n    local r = row(h, h.ts, c)\n    if r and r.aw == 1 and r.s == 'parked' then",
            "  for _, c in ipairs(split(h.pe)) do\n    local r = row(h, h.ts, c)\n    if r and r.aw == 1 then",
        ),
    ),
    "cancel_open": trap(60, lua("lib/cancel", "  job_open(r, -1)\n  finish_waiting(h, r, cause)\n", "")),
    "displaced": walks(lua("lib/items", "  it.sj = '1'\n", "")),
    "lift_release": script(
        "script_begin_row::test_a_tasks_outcome_frees_its_worker_of_the_row",
        lua("accept", "if owner ~= '' and r.tk == owner and r.tj == task then drop_task(h, r) end", ""),
    ),
    "lift_try": trap(64, lua("lib/outside", "  r.re, r.nb = r.re + 1, nil\n", "  r.nb = nil\n")),
    "lift_again": script(
        "script_tick::test_a_lifted_task_that_nobody_began_is_relayed_again_and_never_called_unknown",
        lua("lib/append", "    call('ZADD', DEADLINES, NOW + relay_wait(r.re), relay_member(h, r))\n", ""),
    ),
    "lift_job": trap(69, lua("begin_row", "r.tk and not (r.tk == owner and r.tj == task)", "r.tk and r.tk ~= owner")),
    "lane_parked": script(
        "review_relays::test_a_lift_behind_a_plain_call_is_relayed_when_it_is_parked_and_not_before",
        Edit("platforms/lifts.py", "import CALLED_OFF, PARKED, RELAYED", "import CALLED_OFF, CALL as PARKED, RELAYED"),
    ),
    "lift_bound": script(
        "script_tick::test_a_dead_lifted_workers_idempotent_task_is_relayed_again_up_to_a_bound",
        lua("lib/upkeep", "repeats and r.tr < TRIES", "repeats"),
    ),
    "lift_owner": trap(23, lua("begin_row", "r.tk and not (r.tk == owner and r.tj == task)", "false")),
    "collect_closed": trap(70, lua("lib/arrive", "  if due0 and due0 <= NOW then due = due0 end\n", "")),
    "collect_group": walks(lua("lib/claim", "if x.eid == it.eid or (it.g and x.g and x.st == it.st) then", "if x.eid == it.eid then")),
    "dl_member": walks(lua("lib/flows", "return 's!' .. h.sid .. '!' .. (it.g and 'c' .. it.st or it.m) end", "return 's!' .. h.sid end")),
    "par_rows": trap(72, lua("commit", "  settle_rows(a.settle or {})\n", "")),
    "pause_gate": script(
        "pauses::test_a_paused_session_stays_out_of_its_flow_until_it_is_resumed",
        lua("lib/flows", "  if h.pz == '1' and not cancelled(h) then", "  if false then"),
    ),
    "pause_close": script(
        "pauses::test_a_cancelled_turn_of_a_paused_session_is_closed_all_the_same",
        lua("lib/flows", "  if h.pz == '1' and not cancelled(h) then", "  if h.pz == '1' then"),
    ),
    "pause_assigned": trap(77, lua("lib/arrive", "elseif h.st == 'assigned' and not cancelled(h) then", "elseif false then")),
    "strike_kept": trap(73, lua("lib/cancel", "set(h, 'ck', how.strike or again and h.ck or '')", "set(h, 'ck', how.strike or '')")),
    "strike_own": trap(74, lua("lib/append", "  return r and r.t == h.tu\n", "  return true\n")),
    "strike_note": trap(75, lua("lib/claim", "  if r and r.sk == 1 then", "  if false then")),
    "strike_other": trap(74, lua("lib/append", "elseif e.t == 'user/message' and e.f == 'o' then", "elseif false then")),
    "notice_store": trap(76, lua("lib/items", "if body and not replaced and x.st == store then", "if body and not replaced then")),
    "list_version": script(
        "traps_of_shares::test_a_turn_of_a_newer_agent_is_offered_to_no_worker_with_an_older_one",
        lua("lib/admit", "  if not newer then return '0' end\n", "  if true then return '0' end\n"),
    ),
    "entry_seq": walks(lua("commit", "local _, le = seqs(h, h.ts)", "local le = seqs(h, h.ts)")),
    "dead_letter": trap(
        65, lua("dispatch", "  if not APPLY[e.kind] or e.v ~= '1' or not e.sid or #e.sid ~= 26 then return false end\n", "")
    ),
    "job_leaves": script(
        "script_cancel::test_a_queued_job_whose_cancel_was_accepted_never_starts_although_nobody_drained_since",
        lua("accept", "  if v[1] == 'queued' then\n", "  if false then\n"),
    ),
    "cancel_all": script(
        "script_cancel::test_a_cancel_of_all_takes_the_turn_and_every_message_that_waits_and_no_later_one",
        lua("accept", "    clear_queues(h, m.ca)\n", ""),
    ),
    "retry_stays": script(
        "script_waiting::test_a_delay_stays_when_the_asker_writes_and_both_are_seen_when_it_is_over",
        lua("lib/cancel", "elseif wrote.asker and not only_wakes(r) then", "elseif wrote.asker then"),
    ),
    "ask_own": script(
        "approval_races::test_a_message_of_somebody_else_waits_behind_what_is_asked",
        lua("lib/cancel", "if gives_way(r, wrote) then settle", "if true then settle"),
    ),
    "park_kind": script(
        "parked_kinds::test_an_approved_call_is_lifted_and_holds_its_turn_where_that_was_asked",
        lua("lib/append", "  r.k = more.k or", "  r.k = r.k or"),
    ),
    "long_task": script(
        "script_waiting::test_the_worker_of_a_call_it_let_go_of_dies_and_the_outcome_is_unknown",
        lua("lib/append", "  call('SADD', P .. 'w:' .. h.ow, call_member(h, r))\n", ""),
    ),
    "long_again": script(
        "script_waiting::test_an_idempotent_call_whose_worker_let_go_of_it_and_ends_is_run_again_as_a_lifted_one",
        lua("lib/upkeep", "local repeats = r.i == 1 or", "local repeats = r.k == 'lift' and r.i == 1 or"),
    ),
    "not_early": script(
        "script_outside::test_a_poll_is_handed_out_when_its_time_comes_and_not_when_it_is_parked",
        lua("lib/outside", " or r.nb and NOW < r.nb then", " then"),
    ),
    "later_lives": script(
        "script_outside::test_a_poll_goes_on_until_it_has_a_result_and_its_tries_count_deaths_alone",
        lua("lib/answers", "r.lj, r.tr, r.tm = task, 1, nil", "r.lj, r.tr, r.tm = task, r.tr + 1, nil"),
    ),
    "raw_kept": script(
        "script_answers::test_the_worker_that_reads_an_answer_dies_and_the_next_one_reads_the_same",
        lua(
            "begin_row", "  return {code, body_of", "  if mode == 'resolve' then r.wc = r.wc + 1 put_row(h, r) end\n  return {code, body_of"
        ),
    ),
    "raw_wakes": script(
        "script_answers::test_an_answer_is_read_by_a_task_and_what_that_says_is_the_result",
        lua("lib/answers", "  if r.s == 'parked' and r.nb then relay(h, r) end\n", ""),
    ),
    "raw_left": script(
        "script_answers::test_answers_are_read_in_order_one_task_at_a_time_until_one_is_final",
        lua("lib/answers", "else put_off(h, r, after) end", "else r.nb = r.dl put_row(h, r) end"),
    ),
    "raw_parks": script(
        "script_answers::test_an_answer_that_comes_before_the_call_is_parked_is_read_when_it_is",
        lua("lib/append", "    put_off(h, r, more.af)\n", "    r.nb = r.dl\n"),
    ),
    "state_fenced": script(
        "script_state::test_a_refused_commit_changes_nothing_not_even_the_state",
        lua("commit", "then return {'DIVERGED'} end\n", "then set(h, 'sb', 'x') return {'DIVERGED'} end\n"),
    ),
    "state_kept": script(
        "script_state::test_a_turn_that_waits_or_yields_keeps_its_state",
        lua("begin", "  set(h, 'ow', owner)\n", "  set(h, 'ow', owner)\n  set(h, 'sb', '')\n"),
    ),
    "state_ends": walks(lua("lib/ending", "  set(h, 'sb', '')\n", "")),
    "strike_folds": script(
        "script_folding::test_a_rollback_takes_the_turns_summaries_along_and_shows_what_they_hid_of_earlier_turns",
        lua("lib/append", ", ['session/compaction'] = true", ""),
    ),
    "strike_low": script(
        "script_folding::test_a_rollback_takes_the_turns_summaries_along_and_shows_what_they_hid_of_earlier_turns",
        lua("lib/append", "  if h.lb > 0 then set(h, 'lo:' .. h.ts, h.lb) end\n", ""),
    ),
    "base_entry": script(
        "script_commit::test_a_step_is_taken_although_events_came_since_the_last_entry",
        Edit("turnyard/state/turns.py", "last_seq=int(head[18]),", "last_seq=int(reply[5]),"),
    ),
    "approved_waits": unit(
        "test_batch.py::test_an_allowed_call_waits_for_what_is_waited_for_before_it",
        Edit(
            BATCH,
            "    if batch.runs(first) and any(c.held for c in before):",
            '    if batch.runs(first) and first.row.state != "allowed" and any(c.held for c in before):',
        ),
    ),
    "sequential": unit(
        "test_batch.py::test_nothing_runs_behind_a_call_that_is_waited_for",
        Edit(BATCH, "    if batch.runs(first) and any(c.held for c in before):", "    if False:"),
    ),
}
# The switch's counterpart in the sources.
COUNTERPARTS = {name: Mutation(name, edits, tests) for name, (edits, tests) in _EDITS.items()}
