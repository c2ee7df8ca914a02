"""Whether the examples that need no server do what they show."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

RUN = """
import runpy, sys
runpy.run_path("examples/local_agent.py", run_name="__main__")
print("imported:", sorted({"redis", "httpx", "arq", "fastapi"} & set(sys.modules)))
"""

SHOWN = """\
> what is the weather in Paris?
Let me look.
  [weather] asking the station of Paris
  [weather] 21 °C and sunny in Paris
> and in Fahrenheit, please
It is 21 °C, which is 70 °F, and sunny.
> thank you
You are welcome.
> can you get me an umbrella?
  [order] one umbrella, ordered
It is ordered. I will tell you when it is here.
  [state] waiting for order
Your umbrella is here.
  [state] succeeded
  [memory] 12 messages became: They talked about the weather and bought an umbrella.
> thank you, goodbye
You are welcome.
imported: []
"""


def test_the_local_agent_streams_is_steered_waits_and_compacts_without_a_server_or_a_key(root: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("REDIS", "TURNYARD", "OPENAI"))}
    env |= {"PYTHONPATH": str(root), "PYTHONUTF8": "1"}
    done = subprocess.run([sys.executable, "-c", RUN], cwd=root, env=env, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == SHOWN


def test_the_strategy_of_the_page_on_strategies_runs_and_says_what_the_page_says(root: Path) -> None:
    page = (root / "docs" / "strategies.md").read_text(encoding="utf-8")
    code, said = (page.partition(f"```{language}\n")[2].partition("```")[0] for language in ("python", "text"))
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False, timeout=30)
    assert (done.stdout, done.returncode) == (said, 0), done.stderr
