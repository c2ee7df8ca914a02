"""Does the report of proven rows tell the truth, also in a parallel run?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.spec_report import FAMILIES, family, promised, spans

PAGE = "| id | promise |\n|---|---|\n| turn-1 | a |\n| turn-2 | b |\n| turn-3 | c |\n| turn-4 | d |\n| L01 | e |\n| I1 | f |\n"
CONFTEST = """
from pathlib import Path
from tests.spec_report import SpecReport
def pytest_configure(config):
    config.addinivalue_line("markers", "spec(*ids): rows")
    out = None if hasattr(config, "workerinput") else Path("out.json").absolute()
    config.pluginmanager.register(SpecReport(Path(__file__).parent / "acceptance.md", json_path=out))
"""
TESTS = """
import pytest
@pytest.mark.spec("turn-1", "L01")
def test_one(): pass
@pytest.mark.spec("turn-1", "turn-2")
def test_two(): pass
@pytest.mark.spec("turn-2")
def test_two_fails(): assert False
@pytest.mark.spec("turn-3")
def test_three_is_skipped(): pytest.skip("not here")
@pytest.mark.spec("turn-4")
@pytest.mark.xfail
def test_four_is_expected_to_fail(): assert False
"""


@pytest.fixture
def yard(pytester: pytest.Pytester, root: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(root))
    for name in ("JSON", "SPEC", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    pytester.path.joinpath("acceptance.md").write_text(PAGE)
    pytester.makeconftest(CONFTEST)
    return pytester


@pytest.mark.parametrize("processes", [0, 2])
def test_a_row_is_proven_only_by_a_passing_test_when_none_fails(yard: pytest.Pytester, processes: int) -> None:
    yard.makepyfile(TESTS)
    outcome = yard.runpytest_subprocess("-n", str(processes), "-p", "no:cacheprovider")
    written = json.loads(yard.path.joinpath("out.json").read_text())
    assert written["turn"] == {"proven": ["turn-1"], "missing": ["turn-2", "turn-3", "turn-4"]}
    assert written["L"] == {"proven": ["L01"], "missing": []}
    assert written["I"] == {"proven": [], "missing": ["I1"]}
    assert tuple(written) == FAMILIES
    outcome.stdout.fnmatch_lines(["*turn *1/4*missing: 2-4"])


def test_a_mark_with_an_unknown_id_fails_the_run(yard: pytest.Pytester) -> None:
    yard.makepyfile("import pytest\n@pytest.mark.spec('turn-99')\ndef test_it(): pass\n")
    outcome = yard.runpytest_subprocess("-n", "0", "-p", "no:cacheprovider")
    assert outcome.ret != 0
    outcome.stdout.fnmatch_lines(["*turn-99 is not a row of acceptance.md*"])


def test_the_page_holds_every_row_of_every_family(root: Path) -> None:
    counts = dict.fromkeys(FAMILIES, 0)
    for row in promised(root / "docs" / "acceptance.md"):
        counts[family(row)] += 1
    assert counts == {"turn": 66, "runner": 53, "I": 16, "S": 24, "L": 61, "rival": 68, "trap": 85}


def test_a_promise_fits_on_a_line(root: Path) -> None:
    assert [row for row, promise in promised(root / "docs" / "acceptance.md").items() if len(promise) > 160] == []


def test_an_id_that_stands_twice_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "acceptance.md"
    page.write_text("| turn-1 | a |\n| turn-1 | b |\n")
    with pytest.raises(ValueError, match="turn-1 stands there twice"):
        promised(page)


def test_missing_rows_are_written_as_spans() -> None:
    assert spans(["turn-9", "turn-1", "turn-2", "turn-3", "turn-7"]) == "1-3 7 9"
