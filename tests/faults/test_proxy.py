"""The proxy hands on every byte, knows which reply is whose, and does harm exactly where it is told to."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis import exceptions as rx
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.faults.proxy import KILL, LOSE, Command, Fault, Hook, Proxy, after, before, harmless, signal_to
from tests.faults.resp import Frames, head_words, is_push
from turnyard.testing import wait_until


@pytest.fixture
def proxy(clean: str, tmp_path: Path) -> Iterator[Proxy]:
    with Proxy(Path(clean.removeprefix("unix://")), tmp_path / "p") as proxy:
        yield proxy


def client(proxy: Proxy, protocol: int = 2) -> Any:
    return redis.Redis.from_url(proxy.url, socket_timeout=10, protocol=protocol, retry=Retry(NoBackoff(), 0))


def seen_by(proxy: Proxy) -> list[Command]:
    """Note every command from now on."""
    seen: list[Command] = []

    def hook(command: Command, reply: bytes | None) -> None:
        if reply is None:
            seen.append(command)

    proxy.hook = hook
    return seen


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_a_stream_is_cut_into_its_messages_however_it_arrives(step: int) -> None:
    messages = [
        b"+OK\r\n",
        b"$5\r\na\r\nbc\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*2\r\n*2\r\n:1\r\n$0\r\n\r\n*1\r\n-ERR no\r\n",
        b"%1\r\n+a\r\n*1\r\n_\r\n",
        b"|1\r\n+ttl\r\n:3\r\n$1\r\nx\r\n",
        b">2\r\n+message\r\n+hi\r\n",
        b"=6\r\ntxt:ab\r\n",
        b",3.5\r\n",
        b"PING hello\r\n",
    ]
    stream, frames = b"".join(messages), Frames()
    out = [frame for at in range(0, len(stream), step) for frame in frames.feed(stream[at : at + step])]
    assert out == messages
    assert [is_push(frame) for frame in out].count(True) == 1


def test_the_first_words_of_a_command_are_read_whatever_follows() -> None:
    assert head_words(b"*5\r\n$5\r\nFCALL\r\n$2\r\nf1\r\n$1\r\n1\r\n$0\r\n\r\n$2\r\n\r\n\r\n") == (b"FCALL", b"f1", b"1", b"", b"\r\n")
    assert head_words(b"PING hello\r\n") == (b"PING", b"hello")


@pytest.mark.parametrize("protocol", [2, 3])
def test_pipelines_and_big_values_pass_unchanged_and_are_counted(proxy: Proxy, protocol: int) -> None:
    seen = seen_by(proxy)
    big = os.urandom(3_000_000)
    with client(proxy, protocol) as redis_client, redis_client.pipeline(transaction=False) as pipe:
        for n in range(200):
            pipe.set(f"k{n}", big[n : n + 7])
        pipe.set("big", big).get("big").hset("h", mapping={"a": "1"}).hgetall("h")
        replies = pipe.execute()
    assert replies[-3] == big
    assert replies[-1] == {b"a": b"1"}
    mine = [command for command in seen if command.what not in ("hello", "client")]
    assert [command.what for command in mine] == ["set"] * 201 + ["get", "hset", "hgetall"]
    assert {command.pid for command in mine} == {os.getpid()}
    assert [command.nth for command in seen] == list(range(1, len(seen) + 1))


def test_a_reply_is_lost_after_its_command_took_effect_and_those_before_it_are_not(proxy: Proxy) -> None:
    proxy.hook = after("incrby", LOSE)
    with client(proxy) as redis_client, pytest.raises(rx.ConnectionError), redis_client.pipeline(transaction=False) as pipe:
        pipe.set("a", 1).incr("n").set("b", 1).execute()
    with client(proxy) as redis_client:
        assert redis_client.get("n") == b"1"
        assert redis_client.incr("n") == 2


def test_a_lost_command_has_no_effect_and_those_before_it_have(proxy: Proxy) -> None:
    proxy.hook = before("incrby", LOSE)
    with client(proxy) as redis_client:
        with pytest.raises(rx.ConnectionError), redis_client.pipeline(transaction=False) as pipe:
            pipe.set("a", 1).incr("n").set("b", 1).execute()
        assert redis_client.mget("a", "n", "b") == [b"1", None, None]


VICTIM = "import redis, sys; r = redis.Redis.from_url(sys.argv[1]); r.set('before', 1); r.incr('n'); r.set('beyond', 1)"


@pytest.mark.parametrize(("hook", "left"), [(before("incrby", KILL), None), (after("incrby", KILL), b"1")])
def test_a_process_is_killed_before_its_command_or_after_its_effect(proxy: Proxy, hook: Hook, left: bytes | None) -> None:
    proxy.hook = hook
    assert subprocess.run([sys.executable, "-c", VICTIM, proxy.url], check=False).returncode == -signal.SIGKILL
    proxy.hook = harmless
    with client(proxy) as redis_client:
        assert redis_client.mget("before", "n", "beyond") == [b"1", left, None]


def test_a_strike_without_a_cut_lets_everything_go_on(proxy: Proxy) -> None:
    seen: list[str] = []
    proxy.hook = after("incrby", Fault(lambda command: seen.append(command.what), cut=False))
    with client(proxy) as redis_client:
        assert redis_client.incr("n") == 1
    assert seen == ["incrby"]


def test_a_signal_reaches_the_process_behind_the_command(proxy: Proxy) -> None:
    proxy.hook = before("incrby", Fault(signal_to(signal.SIGSTOP), cut=False))
    process = subprocess.Popen([sys.executable, "-c", VICTIM, proxy.url])
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)
    assert process.wait(10) == 0


async def test_a_reader_that_waits_gets_what_another_connection_sends(proxy: Proxy) -> None:
    with client(proxy) as reader, client(proxy) as writer:
        waiting = asyncio.create_task(asyncio.to_thread(reader.execute_command, "BLMPOP", "9", "1", "list", "LEFT"))
        await wait_until(lambda: bool(writer.info("clients")["blocked_clients"]), description="the reader to wait")
        writer.rpush("list", "x")
        assert await waiting == [b"list", [b"x"]]


async def test_what_is_held_passes_when_it_is_released(proxy: Proxy) -> None:
    with client(proxy) as redis_client:
        redis_client.ping()
        proxy.hold(lambda pid: pid == os.getpid())
        asked = asyncio.create_task(asyncio.to_thread(redis_client.incr, "n"))
        done, _ = await asyncio.wait([asked], timeout=0.1)
        assert not done
        proxy.release()
        assert await asked == 1


async def test_a_reset_breaks_every_connection_and_the_next_one_works(proxy: Proxy) -> None:
    with client(proxy) as redis_client:
        redis_client.ping()
        assert proxy.pids() == {os.getpid()}
        proxy.hold()
        asked = asyncio.create_task(asyncio.to_thread(redis_client.incr, "n"))
        await asyncio.wait([asked], timeout=0.1)
        proxy.reset()
        with pytest.raises(rx.ConnectionError):
            await asked
        proxy.release()
        assert redis_client.incr("n") == 1


def test_a_server_that_is_gone_is_a_broken_connection(tmp_path: Path) -> None:
    with Proxy(tmp_path / "nobody", tmp_path / "p") as proxy, client(proxy) as redis_client, pytest.raises(rx.ConnectionError):
        redis_client.ping()
