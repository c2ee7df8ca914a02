"""How a file, the environment and flags become one tree of values, and which of them said what."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin

import yaml
from pydantic import BaseModel

from turnyard.errors import ConfigError

PREFIX = "TURNYARD__"
SHORT = {"REDIS_URL": "redis.url", "TURNYARD_URL": "client.url", "TURNYARD_API_KEY": "client.api_key", "TURNYARD_STATE": "state_dir"}
CONFIG_VARIABLE = "TURNYARD_CONFIG"
DEFAULT_FILE = Path("turnyard.yaml")

_REFERENCE = re.compile(r"\$\$\{|\$\{(\w+)(?::-([^}]*))?\}")

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sources:
    """The merged values, the folder that relative paths start from, and who gave each value."""

    values: Tree
    base_dir: Path
    file: str
    given: dict[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str])

    def origin(self, loc: tuple[int | str, ...]) -> str:
        """Return what gave the value at `loc`: a variable, a flag, or the file."""
        path = tuple(str(part) for part in loc)
        fitting = [name for key, name in self.given.items() if all(mine == its for mine, its in zip(key, path, strict=False))]
        return fitting[-1] if fitting else self.file


def read_sources(config: str | Path | None, flags: Mapping[str, Any], environ: Mapping[str, str]) -> Sources:
    """Read and merge everything; later sources win key by key.

    Raises:
        ConfigError: the file cannot be read or is not YAML, or a `${NAME}` in it is not set.
    """
    path = _config_path(config, environ)
    try:
        tree = cast("Tree", _filled(_read_yaml(path), environ, f"{path}")) if path else {}
    except RecursionError:
        raise ConfigError(f"{path}: it nests too deep, or an alias stands inside what it stands for") from None
    sources = Sources(tree, (path.absolute().parent if path else Path.cwd()), str(path or "settings"))
    for name, key in SHORT.items():
        if environ.get(name):
            _put(sources, tuple(key.split(".")), environ[name], name)
    for name, text in environ.items():
        if name.startswith(PREFIX):
            _put(sources, tuple(name.removeprefix(PREFIX).lower().split("__")), _parsed(text), name)
    for key, value in flags.items():
        if value is not None:
            _put(sources, tuple(key.split(".")), value, f"--{key.rpartition('.')[2].replace('_', '-')}")
    return sources


def nearest_names(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """Return the known names closest to the unknown key at `loc`."""
    here: Any = model
    for part in loc[:-1]:
        here = _inside(here, part)
    if not _is_model(here):
        return []
    return difflib.get_close_matches(str(loc[-1]), list(here.model_fields), n=2)


def _config_path(config: str | Path | None, environ: Mapping[str, str]) -> Path | None:
    given = config or environ.get(CONFIG_VARIABLE)
    if given:
        return Path(given)
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML in which a key stands once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = cast("Any", self.construct_object(key_node, deep=True))
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} stands twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _read_yaml(path: Path) -> Tree:
    try:
        data: Any = yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); correct --config or {CONFIG_VARIABLE}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}:" if mark else ""
        raise ConfigError(f"{path}:{line} not valid YAML: {getattr(error, 'problem', None) or error}") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: the file must hold keys and values, and holds a {type(data).__name__}")
    return cast("Tree", data)


def _filled(value: Any, environ: Mapping[str, str], where: str) -> Any:
    """Replace `${NAME}` and `${NAME:-default}` in every string; `$${` stands for `${` itself."""
    if isinstance(value, dict):
        return {k: _filled(v, environ, f"{where}: {k}" if ": " not in where else f"{where}.{k}") for k, v in cast("Tree", value).items()}
    if isinstance(value, list):
        return [_filled(v, environ, f"{where}[{i}]") for i, v in enumerate(cast("list[Any]", value))]
    if not isinstance(value, str):
        return value

    def replace(found: re.Match[str]) -> str:
        if found[0] == "$${":
            return "${"
        name, default = found[1], found[2]
        text = environ.get(name) or default
        if text is None:
            raise ConfigError(f"{where}: the environment variable {name} is not set; set it, or write ${{{name}:-a default}}")
        return text

    return _REFERENCE.sub(replace, value)


def _parsed(text: str) -> Any:
    """Return lists and objects as such; pydantic turns other texts into what the key wants."""
    if not text.startswith(("[", "{")):
        return text
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _put(sources: Sources, path: tuple[str, ...], value: Any, who: str) -> None:
    here = sources.values
    for part in path[:-1]:
        deeper = here.get(part)
        if not isinstance(deeper, dict):
            deeper = here[part] = {}
        here = cast("Tree", deeper)
    last = path[-1]
    # A value given higher up replaces the file that a lower source named for it, and the other way round.
    here.pop(last.removesuffix("_file") if last.endswith("_file") else f"{last}_file", None)
    here[last] = value
    sources.given[path] = who


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _inside(kind: Any, part: int | str) -> Any:
    """Return the type found under `part` of a value of type `kind`, None where that is not known."""
    if _is_model(kind):
        found = kind.model_fields.get(str(part))
        kind = found.annotation if found else None
    elif get_origin(kind) in (dict, list, tuple, Mapping):
        kind = get_args(kind)[-1]
    while get_origin(kind) in (Union, UnionType, Annotated):
        kind = next((arg for arg in get_args(kind) if arg is not type(None)), None)
    return kind
