"""What an operator types about dead letters, and the exit codes."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from turnyard.cli.entry import run
from turnyard.records.ids import body_hash, new_job_id
from turnyard.records.messages import UserMessage
from turnyard.state import flows, ingress
from turnyard.state.yard import Yard


@pytest.fixture
def shell(clean: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder of its own, with the server in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDIS_URL", clean)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield clean
    root.handlers[:] = handlers
    root.setLevel(level)


def bury(url: str, *, session: str = "s1", tenant: str = "default", mode: str = "steer") -> None:
    """Let a message be damaged on its way."""

    async def main() -> None:
        yard = await Yard.open(url)
        message = UserMessage(tenant, session, "hello", {"text": "hi"}, new_job_id(0), body_hash(b"hi"), mode=mode)  # pyright: ignore[reportArgumentType]
        await ingress.accept_message(yard, message)
        shard: Any = yard.shards[0]
        ((eid, event),) = await shard.redis.xrevrange(shard.keys.ingress, count=1)
        await shard.redis.xdel(shard.keys.ingress, eid)
        await shard.redis.xadd(shard.keys.ingress, event | {b"v": b"9"})
        await flows.dispatch(shard)
        await yard.aclose()

    asyncio.run(main())


def typed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    assert run(["dead", *words]) == code
    said = capsys.readouterr()
    return said.out, said.err


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in typed(capsys, "list", "--json", *words)[0].splitlines()]


def test_letters_are_listed_shown_retried_and_dropped(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    bury(shell)
    bury(shell, session="s2")
    second, first = listed(capsys)
    assert (first["session"], second["session"], first["reason"]) == ("s1", "s2", "unreadable")
    assert "s1" in typed(capsys, "list")[0]
    assert [x["session"] for x in listed(capsys, "--session", "s2")] == ["s2"]
    shown = typed(capsys, "show", first["id"])[0]
    assert "fix: a newer version wrote it" in shown
    assert "v = 9" in shown
    again = json.loads(typed(capsys, "retry", first["id"], "--json")[0])
    assert (again["letter"], again["outcome"], again["job"][:4]) == (first["id"], "retried", "job_")
    out, err = typed(capsys, "drop", second["id"])
    assert out.strip() == second["id"]
    line = json.loads(next(x for x in err.splitlines() if "dead letter dropped" in x))
    assert (line["letter"], line["session"], bool(line["by"])) == (second["id"], "s2", True)
    assert listed(capsys) == []
    with redis.Redis.from_url(shell) as client:
        assert client.xlen("ty:{0}:ingress") == 1


def test_a_letter_that_is_not_there_is_exit_code_6_and_one_that_cannot_be_sent_is_7_and_stays(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for what in ("show", "retry", "drop"):
        assert "no dead letter" in typed(capsys, what, "0.1-0", code=6)[1]
    bury(shell, mode="reject")
    (letter,) = listed(capsys)
    with redis.Redis.from_url(shell) as client:
        client.hdel(f"ty:{{0}}:j:{letter['job']}", "in")
    assert "message is not kept" in typed(capsys, "retry", letter["id"], code=7)[1]
    assert [x["id"] for x in listed(capsys)] == [letter["id"]]


def test_a_tenants_letters_are_its_own(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    bury(shell, tenant="acme")
    (letter,) = listed(capsys, "--tenant", "acme")
    assert listed(capsys, "--tenant", "other") == []
    for what in ("show", "retry", "drop"):
        typed(capsys, what, letter["id"], "--tenant", "other", code=6)
    typed(capsys, "drop", letter["id"], "--tenant", "acme")


def test_nothing_is_said_to_be_nothing(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed(capsys, "list") == ("", "no dead letter\n")


def test_a_stock_that_is_nearly_full_is_warned_of(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    bury(shell)
    with redis.Redis.from_url(shell) as client:
        used: Any = client.hget("ty:{0}:limits", "dead:bytes")
        client.hset("ty:{0}:limits", "dead:cap", str(int(float(used)) + 1))
    assert "oldest letters are lost next" in typed(capsys, "list")[1]


def test_doctor_warns_of_letters(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json"]) == 0
    assert "dead letters" not in capsys.readouterr().out
    bury(shell)
    assert run(["doctor", "--json"]) == 0
    assert "1 dead letters take" in capsys.readouterr().out
