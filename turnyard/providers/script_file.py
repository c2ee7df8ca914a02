"""What a scripted model's YAML file says: its replies, checked and compiled once.

A mistake is found when the file is read, with the line it stands on, and never in the middle of a turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import orjson
import yaml

from turnyard.errors import ConfigError

Fault = Literal["429", "500", "garbage", "cut"]

_TOP = frozenset({"replies", "loop"})
_REPLY = frozenset({"when", "text", "calls", "delay", "chunks", "error"})
_CALL = frozenset({"name", "args"})
_FAULTS = frozenset({"429", "500", "garbage", "cut"})
_MAX_CHUNKS = 10_000


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """A call that a reply makes; strings in `args` may hold {name} of the reply's `when`."""

    name: str
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. `delay_s` is waited before each of `chunks` pieces of the text; `when` None fits any text."""

    text: str
    calls: tuple[ScriptCall, ...] = ()
    when: re.Pattern[str] | None = None
    delay_s: float = 0.0
    chunks: int = 1
    error: Fault | None = None


@dataclass(frozen=True, slots=True)
class Script:
    """A whole file. With `loop` the replies start over after the last one."""

    replies: tuple[Reply, ...]
    loop: bool = False


def read_script(path: Path) -> Script:
    """Read and check a script file.

    Raises:
        ConfigError: it is not there, is not YAML, or says something unknown; the message names the line.
    """
    try:
        root = _node(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"scripted model {path}: {error.strerror}; a relative path is looked for beside the app file") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"scripted model {path}: not YAML: {error}") from error
    return _Reader(path).script(root)


def _node(text: str) -> yaml.Node | None:
    return cast("yaml.Node | None", yaml.compose(text, Loader=yaml.SafeLoader))  # pyright: ignore[reportUnknownMemberType]


class _Reader:
    """Walks the nodes of one file, which know their lines."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def script(self, root: yaml.Node | None) -> Script:
        if root is None:
            raise ConfigError(f"scripted model {self._path}: the file is empty; it needs replies:")
        fields = dict(self._fields(root, _TOP, "the file"))
        if "replies" not in fields:
            raise self._wrong(root, "there is no replies: list")
        replies = tuple(self._reply(node) for node in self._items(fields["replies"], "replies"))
        if not replies:
            raise self._wrong(fields["replies"], "replies: is empty")
        loop = self._value(fields["loop"]) if "loop" in fields else False
        if not isinstance(loop, bool):
            raise self._wrong(fields["loop"], "loop: must be true or false")
        return Script(replies, loop)

    def _reply(self, node: yaml.Node) -> Reply:
        fields = dict(self._fields(node, _REPLY, "a reply"))
        if not fields.keys() & {"text", "calls", "error"}:
            raise self._wrong(node, "a reply needs text:, calls: or error:")
        return Reply(
            text=self._text(fields.get("text")),
            calls=tuple(self._call(n) for n in self._items(fields["calls"], "calls")) if "calls" in fields else (),
            when=self._pattern(fields.get("when")),
            delay_s=float(self._number(fields.get("delay"), "delay", 0.0)),
            chunks=self._chunks(fields.get("chunks")),
            error=self._fault(fields.get("error")),
        )

    def _call(self, node: yaml.Node) -> ScriptCall:
        fields = dict(self._fields(node, _CALL, "a call"))
        name = self._value(fields["name"]) if "name" in fields else None
        if not isinstance(name, str) or not name:
            raise self._wrong(node, "a call needs a name:")
        return ScriptCall(name, self._args(fields["args"]) if "args" in fields else {})

    def _args(self, node: yaml.Node) -> dict[str, Any]:
        args: object = self._value(node)
        try:
            orjson.dumps(args)
        except TypeError as error:
            raise self._wrong(node, f"args: cannot be JSON: {error}") from error
        if not isinstance(args, dict):
            raise self._wrong(node, "args: must be a mapping of argument names to values")
        return cast("dict[str, Any]", args)

    def _text(self, node: yaml.Node | None) -> str:
        value = "" if node is None else self._value(node)
        if not isinstance(value, str):
            raise self._wrong(cast("yaml.Node", node), "text: must be a string; put it in quotes")
        return value

    def _pattern(self, node: yaml.Node | None) -> re.Pattern[str] | None:
        if node is None:
            return None
        value = self._value(node)
        try:
            return re.compile(str(value))
        except re.error as error:
            raise self._wrong(node, f"when: is not a regular expression: {error}") from error

    def _number(self, node: yaml.Node | None, name: str, default: float) -> float:
        if node is None:
            return default
        value = self._value(node)
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise self._wrong(node, f"{name}: must be a number of 0 or more")
        return value

    def _chunks(self, node: yaml.Node | None) -> int:
        value = self._number(node, "chunks", 1)
        if not isinstance(value, int) or not 1 <= value <= _MAX_CHUNKS:
            raise self._wrong(cast("yaml.Node", node), f"chunks: must be a whole number from 1 to {_MAX_CHUNKS}")
        return value

    def _fault(self, node: yaml.Node | None) -> Fault | None:
        if node is None:
            return None
        value = str(self._value(node))
        if value not in _FAULTS:
            raise self._wrong(node, f"error: {value} is not one of 429, 500, garbage, cut")
        return cast("Fault", value)

    def _fields(self, node: yaml.Node, known: frozenset[str], what: str) -> Iterator[tuple[str, yaml.Node]]:
        if not isinstance(node, yaml.MappingNode):
            raise self._wrong(node, f"{what} must be a mapping")
        seen: set[str] = set()
        for key, value in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
            name = str(self._value(key))
            if name not in known:
                raise self._wrong(key, f"{name}: is not known in {what}; known are {', '.join(sorted(known))}")
            if name in seen:
                raise self._wrong(key, f"{name}: stands twice in {what}")
            seen.add(name)
            yield name, value

    def _items(self, node: yaml.Node, name: str) -> list[yaml.Node]:
        if not isinstance(node, yaml.SequenceNode):
            raise self._wrong(node, f"{name}: must be a list")
        return cast("list[yaml.Node]", node.value)

    def _value(self, node: yaml.Node) -> Any:
        try:
            return cast("Any", yaml.SafeLoader("")).construct_document(node)
        except yaml.YAMLError as error:
            raise self._wrong(node, f"not a plain value: {error}") from error

    def _wrong(self, node: yaml.Node, what: str) -> ConfigError:
        return ConfigError(f"scripted model {self._path}, line {node.start_mark.line + 1}: {what}")
