"""What the model answers that reads its replies from a file."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from turnyard.errors import ConfigError, ModelError
from turnyard.ports import Delta, Done, ModelRequest, ToolSpec
from turnyard.providers import open_provider
from turnyard.testing import ManualClock, wait_until

NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "number"}, "c": {"type": "string"}}}
TOOLS = [ToolSpec("add", "", NUMBERS)]


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def result(text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "c", "content": text}


class Model:
    """A scripted model whose file holds `text`."""

    def __init__(self, folder: Path, text: str) -> None:
        (folder / "model.yaml").write_text(text, encoding="utf-8")
        self.clock = ManualClock()
        self.provider, self.name = open_provider("scripted:model.yaml", base_dir=folder, clock=self.clock)

    async def ask(self, *messages: dict[str, Any], seen: list[Delta] | None = None) -> Done:
        done: Done | None = None
        async for item in self.provider.stream(ModelRequest(self.name, messages, TOOLS)):
            if isinstance(item, Done):
                done = item
            elif seen is not None:
                seen.append(item)
        assert done is not None
        return done

    async def texts(self, *conversations: Sequence[dict[str, Any]]) -> list[str]:
        return [(await self.ask(*messages)).text for messages in conversations]


async def test_replies_come_in_order_of_the_assistant_messages(tmp_path: Path) -> None:
    model = Model(tmp_path, "replies: [{text: one}, {text: two}]")
    assert await model.texts([user("a")], [user("a"), said("one"), user("b")]) == ["one", "two"]


async def test_the_same_request_is_answered_alike_each_time(tmp_path: Path) -> None:
    model = Model(tmp_path, "replies: [{text: one}, {calls: [{name: add, args: {a: 1}}]}]")
    request = [user("a"), said("one"), user("b")]
    assert await model.ask(*request) == await model.ask(*request)


async def test_a_script_that_is_used_up_says_so_unless_it_loops(tmp_path: Path) -> None:
    script = "replies: [{text: one}, {text: two}]"
    conversation = [user("a"), said(), said(), user("b")]
    with pytest.raises(ModelError, match="reply 3 of 2") as caught:
        await Model(tmp_path, script).ask(*conversation)
    assert not caught.value.retryable
    assert (await Model(tmp_path, f"loop: true\n{script}").ask(*conversation)).text == "one"


GUARDED = r"""
loop: true
replies:
  - when: 'add (?P<a>\d+) and (?P<b>\d+)'
    calls: [{name: add, args: {a: "{a}", b: "{b}", c: "{a}", d: ["{b}"], e: true}}]
  - when: 'add (?P<a>\d+) and (?P<b>\d+)'
    text: "{a} and {b} make {result}, {not_a_name} {}"
  - text: other
"""


async def test_named_groups_and_the_last_tool_result_fill_the_reply(tmp_path: Path) -> None:
    model = Model(tmp_path, GUARDED)
    earlier = [user("hi"), said("other"), user("add 2 and 3")]
    first = await model.ask(*earlier)
    assert [(c.name, c.arguments) for c in first.calls] == [("add", '{"a":2,"b":3,"c":"2","d":["3"],"e":true}')]
    assert first.finish == "tool_calls"
    second = await model.ask(*earlier, said(), result("5"))
    assert (second.text, second.calls, second.finish) == ("2 and 3 make 5, {not_a_name} {}", (), "stop")


async def test_a_reply_is_chosen_by_the_last_user_text(tmp_path: Path) -> None:
    model = Model(tmp_path, GUARDED)
    assert (await model.ask(user("add 2 and 3"), said(), result("5"), said("so"), user("bye"))).text == "other"
    assert (await model.ask(user([{"type": "text", "text": "please add 4 and 5"}]))).calls


async def test_a_text_that_no_reply_fits_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no reply fits"):
        await Model(tmp_path, "replies: [{when: x, text: y}]").ask(user("z"))


async def test_a_reply_is_streamed_in_chunks_with_the_delay_before_each(tmp_path: Path) -> None:
    model = Model(tmp_path, "replies: [{text: abcdefghij, chunks: 3, delay: 0.5}]")
    seen: list[Delta] = []
    asking = asyncio.ensure_future(model.ask(user("x"), seen=seen))
    for count in range(3):
        await wait_until(lambda: model.clock.sleepers == 1, description="the model to wait")
        assert len(seen) == count
        await model.clock.advance(0.5)
    assert (await asking).text == "abcdefghij"
    assert [d.text for d in seen] == ["abc", "def", "ghij"]
    assert model.clock.monotonic() == 1.5


async def test_more_chunks_than_characters_stream_character_by_character(tmp_path: Path) -> None:
    seen: list[Delta] = []
    await Model(tmp_path, "replies: [{text: äb, chunks: 50}]").ask(user("x"), seen=seen)
    assert [d.text for d in seen] == ["ä", "b"]


@pytest.mark.parametrize(("fault", "wait_s", "shown"), [("429", 1.0, ""), ("500", None, ""), ("garbage", None, ""), ("cut", None, "ab")])
async def test_a_fault_fails_the_call_in_a_way_that_may_be_retried(tmp_path: Path, fault: str, wait_s: float | None, shown: str) -> None:
    model = Model(tmp_path, f"replies: [{{text: abcd, chunks: 4, error: {fault}}}]")
    seen: list[Delta] = []
    with pytest.raises(ModelError) as caught:
        await model.ask(user("x"), seen=seen)
    assert (caught.value.retryable, caught.value.retry_after_s) == (True, wait_s)
    assert "".join(d.text for d in seen) == shown


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("", "empty"),
        ("replies: []", "line 1: replies: is empty"),
        ("loop: true", "no replies"),
        ("replies:\n  - text: a\n    wen: b", "line 3: wen: is not known in a reply"),
        ("replies: [{text: a}]\nlop: true", "line 2: lop"),
        ("replies: [{text: a}]\nloop: 3", "line 2: loop"),
        ("replies: {text: a}", "must be a list"),
        ("replies: [a]", "must be a mapping"),
        ("replies:\n- text: a\n- when: b", "line 3: a reply needs"),
        ("replies:\n- text: 5", "line 2: text: must be a string"),
        ("replies:\n- text: a\n  text: b", "line 3: text: stands twice"),
        ("replies:\n- text: a\n  when: '('", "line 3: when: is not a regular expression"),
        ("replies:\n- text: a\n  delay: -1", "line 3: delay"),
        ("replies:\n- text: a\n  chunks: 0", "line 3: chunks"),
        ("replies:\n- text: a\n  chunks: 1.5", "line 3: chunks"),
        ("replies:\n- error: 404", "line 2: error: 404"),
        ("replies:\n- calls: [{args: {}}]", "line 2: a call needs a name"),
        ("replies:\n- calls: [{name: add, arg: {}}]", "line 2: arg: is not known in a call"),
        ("replies:\n- calls: [{name: add, args: [1]}]", "line 2: args"),
        ("replies:\n- calls: [{name: add, args: {1: 2}}]", "line 2: args: cannot be JSON"),
        ("replies:\n- text: !!python/object:os.system a", "line 2"),
        ("replies: [", "not YAML"),
    ],
)
def test_a_wrong_script_is_refused_with_its_line(tmp_path: Path, script: str, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Model(tmp_path, script)
    assert named in str(caught.value)
    assert str(tmp_path / "model.yaml") in str(caught.value)


def test_a_script_that_is_not_there_is_looked_for_beside_the_app(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="beside the app file"):
        open_provider("scripted:none.yaml", base_dir=tmp_path, clock=ManualClock())
