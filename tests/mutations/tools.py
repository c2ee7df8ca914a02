"""What tools would be without one of their rules: what they take, who lists them, where they go and what they tell a server."""

from __future__ import annotations

from tests.mutations.mutation import Edit, Mutation

_SCHEMA, _RAW, _TOOLBOX = "turnyard/tools/schema.py", "turnyard/tools/raw_schema.py", "turnyard/app/toolbox.py"
_OUTBOUND, _HTTP, _RUNNER = "turnyard/outbound.py", "turnyard/tools/builtin/http.py", "turnyard/engine/runner.py"


def _without(name: str, edit: Edit, tests: str) -> Mutation:
    return Mutation(f"tools: {name}", (edit,), (tests,))


_FUZZ = "tests/unit/tools/test_argument_fuzz.py"
_TYPED = "tests/unit/tools/test_typed.py"
_BOX = "tests/unit/tools/test_toolbox.py"
_OUT = "tests/unit/test_outbound.py"
_BUILTIN = "tests/unit/tools/test_builtin.py"

MUTATIONS = [
    _without("types are coerced", Edit(_SCHEMA, "strict=True, ", ""), _FUZZ),
    _without("unknown fields are taken", Edit(_SCHEMA, '"forbid" if self.closed else None', "None"), _TYPED),
    _without("true is a number", Edit(_SCHEMA, "misplaced(value, self._validate) if self.numbered else []", "[]"), _TYPED),
    _without("a refusal may be of any length", Edit(_SCHEMA, "if len(text) <= most else", "if True else"), _FUZZ),
    _without("a schema of somebody else's is not checked", Edit(_RAW, "    if faults:", "    if False:"), _FUZZ),
    _without(
        "a pattern may run for ever",
        Edit(_RAW, '{"pattern": _pattern_keyword(jsonschema.ValidationError)}', "{}"),
        "tests/unit/tools/test_raw_schema.py::test_a_pattern_that_could_run_for_ever_does_not",
    ),
    _without("the order of tools is that of their listing", Edit(_TOOLBOX, "sorted(found.items())", "found.items()"), _BOX),
    _without(
        "a provider that fails takes the others with it", Edit(_TOOLBOX, "except Exception as error:", "except ValueError as error:"), _BOX
    ),
    _without(
        "a changed list is not looked at",
        Edit(_TOOLBOX, "        await self.refresh()\n        return self._specs", "        return self._specs"),
        _BOX,
    ),
    _without(
        "an unknown name is not looked for",
        Edit(_RUNNER, "await self._look_up([call.name for call in calls])", "pass"),
        f"{_BOX}::test_a_tool_that_came_unannounced_is_found_when_it_is_called",
    ),
    _without(
        "a worker that resumes does not look which tools there are",
        Edit(_RUNNER, "await self._look_up([str(", "_ = ([str("),
        f"{_BOX}::test_a_tool_that_went_between_its_call_and_the_worker_that_resumes_says_so",
    ),
    _without("a request goes where the name leads by then", Edit(_OUTBOUND, "_aimed(request, addresses[-1])", "request"), _OUT),
    _without("one public address is enough", Edit(_OUTBOUND, "for address in found:", "for address in found[:1]:"), _OUT),
    _without("an address in another's clothes passes", Edit(_OUTBOUND, "    meant = _meant(address)", "    meant = address"), _OUT),
    _without(
        "a slow answer is waited for",
        Edit(_OUTBOUND, "asyncio.timeout(rules.timeout_s)", "asyncio.timeout(None)"),
        f"{_OUT}::test_an_answer_that_takes_too_long_is_given_up",
    ),
    _without("a tool may call any host", Edit(_HTTP, "        hosts=tuple(hosts),\n", ""), _BUILTIN),
    _without("a write does not say which attempt it is", Edit(_HTTP, "claim_headers(ctx))", "{})"), _BUILTIN),
    _without("a secret that comes back is shown", Edit(_HTTP, "text = text.replace(value", "text.replace(value"), _BUILTIN),
    _without(
        "a gate lets older attempts in",
        Edit("turnyard/fence.py", "return claim.fence >= before", "return True"),
        "tests/unit/test_fence.py",
    ),
]
