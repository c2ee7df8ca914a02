"""The command line: what people type to build, run and look into a yard.

It starts roles as processes and imports none of them; everything heavy is imported by the command that needs it.
Data goes to stdout, talk to stderr, and every failure becomes a sentence and an exit code, never a traceback.
"""

from __future__ import annotations

from turnyard.cli.entry import app, main

__all__ = ["app", "main"]
