"""What `turnyard` understands, and how each ending becomes an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import typer

from turnyard.cli import approvals, chat, dead, demo, explain, files, jobs, migrate, operators, project, roles, up
from turnyard.cli.output import say
from turnyard.errors import TurnyardError
from turnyard.lifecycle import FAILED, INTERRUPTED, OK, exit_code

DEBUG_VARIABLE = "TURNYARD_DEBUG"

app = typer.Typer(
    name="turnyard",
    help="Run AI-agent turns on many machines over Redis.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
FIRST_STEPS, CLIENTS, OPERATORS, ROLES = "First steps", "Jobs and sessions", "Operators", "Roles"

app.command(rich_help_panel=FIRST_STEPS)(project.init)
app.command(rich_help_panel=FIRST_STEPS)(demo.demo)
app.command(rich_help_panel=FIRST_STEPS)(up.up)
app.command(rich_help_panel=FIRST_STEPS)(up.down)
app.command(rich_help_panel=FIRST_STEPS)(project.run)
app.command(rich_help_panel=CLIENTS)(chat.chat)
app.command(rich_help_panel=CLIENTS)(jobs.submit)
app.command(rich_help_panel=CLIENTS)(jobs.follow)
app.command(rich_help_panel=CLIENTS)(explain.explain)
app.command(rich_help_panel=OPERATORS)(operators.agents)
app.command(rich_help_panel=OPERATORS)(operators.doctor)
app.command(rich_help_panel=OPERATORS)(migrate.migrate)
app.command(rich_help_panel=OPERATORS)(project.version)
app.command(rich_help_panel=ROLES)(roles.dispatcher)
app.command(rich_help_panel=ROLES)(roles.worker)
app.command(rich_help_panel=ROLES)(roles.lifted)
app.command(rich_help_panel=ROLES)(roles.platform)
app.add_typer(jobs.group, name="jobs", rich_help_panel=CLIENTS)
app.add_typer(approvals.group, name="approvals", rich_help_panel=CLIENTS)
app.add_typer(files.group, name="files", rich_help_panel=CLIENTS)
app.add_typer(dead.group, name="dead", rich_help_panel=OPERATORS)
app.add_typer(operators.workers, name="workers", rich_help_panel=OPERATORS)
app.add_typer(project.config, name="config", rich_help_panel=OPERATORS)


def main() -> None:
    """Run the command line of this process and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command; return its exit code. Nothing is raised: a person reads a sentence instead."""
    try:
        answer: object = app(args=list(arguments), prog_name="turnyard", standalone_mode=False)
    except TurnyardError as error:
        say(f"turnyard: {error}")
        return exit_code(error)
    except (typer.Abort, KeyboardInterrupt):
        say("turnyard: interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough; keep the interpreter from complaining about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as error:  # noqa: BLE001 - the outermost edge: whatever it was, a person gets a sentence
        return _unforeseen(error)
    return answer if isinstance(answer, int) else OK


def _unforeseen(error: Exception) -> int:
    shown = getattr(error, "show", None)
    if callable(shown):  # a usage error of the option parser, which shows itself
        shown()
        return int(getattr(error, "exit_code", 2))
    if isinstance(error, TimeoutError):
        say(f"turnyard: {error or 'timed out; it is still running'}")
        return exit_code(error)
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exc()
    say(f"turnyard: unexpected {type(error).__name__}: {error} (set {DEBUG_VARIABLE}=1 to see where)")
    return FAILED
