"""What the product's sources look like without one of their rules, and which tests must notice."""

from __future__ import annotations

from tests.mutations import governance, tools
from tests.mutations.mutation import Edit, Mutation, lua


def rule(name: str, *edits: Edit, by: str) -> Mutation:
    """Return a mutation that `by` notices: `file::test`, the file without `test_` and `.py` and its folder tests/protocol."""
    file, _, test = by.partition("::")
    path = f"tests/protocol/test_{file}.py" if "/" not in file else file
    return Mutation(name, edits, (f"{path}::{test}" if test else path,))


OWNERS = [
    rule(
        "commit does not compare the owner",
        lua("commit", "h.ow ~= owner or ", ""),
        by="script_commit::test_a_commit_is_refused_and_writes_nothing_for",
    ),
    rule(
        "commit does not compare the epoch",
        lua("commit", "h.ep ~= epoch or ", ""),
        by="script_commit::test_a_commit_is_refused_and_writes_nothing_for",
    ),
    rule(
        "commit does not ask for a lease",
        lua("commit", " or not lease or lease == '-inf'", ""),
        by="script_commit::test_a_commit_is_refused_and_writes_nothing_for",
    ),
    rule(
        "commit does not compare its number",
        lua("commit", "h.rv ~= k - 1 or ", ""),
        by="script_commit::test_a_commit_on_another_log_than_the_servers_diverges_and_writes_nothing",
    ),
    rule(
        "commit does not compare the last entry",
        lua("commit", " or h[le] ~= base", ""),
        by="script_commit::test_a_commit_on_another_log_than_the_servers_diverges_and_writes_nothing",
    ),
    rule(
        "begin gives a running turn to anybody",
        lua("begin", "if h.st == 'running' and h.ow == owner then", "if h.st == 'running' then"),
        by="script_begin::test_begin_is_refused_and_changes_nothing_for",
    ),
    rule(
        "begin does not compare the epoch",
        lua("begin", "if h.ep ~= epoch then return {'FENCED'} end", ""),
        by="script_begin::test_begin_is_refused_and_changes_nothing_for",
    ),
    rule(
        "an outcome frees the row of another task",
        lua("accept", "if owner ~= '' and r.tk == owner and r.tj == task then", "if owner ~= '' then"),
        by="script_begin_row::test_another_tasks_outcome_leaves_the_row_with_the_one_that_runs_it",
    ),
    rule(
        "a dead worker's turn is taken back whoever has it now",
        lua("lib/upkeep", "elseif h.st == 'running' and h.ow == owner then", "elseif h.st == 'running' then"),
        by="script_tick::test_a_worker_that_died_long_ago_takes_no_turn_from_the_one_that_has_it_now",
    ),
]
ORDER = [
    rule(
        "dispatch takes from the tail",
        lua(
            "dispatch", "call('XRANGE', KEYS[1], '-', '+', 'COUNT', limit + 1)", "call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', limit + 1)"
        ),
        by="script_dispatch::test_messages_become_one_turn_in_the_order_of_acceptance",
    ),
    rule(
        "dispatch removes what it has not applied",
        lua("dispatch", "    ids[i] = e.eid\n", "    ids[i] = e.eid\n    ids[i + 1] = batch[i + 1] and batch[i + 1][1]\n"),
        by="script_dispatch::test_one_call_applies_at_most_twenty_entries_and_says_that_more_wait",
    ),
    rule(
        "a claim ignores calls that are open",
        lua("lib/claim", "  if h.pe ~= '' then return end\n", ""),
        by="differential::test_the_server_takes_every_step_the_model_takes",
    ),
    rule(
        "a finish keeps its slot for what waits in next",
        lua("lib/append", "wakes(h) and not closing and not tired", "(wakes(h) or next_due(h)) and not closing and not tired"),
        by="script_commit::test_a_finish_gives_its_slot_back_before_what_waits_for_a_turn_of_its_own",
    ),
]
SLOTS = [
    rule(
        "slots are counted, and a begin-by forgets to count back",
        lua("lib/admit", "call('ZCARD', RUNNING)", "tonumber(limit('n') or 0)"),
        lua("lib/admit", "  set(h, 'st', 'assigned')\n", "  set(h, 'st', 'assigned')\n  count_limit('n', 1)\n"),
        lua(
            "lib/flows",
            "  if h.ow ~= '' then call('SREM'",
            "  if h.ow ~= '' then count_limit('n', -1) end\n  if h.ow ~= '' then call('SREM'",
        ),
        by="traps_of_shares::test_whatever_frees_a_slot_makes_the_next_dispatch_or_tick_give_it_away",
    ),
    rule(
        "a finish does not give its slot back",
        lua("lib/append", "  release(h)\n  set(h, 'st', 'idle')\n", "  set(h, 'st', 'idle')\n"),
        by="script_dispatch::test_never_more_turns_run_than_the_cap_and_no_slot_is_taken_at_rest",
    ),
    rule(
        "a park does not give its slot back",
        lua("lib/append", "  release(h)\n  set(h, 'st', 'parked')\n", "  set(h, 'st', 'parked')\n"),
        by="traps_of_shares::test_whatever_frees_a_slot_makes_the_next_dispatch_or_tick_give_it_away",
    ),
    rule(
        "a release leaves the resources taken",
        lua("lib/flows", "    call('SREM', P .. 'run:' .. res[i], h.sid)\n", ""),
        by="script_dispatch::test_a_cap_of_a_tenant_agent_or_pool_holds_and_its_slot_wakes_the_next",
    ),
    rule(
        "whoever comes waits behind a turn that needs a newer worker",
        lua("lib/admit", "    set_limit('n:' .. flow, 1)\n", ""),
        by="review_newer::test_a_session_that_any_worker_may_run_does_not_wait_behind_one_that_needs_a_newer_worker",
    ),
    rule(
        "a cancelled turn waits for a newer worker that nothing of it needs any more",
        lua("lib/cancel", "      offer(flow_of(h))\n", ""),
        by="review_newer::test_a_cancel_lets_a_turn_that_waits_for_a_newer_worker_be_closed_at_once",
    ),
    rule(
        "a freed slot is told to nobody",
        lua("lib/flows", "if call('EXISTS', FLOWS) == 1 then call('XADD', KEYS[1], '*', 'v', 1, 'kind', 'wake') end", ""),
        by="traps_of_shares::test_whatever_frees_a_slot_makes_the_next_dispatch_or_tick_give_it_away",
    ),
    rule(
        "admission charges nothing",
        lua("lib/admit", "local tag = start + est / tonumber(limit('wt:' .. h.tn) or 1)", "local tag = start"),
        by="traps_of_shares::test_free_slots_are_spread_over_the_tenants_that_wait",
    ),
    rule(
        "no quantum",
        lua("commit", "and others_wait(h)", "and false"),
        by="script_commit::test_a_turn_that_held_its_slot_for_the_quantum_is_asked_to_yield_only_while_others_wait",
    ),
]
TIME = [
    rule(
        "a repeat is known for five minutes",
        lua("accept", "call('EXPIRE', k, 2 * 86400)", "call('EXPIRE', k, 300)"),
        by="script_accept::test_a_repeat_is_still_known_after_a_day_and_a_half",
    ),
    rule(
        "nobody looks at deadlines",
        lua("tick", "asked('d') and past_deadlines() or 0", "0"),
        by="script_tick::test_a_deadline_settles_its_call_as_timeout_and_wakes_the_turn",
    ),
    rule(
        "no begin-by",
        lua("tick", "asked('b') and past_begin_by() or 0", "0"),
        by="script_tick::test_an_assignment_past_its_begin_by_comes_back_and_costs_no_attempt",
    ),
    rule(
        "no amnesty after a stall",
        lua("tick", "if limit('tick') and NOW - tonumber(limit('tick')) > 3 * tick_ms then amnesty = NOW + lease_ms end", ""),
        by="script_tick::test_after_a_stall_longer_than_a_lease_nobody_expires_until_a_lease_has_passed",
    ),
    rule(
        "nobody looks for workers past their lease",
        lua("tick", "call('ZRANGEBYSCORE', WORKERS, '(-inf', NOW, 'LIMIT', 0, 10)", "{}"),
        by="script_tick::test_a_worker_past_its_lease_is_expelled_and_one_within_it_is_not",
    ),
    rule(
        "a job goes a day after it was accepted",
        lua("accept", "  call('ZADD', P .. 'idx:' .. h.tn, NOW, h.sid)", "  call('EXPIRE', job_key(job), 86400)"),
        by="traps_on_server::test_a_job_that_was_parked_for_days_is_still_known_when_it_is_posted_again",
    ),
]
KEPT = [
    rule(
        "an ended job stays",
        lua("lib/jobs", "  call('EXPIRE', k, JOB_TTL)\n", ""),
        by="bounded_memory::test_at_constant_load_no_class_of_keys_grows",
    ),
    rule(
        "the row of a settled call stays",
        lua("lib/upkeep", "    call('HDEL', calls_key(h, ord), c, c .. ':r', c .. ':l', c .. ':q', c .. ':d')\n", ""),
        by="bounded_memory::test_at_constant_load_no_class_of_keys_grows",
    ),
    rule(
        "dead letters have no bound",
        lua("lib/letters", "  for _ = 1, 100 do\n", "  for _ = 1, 0 do\n"),
        by="bounded_memory::test_at_constant_load_no_class_of_keys_grows",
    ),
]
OUTCOMES = [
    rule(
        "every outcome wakes its turn",
        lua("lib/flows", "elseif h.st == 'parked' and h.aw == 0 then", "elseif h.st == 'parked' then"),
        by="differential::test_the_server_takes_every_step_the_model_takes",
    ),
    rule(
        "the last writer of an outcome wins",
        lua("accept", "  elseif r.o then\n", "  elseif false then\n"),
        lua("lib/rows", "  if r.o then return false end\n", ""),
        by="script_accept::test_of_many_outcomes_of_one_call_the_first_stands_and_is_injected_once",
    ),
    rule(
        "a repeated commit answers without content",
        lua("commit", "return answer(h, 'ALREADY', how, base)", "return answer(h, 'ALREADY', how, h[(seqs(h, h.ts))] or 0)"),
        by="script_commit::test_a_lost_answer_of_a_commit_that_claimed_brings_what_it_claimed",
    ),
    rule(
        "a repeated commit acts again",
        lua("commit", "if done == mark then return answer(h, 'ALREADY', how, base) end", ""),
        by="script_commit::test_a_repeat_answers_already_with_the_ending_that_was_taken_and_writes_nothing",
    ),
    rule(
        "a repeated begin answers without content",
        lua("begin", "return answer(h, 'ALREADY', nil, unseen(h))", "return answer(h, 'ALREADY', nil, h[(seqs(h, h.ts))] or 0)"),
        by="script_begin::test_a_lost_answer_of_begin_is_asked_for_again",
    ),
    rule(
        "another body under the same job is a duplicate",
        lua("accept", "was[1] == m.bh and 'duplicate' or 'mismatch'", "'duplicate'"),
        by="script_accept::test_the_same_job_with_another_body_is_a_mismatch",
    ),
    rule(
        "an outcome's secret is not compared",
        lua("accept", "if secret ~= '' and r.h ~= secret then return {'gone'} end", ""),
        by="script_accept::test_an_outcome_with_a_wrong_secret_or_for_no_row_is_gone",
    ),
    rule(
        "sent asks for no lease",
        lua("sent", "if not due or tonumber(due) ~= tonumber(lease) then return 0 end", ""),
        by="script_lanes::test_a_loan_that_was_not_given_back_ends_and_somebody_else_takes_it",
    ),
    rule(
        "a commit takes a lane from its sender",
        lua("commit", "'NX', NOW, sid", "NOW, sid"),
        by="script_lanes::test_a_commit_during_a_send_leaves_the_loan_and_the_rest_is_sent_afterwards",
    ),
    rule(
        "a call that another worker started is run again",
        Edit(
            "turnyard/engine/batch.py",
            'if call.row.state == "started":\n        return NoEffect(_answered',
            "if False:\n        return NoEffect(answer_commit",
        ),
        Edit("turnyard/engine/batch.py", 'or (call.row.state == "started" and call.row.idempotent)', 'or call.row.state == "started"'),
        by="tests/unit/engine/test_batch.py::test_an_interrupted_call_is_unknown_and_not_run",
    ),
    rule(
        "a call of a batch that another worker started is run again",
        Edit("turnyard/engine/batch.py", "and not batch.mine(call) and not call.row.idempotent", "and False"),
        by="tests/unit/engine/test_batch.py::test_an_interrupted_call_of_a_batch_is_unknown_and_the_others_keep_their_outcome",
    ),
    rule(
        "a dead worker's lifted task is relayed again whatever it is",
        lua("lib/upkeep", "local repeats = r.i == 1 or", "local repeats = true or"),
        by="script_tick::test_a_dead_lifted_workers_other_task_is_unknown_at_once",
    ),
]
OUTSIDE = [
    rule(
        "a tick leaves what more is due for the next one",
        Edit("turnyard/state/upkeep.py", "    while ticked.due >= _BATCH and not stopped():\n", "    while False:\n"),
        by="script_deadlines::test_more_deadlines_than_one_tick_meets_are_met_in_one_go",
    ),
    rule(
        "a call that is ripe times out",
        lua("lib/upkeep", "  if r.rp then\n", "  if false then\n"),
        by="script_reports::test_a_ripe_call_has_its_result_when_its_time_is_over",
    ),
    rule(
        "any number of answers may wait to be read",
        lua("lib/answers", "  if unread(r) >= MOST_RAW then return {'inbox_full', 0, 'raw'} end\n", ""),
        by="script_answers::test_the_same_answer_twice_is_kept_once_and_the_seventeenth_is_refused",
    ),
    rule(
        "an answer that waits is kept again",
        lua("lib/answers", "  if known_raw(r, digest, unread(r)) then return {'duplicate', 0, 'raw'} end\n", ""),
        by="script_answers::test_the_same_answer_twice_is_kept_once_and_the_seventeenth_is_refused",
    ),
    rule(
        "anybody puts a call off",
        lua("lib/answers", "local own = r.tk == owner and r.tj == task", "local own = r.tk ~= nil"),
        by="script_outside::test_a_late_word_that_a_call_is_not_done_changes_nothing",
    ),
    rule(
        "anybody may say that nobody knows how a call ended",
        lua("accept", "  if value == 'unknown' and not (r.tk == owner and r.tj == task) then return {'conflict', 0, r.o or ''} end\n", ""),
        by="script_reports::test_that_nobody_knows_how_a_call_ended_is_said_by_its_own_task_alone",
    ),
    rule(
        "what waited beside a call outlives its outcome",
        lua("lib/rows", "  if r.wn or r.rp or r.pg then drop_beside(h, r) end\n", ""),
        by="script_answers::test_what_waits_to_be_read_goes_when_the_call_ends_otherwise",
    ),
    rule(
        "each look begins a polls time anew",
        lua("begin_row", "  if mode == 'run' then\n", "  if true then\n    r.tm = r.tm or 3600000\n"),
        by="script_outside::test_a_poll_goes_on_until_it_has_a_result_and_its_tries_count_deaths_alone",
    ),
    rule(
        "a call that waits for its time is carried with whatever else is",
        Edit("platforms/lifts.py", ' and r.kind == "lift" and _relays(r))', ' and r.kind == "lift")'),
        by="script_outside::test_a_lift_of_the_same_session_does_not_hand_a_poll_out_early",
    ),
    rule(
        "reports come from anybody",
        lua("report", " or r.tk ~= ARGV[4] or r.tj ~= ARGV[5] then", " then"),
        by="script_reports::test_what_a_task_reports_stands_beside_its_row_until_the_call_ends",
    ),
    rule(
        "what a tool says is said again",
        lua(
            "accept",
            "local function say(h, id, bucket, turn, m)\n  if seen(id, bucket) then return {'duplicate'} end\n",
            "local function say(h, id, bucket, turn, m)\n",
        ),
        by="script_reports::test_what_a_tool_says_to_the_user_stands_in_the_log_once",
    ),
]
MUTATIONS = [*OUTSIDE, *OWNERS, *ORDER, *SLOTS, *TIME, *KEPT, *OUTCOMES, *tools.MUTATIONS, *governance.MUTATIONS]
