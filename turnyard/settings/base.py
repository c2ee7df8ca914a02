"""What every section of turnyard.yaml is made of: durations, numbers, and values that stand in files of their own."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}

Positive = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]


def _duration(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", str(value).strip())
    if found is None:
        raise ValueError("a duration is a number of seconds, or a number with ms, s, m, h or d, such as 90s")
    return timedelta(seconds=float(found[1]) * UNITS_S[found[2] or "s"])


Duration = Annotated[timedelta, BeforeValidator(_duration)]


class Section(BaseModel):
    """A group of keys: none unknown, none changed later, and any of them may be read from a file."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _read_files(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, dict):
            return data
        values = cast("dict[str, Any]", data)
        base = cast("dict[str, Path]", info.context or {}).get("base_dir", Path())
        out: dict[str, Any] = {}
        for name, value in values.items():
            stem = str(name).removesuffix("_file")
            if name in cls.model_fields or stem == name or stem not in cls.model_fields:
                out[name] = value
                continue
            if stem in values:
                raise ValueError(f"give {stem} or {name}, not both")
            out[stem] = _content(base / str(value), name)
        return out


def _content(path: Path, name: str) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{name}: {path} cannot be read ({error})") from None
