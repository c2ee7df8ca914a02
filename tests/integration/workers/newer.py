"""The roles of a version that knows one schema more: `python -m tests.integration.workers.newer ROLE ARGS`."""

from __future__ import annotations

import sys

from dispatcher.__main__ import main as dispatcher
from turnyard.state.schema import Schemas
from workers.command import main as worker

NEWER = Schemas(1, 2)

if __name__ == "__main__":
    role, arguments = sys.argv[1], sys.argv[2:]
    sys.exit(dispatcher(arguments, schemas=NEWER) if role == "dispatcher" else worker([role, *arguments], schemas=NEWER))
