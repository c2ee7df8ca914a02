"""How large texts, messages and budgets are said to be."""

from __future__ import annotations

import pytest

from tests.unit.engine.logs import user
from turnyard.engine.shaper import Built, Shaper, ShaperPolicy
from turnyard.engine.tokens import IMAGE_TOKENS, MESSAGE_TOKENS, budget, estimate, list_tokens, message_tokens, tools_tokens
from turnyard.ports import ToolSpec


@pytest.mark.spec("turn-37")
@pytest.mark.parametrize(
    ("context", "reserve", "left"),
    [
        (254_000, 25, 190_500),
        (0, 25, 0),
        (-5, 25, 0),
        (1_000, 150, 10),
        (1_000, 99, 10),
        (1_000, -5, 1_000),
        (1_000, 100, 10),
        (999, 25, 749),
    ],
)
def test_the_budget_is_what_a_share_of_the_window_leaves(context: int, reserve: int, left: int) -> None:
    assert budget(context, reserve) == left


@pytest.mark.spec("turn-38")
@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("éé", 1), ("ééé", 2), ("\N{GRINNING FACE}", 1), ("\ud800", 1)]
)
def test_a_token_is_four_bytes_and_a_part_of_one_counts_whole(text: str, tokens: int) -> None:
    assert estimate(text) == tokens


@pytest.mark.spec("turn-38")
def test_a_counter_of_ones_own_replaces_the_default() -> None:
    seen: list[str] = []

    def words(text: str) -> int:
        seen.append(text)
        return len(text.split())

    built = Shaper(ShaperPolicy(), count=words).build([user(1, "one two three four five")], system="be brief", tools=())
    assert isinstance(built, Built)
    assert built.tokens == (2 + 1 + MESSAGE_TOKENS) + (5 + 1 + MESSAGE_TOKENS)
    assert "one two three four five" in seen


def test_names_and_arguments_of_calls_count_and_so_does_every_message() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "write", "arguments": "x" * 400}}
    plain = message_tokens({"role": "assistant", "content": ""})
    assert message_tokens({"role": "assistant", "content": "", "tool_calls": [call]}) == plain + 100 + 2
    assert message_tokens({"role": "tool", "name": "write", "content": "ok"}) == MESSAGE_TOKENS + 1 + 2 + 1
    assert list_tokens([{"role": "user", "content": ""}] * 3) == 3 * (MESSAGE_TOKENS + 1)


def test_a_part_that_is_no_text_costs_what_an_image_does() -> None:
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:" + "x" * 100_000}}]
    assert message_tokens({"role": "user", "content": parts}) == MESSAGE_TOKENS + 1 + 1 + IMAGE_TOKENS


def test_the_tools_count_with_their_schemas_and_take_from_the_budget() -> None:
    tool = ToolSpec("add", "Add.", {"type": "object", "properties": {f"n{i}": {"type": "number"} for i in range(50)}})
    size = tools_tokens([tool])
    assert size > 200
    bare = Shaper().build([user(1)])
    built = Shaper().build([user(1)], tools=[tool])
    assert isinstance(bare, Built)
    assert isinstance(built, Built)
    assert built.tokens == bare.tokens + size


@pytest.mark.parametrize(
    ("policy", "target"),
    [
        (ShaperPolicy(100_000), 90_000),
        (ShaperPolicy(1_000, lod_headroom_tokens=200), 800),
        (ShaperPolicy(1_000, lod_headroom_tokens=-1), 1_000),
        (ShaperPolicy(1_000, lod_headroom_tokens=5_000), 1_000),
        (ShaperPolicy(5_000), 5_000),
        (ShaperPolicy(0), 0),
        (ShaperPolicy(-7), 0),
    ],
)
@pytest.mark.spec("turn-29")
def test_the_target_is_under_the_budget_by_the_headroom(policy: ShaperPolicy, target: int) -> None:
    assert policy.target() == target


def test_a_models_policy_takes_three_quarters_of_its_window() -> None:
    assert ShaperPolicy.for_model("m", 200_000) == ShaperPolicy(150_000, hard_budget_tokens=190_000)
    assert ShaperPolicy.for_model("openai/gpt-4o-mini").budget_tokens == 96_000
    assert ShaperPolicy.for_model("openai/GPT-4").budget_tokens == 6_144
    assert ShaperPolicy.for_model("openai/gpt-4o", 1_000).budget_tokens == 750
    assert ShaperPolicy.for_model("scripted/mine") == ShaperPolicy()
