"""What is shown of a long result, what is kept of it, and how the rest is read."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnyard import App, Limits, ToolContext, tool
from turnyard.app.hooks import Result
from turnyard.blobs import FileStore, StoreLimits, open_memory
from turnyard.engine.shaper import ShaperPolicy
from turnyard.engine.stubs import MAX_READ_CHARS, Stretch
from turnyard.engine.tokens import estimate
from turnyard.errors import ConfigError, FilesUnavailable, NotFound
from turnyard.ports import ModelRequest
from turnyard.records.blobs import BlobRef
from turnyard.records.log import RESULT
from turnyard.testing import ManualClock, ScriptedModel, call
from turnyard.testing.models import FunctionModel, Item
from turnyard.text import OUTPUT_BYTES, both_ends, scrub
from turnyard.tools.files import Files
from turnyard.tools.runtime import run_tool
from turnyard.tools.spill import shown_body, shown_text

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)
LIMIT = st.integers(128, 400)
WIDE = st.sampled_from(["a", "é", "漢", "😀"])


def store() -> FileStore:
    return open_memory(ManualClock())


class Failing:
    """A store that takes nothing."""

    max_bytes = 1 << 30

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def put(self, tenant: str, data: bytes | AsyncIterable[bytes], **_: object) -> BlobRef:
        raise self.error


# -- the cut ------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("runner-35")
@given(st.lists(TEXT | WIDE, max_size=40).map("".join) | st.builds(lambda c, n: c * n, WIDE, st.integers(0, 2_000)), LIMIT)
def test_a_cut_text_fits_holds_whole_characters_of_both_ends_and_is_not_cut_again(text: str, limit: int) -> None:
    shown = both_ends(text, limit)
    assert len(shown.encode()) <= limit
    assert both_ends(shown, limit) == shown
    if len(text.encode()) <= limit:
        assert shown == text
        return
    head, _, tail = shown.partition("\n[… cut at byte ")
    assert text.startswith(head)
    assert text.endswith(tail.partition(" …]\n")[2])
    assert int(tail.partition(":")[0].replace(",", "")) == len(head.encode())
    assert len(shown.encode()) > limit - 128 - 8


@given(st.text(st.characters(), max_size=30).map(lambda t: t * 20), LIMIT)
def test_whatever_is_cut_can_be_stored(text: str, limit: int) -> None:
    shown = both_ends(text, limit)
    assert shown.encode().decode() == shown == scrub(shown)
    assert len(shown.encode()) <= limit


@pytest.mark.spec("runner-35")
@given(st.builds("".join, st.lists(WIDE, min_size=1, max_size=60)), st.integers(1, 12))
def test_a_text_is_read_in_stretches_of_any_length_without_a_character_cut_or_lost(text: str, length: int) -> None:
    raw, read, offset = text.encode(), "", 0
    while offset < len(raw):
        stretch = Stretch.of(len(raw), offset, length)
        first, _, part = stretch.text(7, raw[stretch.low : stretch.high]).partition("\n")
        assert "\ufffd" not in part
        read += part
        more = first.partition("go on with offset ")[2].rstrip("]")
        assert (more == "") == (len(read.encode()) == len(raw))
        offset = int(more) if more else len(raw)
    assert read == text


@given(st.text(max_size=40), st.integers(-9, 99), st.integers(-9, 99))
def test_a_stretch_is_within_the_file_and_of_whole_characters_wherever_it_begins(text: str, offset: int, length: int) -> None:
    raw = scrub(text).encode()
    stretch = Stretch.of(len(raw), offset, length)
    assert 0 <= stretch.low <= stretch.first <= stretch.last <= stretch.high <= len(raw)
    assert stretch.high - stretch.low <= MAX_READ_CHARS + 6
    part = stretch.text(7, raw[stretch.low : stretch.high]).partition("\n")[2]
    assert part in scrub(text)


# -- keeping the whole --------------------------------------------------------------------------------------------------


async def test_a_long_text_is_kept_whole_and_a_short_one_is_not_kept() -> None:
    files = Files(store(), "acme")
    assert await shown_text("x" * OUTPUT_BYTES, files, name="a") == await shown_text("x" * OUTPUT_BYTES, None, name="a")
    shown = await shown_text("é" * OUTPUT_BYTES, files, name="a.txt")
    assert (shown.size, len(shown.content.encode()) <= OUTPUT_BYTES) == (2 * OUTPUT_BYTES, True)
    assert (await files.get(shown.ref or "")).decode() == "é" * OUTPUT_BYTES
    ref = await files.stat(shown.ref or "")
    assert (ref.name, ref.media_type) == ("a.txt", "text/plain; charset=utf-8")
    body = {"content": shown.content, "is_error": False} | shown.facts
    assert await shown_body(body, files, name="again") == body


@pytest.mark.spec("runner-35")
@pytest.mark.parametrize("error", [FilesUnavailable(), TimeoutError(), RuntimeError("a defect")])
async def test_a_store_that_fails_costs_the_middle_and_says_so(error: Exception) -> None:
    for files in (
        Files(Failing(error), "acme"),
        Files(None, "acme"),
        None,
        Files(open_memory(ManualClock(), StoreLimits(max_bytes=9_000))),
    ):  # type: ignore[arg-type]
        shown = await shown_text("x" * 10_000, files, name="a")
        assert (shown.ref, shown.size, len(shown.content.encode()) <= OUTPUT_BYTES) == (None, None, True)
        assert "are lost" in shown.content


@tool
async def picture(ctx: ToolContext[None], kind: str) -> bytes:
    """Draw."""
    return {"png": b"\x89PNG\r\n\x1a\n\0\0", "text": "é".encode(), "zeros": b"\0\1"}[kind]


async def test_bytes_that_are_no_text_are_a_file() -> None:
    files = Files(store(), "acme")
    ctx = ToolContext.fake(files=files)
    done = await run_tool(picture, {"kind": "png"}, ctx)
    assert (done.media_type, done.size) == ("image/png", 10)
    assert done.content == f"[file {done.ref}: image/png, 10 bytes]"
    assert await files.get(done.ref or "") == b"\x89PNG\r\n\x1a\n\0\0"
    assert (await run_tool(picture, {"kind": "zeros"}, ctx)).media_type == "application/octet-stream"
    assert (await run_tool(picture, {"kind": "text"}, ctx)).content == "é"
    lost = await run_tool(picture, {"kind": "png"}, ToolContext.fake(files=Files(None, "acme")))
    assert (lost.ref, lost.content) == (None, "[10 bytes that are no text; they could not be kept]")


# -- in a conversation --------------------------------------------------------------------------------------------------

HUGE = "0123456789" * 500_000 + "é the end"


@tool
async def dump() -> str:
    """Return five megabytes."""
    return HUGE


@tool
async def keep(ctx: ToolContext[None], text: str) -> str:
    """Keep a text."""
    return (await ctx.files.put(text, name="../../notes.txt")).id


@tool
async def fetch(ctx: ToolContext[None], file: str) -> str:
    """Fetch a text."""
    return (await ctx.files.get(file)).decode()


@pytest.mark.spec("L35", "runner-35")
async def test_a_result_far_over_the_models_window_is_cut_and_kept_whole_and_the_next_turn_works() -> None:
    def answer(request: ModelRequest) -> Item:
        assert estimate("".join(str(m.get("content")) for m in request.messages)) < 8_000
        steps: list[Callable[[], Item]] = [
            lambda: call("dump"),
            lambda: call("read_entry", id=cut_entry(request), offset=5_000_000, length=100),
            lambda: "the end was é the end",
            lambda: "still here",
        ]
        return steps[sum(m["role"] == "assistant" for m in request.messages)]()

    talk = App().agent("a", model=FunctionModel(answer), tools=[dump], shaper=ShaperPolicy.for_model("gpt-4")).local()
    first = await talk.prompt("dump it")
    assert (first.state, first.text) == ("succeeded", "the end was é the end")
    result = next(e for e in talk.entries if e.type == RESULT)
    assert len(result.body["content"].encode()) <= OUTPUT_BYTES
    assert result.body["size"] == len(HUGE.encode())
    read = [e for e in talk.entries if e.type == RESULT][1].body["content"]
    assert read.startswith(f"[event_id={result.seq} bytes 5000000 to 5000010 of 5000010]")
    assert read.endswith("\né the end")
    assert (await talk.prompt("and now?")).text == "still here"


def cut_entry(request: ModelRequest) -> int:
    """Return the id that the last message of a request names as one that is cut; the reader must be offered by then."""
    last = request.messages[-1]["content"]
    assert "read_entry" in {spec.name for spec in request.tools}
    return int(last.rpartition("[event_id=")[2].partition(":")[0])


async def test_an_agent_says_how_much_of_a_result_its_model_is_shown() -> None:
    talk = App().agent("a", model=ScriptedModel([call("dump"), "ok"]), tools=[dump], limits=Limits(output_bytes=300)).local()
    await talk.prompt("dump it")
    assert len(next(e for e in talk.entries if e.type == RESULT).body["content"].encode()) <= 300
    with pytest.raises(ConfigError):
        Limits(output_bytes=100)


async def test_a_tool_keeps_and_gets_files_of_its_tenant() -> None:
    def answer(request: ModelRequest) -> Item:
        last = str(request.messages[-1]["content"])
        return call("fetch", file=last) if last.startswith("file_") else "ok" if last == "naïve" else call("keep", text="naïve")

    talk = App().agent("a", model=FunctionModel(answer), tools=[keep, fetch]).local()
    done = await talk.prompt("keep it")
    assert [c.content for c in done.calls][1] == "naïve"
    with pytest.raises(FilesUnavailable):
        await Files().get("file_x")
    files = Files(store(), "acme")
    ref = await files.put("x", expires_in=5)
    assert ref.expires_ms - ref.created_ms == 5_000
    await files.delete(ref)
    with pytest.raises(NotFound):
        await files.stat(ref)


async def test_a_long_answer_of_another_agent_is_kept_whole_with_the_callers_files() -> None:
    words = " ".join(map(str, range(5_000)))
    app = App()
    kid = app.agent("kid", model=ScriptedModel([words]))
    read: list[str] = []

    def answer(request: ModelRequest) -> Item:
        last = str(request.messages[-1]["content"])
        if not last.endswith("being bytes]"):
            return call("kid", input="write") if not read else "done"
        read.append(last)
        return call("read_entry", id=int(last.rpartition("[event_id=")[2].partition(":")[0]), offset=len(words) - 10)

    talk = app.agent("boss", model=FunctionModel(answer), tools=[kid.as_tool()]).local()
    done = await talk.prompt("ask it")
    assert done.state == "succeeded"
    assert len(next(e for e in talk.entries if e.type == RESULT).body["content"].encode()) <= OUTPUT_BYTES
    assert str(done.calls[1].content).endswith("\n" + words[-10:])


async def test_hooks_see_the_whole_before_it_is_cut_and_what_they_take_out_is_not_kept_and_what_they_add_is_cut() -> None:
    app = App()

    @app.hook("after_tool")
    async def redact(ctx: object, called: object, result: Result) -> None:
        result.content = "z" * 30_000 if result.content.startswith("[file") else result.content.replace("SECRET", "#")

    @tool
    async def leak() -> str:
        """Say too much."""
        return "x" * 20_000 + "SECRET" + "x" * 20_000

    @tool
    async def draw() -> bytes:
        """Draw."""
        return b"\x89PNG\r\n\x1a\n\0"

    model = ScriptedModel([[call("leak"), call("draw")], "ok"])
    talk = app.agent("a", model=model, tools=[leak, draw]).local()
    assert (await talk.prompt("go")).state == "succeeded"
    leaked, drawn = (e for e in talk.entries if e.type == RESULT)
    assert leaked.body["size"] == 40_001
    assert all(len(e.body["content"].encode()) <= OUTPUT_BYTES for e in (leaked, drawn))
    assert drawn.body["media_type"] == "image/png"
