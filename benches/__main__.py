"""`python -m benches`: measure, print a table, and write the rows as JSON if asked to."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from pathlib import Path

import orjson

from benches.catalogue import NAMES, measure
from benches.options import QUICK, Options
from benches.page import Machine, as_markdown, print_table


def main(argv: list[str] | None = None) -> int:
    """Run the wanted rows; return 0 when all could be measured, whatever they say, else 1."""
    given = _arguments(argv)
    options = _options(given)
    machine = Machine.now()
    wanted = _wanted(given.only)
    results = measure(options, wanted, say=lambda line: print(line, file=sys.stderr, flush=True))
    machine = machine.after()
    if given.json:
        Path(given.json).write_bytes(orjson.dumps([row.to_json() for row in results], option=orjson.OPT_INDENT_2) + b"\n")
    if given.markdown:
        print(as_markdown(results, machine))
    else:
        print_table(results, machine)
    return 0 if {row.name for row in results} == wanted else 1


def _options(given: argparse.Namespace) -> Options:
    base = QUICK if given.quick else Options()
    set_ = {field.name: value for field in dataclasses.fields(Options) if (value := getattr(given, field.name, None)) is not None}
    return dataclasses.replace(base, **set_)


def _wanted(only: str) -> set[str]:
    names = {name.strip() for name in only.split(",") if name.strip()}
    unknown = sorted(names - set(NAMES))
    if unknown:
        raise SystemExit(f"no such row: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    return names or set(NAMES)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benches", description="Measure Turnyard on this machine, beside its floor and arq.")
    parser.add_argument("--only", default=os.environ.get("ONLY", ""), metavar="NAME,…", help="these rows alone (or ONLY=)")
    parser.add_argument("--json", default=os.environ.get("JSON", ""), metavar="FILE", help="write the rows there (or JSON=)")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/performance.md instead")
    parser.add_argument("--quick", action="store_true", default=bool(os.environ.get("QUICK")), help="see that it works (or QUICK=1)")
    for field in dataclasses.fields(Options):
        flag, kind = "--" + field.name.replace("_", "-"), type(field.default)
        if kind is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None)
        else:
            parser.add_argument(flag, type=kind, metavar="N", help=f"default: {field.default}")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
