"""Files at the command line: what agents are given to read, and what they made."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from turnyard.cli.api import with_client
from turnyard.cli.options import Config, Json, Key, Url
from turnyard.cli.output import say, show, write, write_json
from turnyard.errors import ConfigError

COLUMNS = ("id", "name", "size", "media_type", "created_at", "expires_at")
File = Annotated[str, typer.Argument(metavar="FILE", help="The id that `files list` shows.")]

group = typer.Typer(help="Files of the tenant: for agents, and from them.", no_args_is_help=True)


@group.command("put")
def files_put(
    path: Annotated[Path, typer.Argument(metavar="PATH", exists=True, dir_okay=False, help="The file to keep.")],
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="What it is called; else its own name.")] = None,
    as_json: Json = False,
    url: Url = None,
    key: Key = None,
    config: Config = None,
) -> None:
    """Keep a file; prints its id, by which an agent's tools get it."""
    data = _read(path)
    file = with_client(lambda client: client.files.put(data, name=name or path.name), url=url, key=key, config=config)
    if as_json:
        write_json(file)
    else:
        write(file["id"])


@group.command("get")
def files_get(
    file: File,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="PATH", help="Where to; else to the standard output.")] = None,
    url: Url = None,
    key: Key = None,
    config: Config = None,
) -> None:
    """Get the content of a file."""
    data = with_client(lambda client: client.files.get(file), url=url, key=key, config=config)
    if output is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    try:
        output.write_bytes(data)
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error}") from error
    say(f"{len(data)} bytes in {output}")


@group.command("list")
def files_list(
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="As many at most, newest first.")] = 50,
    as_json: Json = False,
    url: Url = None,
    key: Key = None,
    config: Config = None,
) -> None:
    """List files, newest first."""
    found = with_client(lambda client: client.files.list(limit=limit), url=url, key=key, config=config)
    show(found, COLUMNS, as_json=as_json, empty="no file")


@group.command("rm")
def files_rm(file: File, url: Url = None, key: Key = None, config: Config = None) -> None:
    """Delete a file."""
    with_client(lambda client: client.files.delete(file), url=url, key=key, config=config)
    say(f"{file} is deleted")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
