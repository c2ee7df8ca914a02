"""`python -m workers [lifted]`: supervise the children that run turns, or lifted tasks, of one or more apps."""

import signal
import sys


def _leave(*_: object) -> None:
    sys.exit(0)


if __name__ == "__main__":
    # Told to stop before there is anything to hand back: imports take a while, and an orderly end is one all the same.
    signal.signal(signal.SIGTERM, _leave)
    from .command import main

    sys.exit(main())
