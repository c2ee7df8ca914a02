"""`python -m tests.mutations`: apply every mutation and name the test that notices; exit 1 if one survives.

Words after it narrow the run to mutations whose names contain one of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.mutations.parts import PARTS
from tests.mutations.product import MUTATIONS
from tests.mutations.switches import COUNTERPARTS, switched_off
from tests.protocol.model import FIXES

AT_ONCE = 2
Job = tuple[str, Callable[[], str | None]]


def jobs(words: list[str]) -> list[Job]:
    """Return what is to be tried, by name."""
    found: list[Job] = [(f"the model without {rule}", switched_off(rule)) for rule in FIXES]
    found += [(f"the model where {name}", try_it) for name, try_it in PARTS.items()]
    found += [(f"the sources without {rule}", m.caught_by) for rule, m in COUNTERPARTS.items()]
    found += [(m.name, m.caught_by) for m in MUTATIONS]
    return [job for job in found if not words or any(word in job[0] for word in words)]


def main(words: list[str]) -> int:
    """Try them, two at a time; return how the process is to end."""
    wanted = jobs(words)
    caught = 0
    with ProcessPoolExecutor(AT_ONCE) as pool:
        running = {pool.submit(try_it): name for name, try_it in wanted}
        for done in as_completed(running):
            try:
                by = done.result()
            except LookupError as error:
                by, reason = None, f": {error}"
            else:
                reason = ""
            caught += by is not None
            print(f"{running[done]}: {f'caught by {by}' if by else f'NOT CAUGHT{reason}'}", flush=True)
    print(f"mutations={len(wanted)} caught={caught}")
    return 0 if caught == len(wanted) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
