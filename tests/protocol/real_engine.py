"""The engine that ships, in the place of the model's: it sees what a worker sees, and its commits go to the model's scripts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.protocol import model
from tests.protocol.actors.engine import Request, blank, calls_for
from tests.protocol.actors.world import LIFT
from tests.protocol.model import Rules, State
from turnyard.engine.effects import AskModel, Effect, ModelAnswer, Parked, Result, RunBatch, RunTool, ToolFact, ToolResult, ToolTable
from turnyard.engine.turn import commit_after, next_effect
from turnyard.ports import AskedCall, Done
from turnyard.records.commit import Answer, CallKind, Commit, Row, Say, TurnView
from turnyard.records.log import ASSISTANT, CALL, NOTICE, RESULT, USER, LogRecord

_TYPES = {"user": USER, "notice": NOTICE, "result": RESULT, "note": RESULT}
_OUTCOMES = {"result": "ok", "error": "ok"}


@dataclass
class RealEngine:
    """Plans as the shipped engine does. `outside` is the kind of calls that the model launches without running them:
    a child, or a callback, whose body runs first and then parks."""

    outside: CallKind
    parallel: int
    effects: dict[str, int] = field(default_factory=dict[str, int])

    def facts(self) -> dict[str, ToolFact]:
        """Return what the model's kinds of calls are here."""
        return {
            "tool": ToolFact("plain"),
            "par": ToolFact("parallel"),
            "det": ToolFact(self.outside),
            "aw": ToolFact(self.outside, awaited=True),
            "ap": ToolFact("approval", awaited=True),
            "lo": ToolFact("plain"),  # which it runs to the end
            "li": ToolFact("lift", awaited=True, idempotent=True),
            "ln": ToolFact("lift", awaited=True),
            "ld": ToolFact("lift", idempotent=True),
        }

    def plan(self, env: State, rules: Rules, owner: str, sid: str, job: State) -> Request:
        """Return the next commit of this turn, after performing its effect; what `actors/engine.py` answers, too."""
        view = self.view(sid, job)
        table = ToolTable(tools=self.facts(), parallel=self.parallel)
        effect = next_effect(view, table)
        self.effects[type(effect).__name__] = self.effects.get(type(effect).__name__, 0) + 1
        if isinstance(effect, RunBatch):
            effect = effect.calls[-1 if job.get("pick") else 0]
        asked = self.asked(env, job) if isinstance(effect, AskModel) else []
        # the kinds of a batch are given: plain calls of one answer must not become parallel ones here
        declaring = ToolTable(tools=self.facts()) if asked else table
        commit = commit_after(view, effect, result=self.perform(env, job, effect, asked), facts=declaring)
        return self.request(env, job, blank(rules, owner, sid, job), commit, asked)

    def view(self, sid: str, job: State) -> TurnView:
        """Return what the worker knows, in the engine's words."""
        facts = self.facts()
        entries: list[LogRecord] = []
        for entry in job["view"]:
            if entry["kind"] != "event" and not entry.get("struck"):
                entries += _records(entry, job["rows"])
        rows = tuple(_row(call, job["rows"][call], facts) for call in model.unanswered(job["view"]))
        return TurnView(
            "OK",
            sid,
            "s",
            str(job["turn"]),
            job["epoch"],
            job["step"],
            tuple(entries),
            rows,
            frozenset(job["marks"]),
            "user" if job["cancel"] else None,
            yield_=bool(job.get("quantum")),
            drain=bool(job.get("drain")),
        )

    def asked(self, env: State, job: State) -> list[list[str]]:
        """Return what the model asks for: [call id of the model, kind]."""
        view = job["view"]
        last = max([i for i, entry in enumerate(view) if entry["kind"] == "assistant"], default=-1)
        new = [e for e in view[last + 1 :] if e["kind"] == "user" and not e.get("struck")]
        return [call for entry in new for call in calls_for(env, view, entry["mid"])]

    def perform(self, env: State, job: State, effect: Effect, asked: list[list[str]]) -> Result:
        """Do the effect: count the run of a tool, hand a token out, or let the model answer."""
        if isinstance(effect, AskModel):
            return ModelAnswer(Done("" if asked else "said", tuple(AskedCall("", kind, "{}") for _, kind in asked)))
        if not isinstance(effect, RunTool):
            return None
        call = effect.row.call
        if job["rows"][call]["kind"] in ("det", "aw"):
            env["tokens"].setdefault(call, "out")
            return Parked("launched")
        env["effects"][call] = env["effects"].get(call, 0) + 1
        return ToolResult("ok")

    def request(self, env: State, job: State, request: Request, commit: Commit, asked: list[list[str]]) -> Request:
        """Return the commit as the model's scripts take it."""
        names: dict[str, str] = {}
        for part in commit.append:
            if isinstance(part, Say):
                names = {made.id: call for made, (call, _) in zip(part.calls, asked, strict=True)}
                request["append"].append({"kind": "assistant", "calls": asked})
            elif isinstance(part, Answer):
                request["append"].append({"kind": "result", "call": part.call, "outcome": _OUTCOMES.get(part.outcome, part.outcome)})
        for park in commit.park:
            row = job["rows"][park.call]
            if row["outcome"] is None and row["state"] in ("open", "started") and row["kind"] not in LIFT:
                # what was interrupted before its token went out is answered by its deadline, which is a vendor's answer here
                env["tokens"].setdefault(park.call, "out")
            request["parks"].append(park.call)
        request["starts"] = [names.get(call, call) for call in commit.start]
        request["settle"] = [[answer.call, _OUTCOMES.get(answer.outcome, answer.outcome)] for answer in commit.settle]
        request.update(claim=commit.claim, ending=commit.ending)
        if commit.closing:
            request["closing"] = True
        if commit.ending == "yield":
            request["unstart"] = list(commit.unstart)
        return request


def _records(entry: State, rows: State) -> list[LogRecord]:
    seq, turn = entry["seq"], str(entry["turn"])
    if entry["kind"] != "assistant":
        fields: dict[str, Any] = {"call": entry.get("call"), "outcome": entry.get("outcome")}
        return [LogRecord(seq, _TYPES[entry["kind"]], turn=turn, aside=entry["kind"] == "note", **fields)]
    calls = [LogRecord(seq, CALL, turn=turn, call=c, body={"name": rows[c]["kind"] if c in rows else "tool"}) for c in entry["calls"]]
    return [LogRecord(seq, ASSISTANT, turn=turn), *calls]


def _row(call: str, row: State, facts: dict[str, ToolFact]) -> Row:
    fact = facts[row["kind"]]
    return Row(call, fact.kind, row["state"], row["awaited"], row["outcome"], row["demoted"], fact.idempotent, row["decision"])
