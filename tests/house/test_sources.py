"""Do the sources keep the rules that no linter knows?"""

from __future__ import annotations

import ast
import importlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutations.product import MUTATIONS
from tests.mutations.switches import COUNTERPARTS

PACKAGES = ("turnyard", "dispatcher", "workers", "platforms")
SIZED = (*PACKAGES, "benches", "examples")
MAX_LINES = 400
VAGUE = {"utils", "util", "helpers", "common", "manager", "misc"}
# Spelled in two parts, so that this file passes its own test.
FORBIDDEN = (
    "/wor" + "k/",
    "/tmp/t" + "y",
    "pypi" + ".org",
    "pythonhosted" + ".org",
    "npmjs" + ".org",
    "debian" + ".org",
    "-----BEGIN " + "PRIVATE",
)


def sources(root: Path) -> Iterator[Path]:
    for package in SIZED:
        for path in (root / package).rglob("*"):
            if path.suffix in {".py", ".lua"}:
                yield path


def committed(root: Path) -> list[Path]:
    """Every file of the project: git knows them; a copy without git is walked."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root, capture_output=True, check=False
    )
    if listed.returncode == 0:
        return [root / name.decode() for name in listed.stdout.split(b"\0") if name]
    return [path for path in root.rglob("*") if path.is_file() and not {".venv", "__pycache__"} & set(path.parts)]


def modules_with_all(root: Path) -> Iterator[str]:
    for package in PACKAGES:
        for path in (root / package).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names = [t.id for node in tree.body if isinstance(node, ast.Assign) for t in node.targets if isinstance(t, ast.Name)]
            if "__all__" in names:
                yield ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def test_no_source_file_is_longer_than_a_reader_can_hold(root: Path) -> None:
    sizes = {str(path.relative_to(root)): len(path.read_text(encoding="utf-8").splitlines()) for path in sources(root)}
    assert {path: lines for path, lines in sizes.items() if lines > MAX_LINES} == {}


def test_every_module_is_named_after_a_thing(root: Path) -> None:
    assert [str(path.relative_to(root)) for path in sources(root) if path.stem in VAGUE] == []


def test_every_module_says_what_it_answers(root: Path) -> None:
    modules = [path for path in sources(root) if path.suffix == ".py" and path.stat().st_size]
    assert [str(path.relative_to(root)) for path in modules if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))] == []


def test_every_script_says_what_its_keys_and_answers_are(root: Path) -> None:
    scripts = list((root / "turnyard" / "state" / "lua").glob("*.lua"))
    assert [path.name for path in scripts if not path.read_text(encoding="utf-8").startswith(("--", "#!lua"))] == []


def test_all_lists_exist_and_are_complete(root: Path) -> None:
    wrong: dict[str, list[str]] = {}
    for name in modules_with_all(root):
        module = importlib.import_module(name)
        listed: list[str] = list(module.__all__)
        missing = [item for item in listed if not hasattr(module, item)]
        repeated = sorted({item for item in listed if listed.count(item) > 1})
        if missing or repeated:
            wrong[name] = missing + repeated
    assert wrong == {}


@pytest.mark.parametrize("word", FORBIDDEN)
def test_no_file_names_this_machine_or_a_registry(root: Path, word: str) -> None:
    found = [str(path.relative_to(root)) for path in committed(root) if path.is_file() and word.encode() in path.read_bytes()]
    assert found == []


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-server.lock"])
def test_the_lock_holds_names_versions_and_hashes_only(root: Path, lock: str) -> None:
    for line in (root / lock).read_text(encoding="utf-8").splitlines():
        if line.startswith("    "):
            assert line.strip().startswith("--hash=sha256:"), line
        else:
            assert "==" in line, line
            assert "://" not in line, line
            assert not line.startswith("-"), line


def test_the_image_installs_the_versions_that_are_tested(root: Path) -> None:
    def pins(name: str) -> set[str]:
        return {line.split()[0] for line in (root / name).read_text(encoding="utf-8").splitlines() if "==" in line}

    assert pins("requirements-server.lock") <= pins("requirements.lock")


def test_every_mutation_finds_its_text_and_its_test(root: Path) -> None:
    """A rule that moves takes its mutation along, in tests/mutations."""
    stale: list[str] = []
    for mutation in (*MUTATIONS, *COUNTERPARTS.values()):
        stale += [
            f"{mutation.name}: {edit.file} no longer says {edit.was!r}"
            for edit in mutation.edits
            if edit.was not in (root / edit.file).read_text()
        ]
        path, _, test = mutation.tests[0].partition("::")
        if test and f"def {test}(" not in (root / path).read_text():
            stale.append(f"{mutation.name}: there is no {mutation.tests[0]}")
    assert stale == []
