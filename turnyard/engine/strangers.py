"""Was it the app's code that raised this, or is the task that runs it to end?

An app may raise what usually ends a task or a process: SystemExit, or the CancelledError of something it waited for. A
turn that let these pass would be dropped and begun again without end, so they are errors of the app as any other.
"""

from __future__ import annotations

import asyncio


def raised_by_app(error: BaseException) -> bool:
    """Tell whether an error that comes out of the app's code is its own; False when this task is being cancelled, or closed."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and not task.cancelling()
    return not isinstance(error, GeneratorExit)
