"""Does importing the engine, or running an agent in this process, stay clear of servers and of the network?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ENGINE = """
import importlib, pkgutil, turnyard.engine
for module in pkgutil.iter_modules(turnyard.engine.__path__, "turnyard.engine."):
    importlib.import_module(module.name)
"""
AGENT = """
import asyncio
from turnyard import App, tool
from turnyard.testing import ScriptedModel, call

@tool
async def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

agent = App().agent("sums", model=ScriptedModel([call("add", a=1, b=1), "two"]), tools=[add])
assert asyncio.run(agent.run("1 + 1?")).text == "two"
"""
STRANGERS = ("redis", "httpx", "hiredis", "arq", "fastapi", "uvicorn", "turnyard.state", "turnyard.client")


@pytest.mark.parametrize("code", [ENGINE, AGENT], ids=["the engine", "an agent of this process"])
def test_neither_a_server_nor_the_network_is_loaded_for(root: Path, code: str) -> None:
    told = f"{code}\nimport sys\nprint([name for name in {STRANGERS!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", told], cwd=root, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
