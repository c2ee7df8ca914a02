"""What an agent answers when it answers with more than text: one JSON value of a declared type."""

from __future__ import annotations

from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from turnyard.errors import ConfigError

_FENCE = "```"


class Output:
    """The type of an agent's answers. `schema` is its JSON Schema."""

    def __init__(self, kind: Any, *, agent: str) -> None:
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(kind)
            self.schema: dict[str, Any] = self._adapter.json_schema()
        except (PydanticSchemaGenerationError, PydanticUserError) as error:
            raise ConfigError(f"agent {agent}: output={kind!r} has no JSON form ({error}); use a pydantic model or a dataclass") from error

    def read(self, text: str) -> Any:
        """Return the reply's value as plain JSON.

        Raises:
            ValueError: the text does not fit; the message names each fault, for the model to read.
        """
        try:
            value = self._adapter.validate_json(_unfenced(text))
        except ValidationError as error:
            faults = error.errors(include_url=False, include_input=False, include_context=False)
            where = [f"{'.'.join(map(str, f['loc'])) or 'the reply'}: {f['msg']}" for f in faults[:10]]
            raise ValueError("; ".join(where)) from None
        return self._adapter.dump_python(value, mode="json")

    def decode(self, value: Any) -> Any:
        """Return a stored value as the declared type."""
        return self._adapter.validate_json(orjson.dumps(value))

    def instructions(self) -> str:
        """Return what the model is told about the form of its answer."""
        schema = orjson.dumps(self.schema).decode()
        return f"Answer with one JSON value that fits this JSON Schema, and nothing else:\n{schema}"


def _unfenced(text: str) -> str:
    """Return the text without the code fence that many models put around JSON."""
    stripped = text.strip()
    if not (stripped.startswith(_FENCE) and stripped.endswith(_FENCE) and "\n" in stripped):
        return stripped
    return stripped[stripped.index("\n") : -len(_FENCE)].strip()
