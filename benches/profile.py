"""`python -m benches.profile plain|tool SECONDS`: a deployment under a closed loop, for a profiler to look at."""

from __future__ import annotations

import dataclasses
import sys

from benches.measured import speed
from benches.options import Options
from benches.stack import Stack, descendants, yard


def who_is_who(stack: Stack) -> str:
    """Return the process ids of a deployment."""
    lines = [f"server      {stack.server.pid}   (socket {stack.url.removeprefix('unix://')})"]
    for name, process in stack.processes.items():
        children = ", ".join(str(pid) for pid in descendants(process.pid))
        lines.append(f"{name:<11} {process.pid}" + (f"   (children {children})" if children else ""))
    return "\n".join(lines)


def main(agent: str, seconds: float) -> None:
    """Keep a deployment busy."""
    with yard() as stack:
        print(who_is_who(stack), flush=True)
        done = speed(stack, agent, dataclasses.replace(Options(), seconds=seconds))
        print(
            f"{done.per_s:,.0f} turns/s, {done.cpu_s_per_1000:.2f} CPU s per 1,000, {done.used.server_cpu_s * 1000 / done.turns:.2f} of it the server's"
        )


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
