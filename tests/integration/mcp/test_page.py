"""Does the example of the page on MCP servers do what it shows, and can what the page declares be declared?"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path


def test_the_example_offers_what_is_allowed_and_answers_with_it(root: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(root), "PYTHONUTF8": "1"}
    done = subprocess.run(
        [sys.executable, "examples/mcp_agent.py"], cwd=root, env=env, capture_output=True, text=True, check=False, timeout=50
    )
    assert (done.stdout, done.returncode) == ("offered: shop_get_stock\nThere are 7 pieces of hinge.\n", 0), done.stderr


def test_what_the_page_declares_can_be_declared(root: Path) -> None:
    page = (root / "docs" / "mcp.md").read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(found) == 4
    for code in found:
        exec(compile(code, "docs/mcp.md", "exec"), {"__name__": "page"})
