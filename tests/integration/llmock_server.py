"""llmock as a process: a model server that speaks the OpenAI wire, breaks it on demand and judges its client."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest


class Server:
    """A running llmock."""

    def __init__(self, url: str) -> None:
        self.url = url

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        return httpx.post(f"{self.url}/_llmock/{path}", json=body or {}).raise_for_status().json()

    def next(self, *behaviours: dict[str, Any]) -> None:
        """Say what the next requests get."""
        self.post("scenario", {"behaviors": list(behaviours)})

    def requests(self) -> list[dict[str, Any]]:
        return httpx.get(f"{self.url}/_llmock/requests").json()["requests"]

    def findings(self) -> set[str]:
        """Return what llmock holds against its client, leaving out that it does not retry: that is not its job."""
        told = httpx.get(f"{self.url}/_llmock/verdict").json()
        return {f["code"] for f in told["findings"]} - {"gave_up"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("llmock") / "log"
    command = [sys.executable, "-m", "llmock.cli", "serve", "--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LLMOCK_")}
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output, env=environment) as process:
        server = Server(f"http://127.0.0.1:{port}")
        try:
            _wait_healthy(server, log.read_text)
            yield server
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_healthy(server: Server, read_log: Callable[[], str]) -> None:
    """Connect until it works; the pauses between the tries grow from half a second to eight."""
    try:
        with httpx.Client(transport=httpx.HTTPTransport(retries=6)) as client:
            client.get(f"{server.url}/health").raise_for_status()
    except httpx.HTTPError as error:
        pytest.fail(f"llmock did not start ({error}): {read_log()}")


@pytest.fixture
def server(running: Server) -> Server:
    """A running llmock without memory of other tests."""
    running.post("reset")
    return running
