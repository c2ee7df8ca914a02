"""Messages with a role of the app's own, on workers: each of them knows what the model is to see."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conversation import TENANT, Talk
from tests.integration.sample_app import SampleApp
from tests.processes import Roles
from turnyard.client import RedisClient
from turnyard.errors import InvalidInput
from turnyard.records.ids import body_hash, new_job_id, session_key
from turnyard.records.messages import UserMessage
from turnyard.state import ingress

CONVERTERS = """
from dataclasses import replace

def as_sum(message):
    return replace(message, role="user", text=f"add {message.text}")
"""


@pytest.mark.spec("runner-53")
async def test_every_worker_shows_a_registered_role_as_its_converter_says_and_leaves_an_unknown_one_out(
    talk: Talk, clean: str, roles: Roles, tmp_path: Path
) -> None:
    app = SampleApp(tmp_path / "app", more=CONVERTERS, options='roles={"sum": as_sum}, ')
    roles.dispatcher(clean)
    first = roles.worker(clean, app.path, "--processes", "1")
    await talk.enrolled(1)
    async with RedisClient(clean) as client:
        assert (await client.run("hello", "2 3", session="s1", role="sum"))["text"] == "it is 5"
        with pytest.raises(InvalidInput, match="knows user, sum"):
            await client.submit("hello", "2 3", session="s1", role="product")
        first.kill_all()
        roles.worker(clean, app.path, "--processes", "1")
        assert (await client.run("hello", "4 4", session="s1", role="sum"))["text"] == "it is 8"
        await unknown(talk, "s1", "once never")
        assert (await client.run("hello", "hi", session="s1"))["text"] == "hello"
        assert app.ran("once") == []


async def unknown(talk: Talk, session: str, text: str) -> None:
    """Send a message whose role no agent has, past the door, as an agent may have had it once."""
    job = new_job_id(talk.yard.shard_for(session_key(TENANT, session)).n)
    message = UserMessage(TENANT, session, "hello", {"text": text, "role": "product"}, job, body_hash(text.encode()))
    assert (await ingress.accept_message(talk.yard, message)).code == "accepted"
    await talk.done(job)
