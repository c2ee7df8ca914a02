"""A server without the SDK, over stdin and stdout, that starts at once and does what no decent server does: `python raw_server.py MODE`.

It speaks the protocol of 2025, as most servers do. Modes: old (decent), deaf (it stays when nobody
speaks to it any more), hang, garbage, dies, huge, heavy, odd, mute.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

MODE = sys.argv[1]
NAMES = Path(os.environ.get("TOOLS_FILE", os.devnull))
JOURNAL = Path(os.environ.get("JOURNAL", os.devnull))


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": f"Do {name}.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
        **more,
    }


def tools() -> list[dict[str, Any]]:
    match MODE:
        case "huge":
            return [tool(f"t{n:05}") for n in range(10_000)]
        case "heavy":
            return [
                tool("good"),
                tool("wordy", description="x" * 5_000_000),
                tool("wide", inputSchema={"type": "object", "properties": {f"p{n}": {} for n in range(20_000)}}),
            ]
        case "odd":
            return [
                tool("good", inputSchema={"type": "object", "required": None, "properties": {}}),
                tool("a.b"),
                tool("a/b"),
                tool("bad_ref", inputSchema={"type": "object", "properties": {"x": {"$ref": "http://localhost:9/x"}}}),
                tool("\u0000\u0007"),
                tool("n" * 300),
            ]
        case _:
            return [tool(name) for name in (NAMES.read_text().split() if NAMES.is_file() else ["echo"])]


def call(params: dict[str, Any]) -> dict[str, Any]:
    name, arguments = params["name"], params.get("arguments") or {}
    with JOURNAL.open("a") as journal:
        journal.write(
            json.dumps({"tool": name, "arguments": arguments, "meta": params.get("_meta"), "env": dict(os.environ), "pid": os.getpid()})
            + "\n"
        )
    if MODE == "dies" or name == "die":
        os._exit(3)
    if name == "mute":
        sys.stdin.read()
    if name == "alert":
        send({"method": "notifications/acme/alert", "params": {"what": arguments.get("text")}})
        send({"method": "notifications/message", "params": {"level": "warning", "logger": "disk", "data": "nearly full"}})
    if name == "change":
        send({"method": "notifications/tools/list_changed"})
    if name not in [each["name"] for each in tools()]:
        return {"content": [{"type": "text", "text": f"Unknown tool: {name}"}], "isError": True}
    return {"content": [{"type": "text", "text": f"{name}: {arguments.get('text', '')}"}]}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            capabilities = {"tools": {"listChanged": True}, "logging": {}}
            return {
                "result": {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": {"name": "raw", "version": "1"}}
            }
        case "tools/list":
            return {"result": {"tools": tools()}}
        case "tools/call":
            return {"result": call(params)}
        case "ping":
            return {"result": {}}
        case _:
            return {"error": {"code": -32601, "message": f"no method {method}"}}


if MODE == "garbage":
    for _ in range(2_000):
        print("}{ this is no JSON", flush=True)
if MODE == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if MODE in ("hang", "garbage"):
    sys.stdin.read()
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        send({"id": message["id"], **answer(message["method"], message.get("params") or {})})
if MODE == "deaf":
    time.sleep(600)
