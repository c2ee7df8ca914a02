"""Every provider of ours does what the port says."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import orjson
import pytest

from turnyard.clock import SystemClock
from turnyard.errors import ModelError
from turnyard.ports import Provider
from turnyard.providers import open_provider
from turnyard.providers.openai_chat import OpenAIChat, OpenAISettings
from turnyard.testing import ScriptedModel
from turnyard.testing.providers import ProviderConformance, Wanted


class TestScriptedFile(ProviderConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def provider(self, wanted: Wanted) -> Provider:
        reply = {"text": wanted.text, "calls": [{"name": c.name, "args": c.args} for c in wanted.calls], "chunks": 3}
        reply |= {"error": "cut"} if wanted.cut else {"error": 500} if wanted.refused else {}
        (self.folder / "model.yaml").write_bytes(orjson.dumps({"loop": True, "replies": [reply]}))
        return open_provider("scripted:model.yaml", base_dir=self.folder, clock=SystemClock())[0]


class TestScriptedModel(ProviderConformance):
    def provider(self, wanted: Wanted) -> Provider:
        broken = ModelError("down", retryable=True) if wanted.cut or wanted.refused else None
        return ScriptedModel([broken or wanted.calls or wanted.text])


class TestOpenAIChat(ProviderConformance):
    def provider(self, wanted: Wanted) -> Provider:
        def answer(_: httpx.Request) -> httpx.Response:
            if wanted.refused:
                return httpx.Response(503)
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=b"".join(_events(wanted)))

        return OpenAIChat(OpenAISettings("http://model.test/v1"), clock=SystemClock(), transport=httpx.MockTransport(answer))


def _events(wanted: Wanted) -> list[bytes]:
    deltas = [{"content": character} for character in wanted.text]
    for index, called in enumerate(wanted.calls):
        deltas.append({"tool_calls": [{"index": index, "id": f"c{index}", "function": {"name": called.name, "arguments": ""}}]})
        deltas.extend({"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in json.dumps(called.args))
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    if wanted.cut:
        chunks = chunks[:-1]
    else:
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return [b"data: %s\n\n" % orjson.dumps(chunk) for chunk in chunks]
