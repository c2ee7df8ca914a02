"""What a developer does with a project before anything runs: start one, try an agent, check the configuration."""

from __future__ import annotations

import fnmatch
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnyard.cli.options import Config, Json, settings_of
from turnyard.cli.output import say, write, write_json
from turnyard.errors import ConfigError, Conflict, NotFound

if TYPE_CHECKING:
    from turnyard.settings import Settings

TEMPLATES = ("app.py", "test_app.py", "pytest.ini", "hello.yaml", "turnyard.yaml", "compose.yaml")
IGNORED = ".turnyard/\n.vendor/\n__pycache__/\n"

config = typer.Typer(help="The configuration file.", no_args_is_help=True)


def init(directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where; made if it is not there.")] = Path()) -> None:
    """Write a first project: an agent with three tools, its tests, its configuration."""
    files = {name: _template(name) for name in TEMPLATES} | {".gitignore": IGNORED}
    taken = [name for name in files if (directory / name).exists()]
    if taken:
        raise Conflict(f"{directory} already has {', '.join(taken)}; choose another directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (directory / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{directory} cannot be written: {error}") from error
    for name in TEMPLATES:
        write(str(directory / name))
    go = "" if directory == Path() else f"cd {directory} && "
    say(f"next: {go}pytest -q && turnyard up app:app --detach")


def run(
    app: Annotated[str, typer.Argument(metavar="MOD:APP", help="Your app: `pkg.mod:app` or `path/file.py:app`.")],
    agent: Annotated[str, typer.Argument(metavar="AGENT")],
    text: Annotated[str, typer.Argument(metavar="TEXT")],
    model: Annotated[str | None, typer.Option("--model", metavar="PROVIDER:NAME", help="Another model, for this run.")] = None,
    as_json: Json = False,
) -> None:
    """Run one turn in this process: no server, nothing kept."""
    from turnyard.app import load_app
    from turnyard.lifecycle import run as run_loop

    found = load_app(app)
    if agent not in {manifest.name for manifest in found.manifests()}:
        raise NotFound(f"{app} has no agent {agent}; it has {', '.join(sorted(m.name for m in found.manifests()))}")
    result: Any = run_loop(_run_turn(found[agent], text, model))
    if as_json:
        calls = [{"name": call.name, "args": getattr(call, "args", None)} for call in result.calls]
        write_json({"state": result.state, "text": result.text, "output": result.output, "usage": result.usage, "calls": calls})
    elif result.text or result.state != "failed":
        write(result.text or "")
    if result.state == "failed":
        say(f"failed: {result.error['code']}: {result.error['message']}")
        raise typer.Exit(1)


async def _run_turn(agent: Any, text: str, model: str | None) -> Any:
    if model is None:
        return await agent.run(text)
    with agent.override(model=model):
        return await agent.run(text)


def version(as_json: Json = False) -> None:
    """Print the version."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        found = installed("turnyard")
    except PackageNotFoundError:
        found = "0 (a checkout that is not installed)"
    if as_json:
        write_json({"version": found})
    else:
        write(f"turnyard {found}")


@config.command("check")
def config_check(
    apps: Annotated[list[str] | None, typer.Argument(metavar="[MOD:APP...]", help="Load these apps as well.")] = None, path: Config = None
) -> None:
    """Check turnyard.yaml, the environment and, when named, the apps."""
    settings = settings_of(config=path)
    if apps:
        from turnyard.cli.apps import checked_apps

        manifests = [manifest for app in checked_apps(apps, settings) for manifest in app.manifests()]
        agents = {manifest.name for manifest in manifests}
        strangers = sorted(name for name, section in settings.agents.items() if name not in agents and section.tools is None)
        if strangers:
            raise ConfigError(f"agents.{strangers[0]}: no agent of this name in {', '.join(apps)}; there are {', '.join(sorted(agents))}")
        _warn_of_idle_globs(settings, {tool.name for manifest in manifests for tool in manifest.tools})
    say("ok")


def _warn_of_idle_globs(settings: Settings, tools: set[str]) -> None:
    """Say which rules match no tool: a misspelt one asks nobody. Tools of MCP servers and providers are not known here."""
    for n, section in enumerate(settings.approvals):
        for glob in section.tools:
            if not fnmatch.filter(tools, glob):
                say(
                    f"warning: approvals[{n}].tools: {glob!r} matches no tool of the apps; right if a tool provider brings one of that name"
                )


@config.command("show")
def config_show(path: Config = None, as_json: Json = False) -> None:
    """Print the settings in force, secrets hidden."""
    settings = settings_of(config=path)
    tree = settings.model_dump(mode="json")
    if settings.redis.url:
        from turnyard.state.target import safe_url

        tree["redis"]["url"] = safe_url(settings.redis.url)
    if as_json:
        write_json(tree)
        return
    import yaml

    write(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True), end="")


@config.command("schema")
def config_schema() -> None:
    """Print the JSON Schema of turnyard.yaml, for editors."""
    from turnyard.settings import Settings

    write_json(Settings.model_json_schema())


def _template(name: str) -> str:
    return resources.files("turnyard.cli").joinpath("templates", f"{name}.tmpl").read_text(encoding="utf-8")
