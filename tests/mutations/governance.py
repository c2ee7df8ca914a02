"""What the rules on calls would be without one of their rules: who wins, what is asked, what runs and what a hook may do."""

from __future__ import annotations

from tests.mutations.mutation import Edit, Mutation

_POLICY, _JUDGE, _BATCH = "turnyard/tools/policy.py", "turnyard/app/policies.py", "turnyard/engine/batch.py"
_OPEN, _ASKED, _TURN = "turnyard/engine/open_calls.py", "turnyard/engine/approving.py", "turnyard/engine/turn.py"
_MERGE, _RULES = "tests/unit/tools/test_policy.py", "tests/unit/test_policies.py"
_LOCAL, _HOOKS = "tests/unit/engine/test_local_approvals.py", "tests/unit/test_hooks.py"


def _without(name: str, edit: Edit, tests: str) -> Mutation:
    return Mutation(f"rules on calls: {name}", (edit,), (tests,))


MUTATIONS = [
    _without(
        "a question beats a denial", Edit(_POLICY, "    if denials:\n", "    if denials and len(denials) == len(verdicts):\n"), _MERGE
    ),
    _without("two globs that overlap are one", Edit(_POLICY, "    if not _GLOB & set(entry):\n", "    if True:\n"), _MERGE),
    _without("where nobody is named anyone may decide", Edit(_POLICY, "return tuple(kept) or None", "return tuple(kept)"), _MERGE),
    _without("a grant lifts whatever asks", Edit(_POLICY, "if granted and remember:", "if granted:"), _MERGE),
    _without("a rule that fails allows", Edit(_JUDGE, 'return Ask("the rule of this tool could not be evaluated")', "return None"), _RULES),
    _without(
        "a policy that fails allows", Edit(_JUDGE, 'raise PolicyFailed(f"the policy {name} raised") from error', "return None"), _RULES
    ),
    _without("names are for show", Edit(_JUDGE, "if call.name != READ_ENTRY and not self.rules.names.has(name):", "if False:"), _RULES),
    _without(
        "what people edit is not judged again",
        Edit(_BATCH, '    if judgement.decision == "deny":\n        return _answered', "    if False:\n        return _answered"),
        _LOCAL,
    ),
    _without(
        "what people edit does not run",
        Edit(_OPEN, 'return (self.body.get("args") or {}) if given is None else given', 'return self.body.get("args") or {}'),
        _LOCAL,
    ),
    _without(
        "what is shown is not what runs",
        Edit(_ASKED, '"tool": name, "args": args, "hash"', '"tool": name, "args": dict.fromkeys(args), "hash"'),
        _LOCAL,
    ),
    _without(
        "a hook that raises leaves calls open",
        Edit(_TURN, "append=(answer,), closing=True)", "append=(answer,))"),
        _HOOKS,
    ),
    _without(
        "what a call gave is not shown to hooks",
        Edit(
            "turnyard/app/calls.py", "return read_outcome(await after_tool(self.hooks, ctx, call, outcome))", "return read_outcome(outcome)"
        ),
        _HOOKS,
    ),
]
