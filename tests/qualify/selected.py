"""Runs a selection of the tests with pytest, and counts their outcomes.

conformance  all cases on Spark, on every store
tests        the other tests that are marked with qualify
browser      the console's pages in Chromium
packaging    wheels, packed jobs, manifests, and the services
matrix       all tests that use Spark, on each supported version of Spark and Python (scripts/matrix)
"""

import json
import shlex
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.qualify.command import parser_of, script
from tests.qualify.figures import ROOT, Piece

ALL = "qualify or not qualify"
SELECTIONS: Mapping[str, Sequence[str]] = {
    "conformance": ("-m", "spark or qualify", "tests/conformance"),
    "tests": ("-m", "qualify", "tests", "examples", "--ignore=tests/conformance", "--ignore=tests/packaging"),
    "browser": (
        *("-m", ALL, "tests/plugins/test_console_in_browser.py"),
        "tests/spark/test_console_in_browser_on_spark.py",
    ),
    "packaging": ("-m", ALL, "tests/packaging"),
}
PARTS = (*SELECTIONS, "matrix")


def main() -> int:
    part = sys.argv.pop(1) if sys.argv[1:2] and sys.argv[1] in PARTS else "PART"
    parser = parser_of(part, __doc__)
    parser.add_argument(
        "-k", metavar="EXPRESSION", help="only tests whose names match; for matrix, only these versions"
    )
    chosen = parser.parse_args()
    if part == "PART":
        parser.error(f"name a part: {', '.join(PARTS)}")
    options = {} if chosen.k is None else {"k": chosen.k}
    piece = Piece(chosen.figures, part, append=chosen.append, **options)
    if part == "matrix":
        _matrix(piece, (chosen.k or "").split())
    else:
        words = [*SELECTIONS[part], *(["-k", chosen.k] if chosen.k else [])]
        run_tests(piece, words)
    return int(piece.has_found)


def run_tests(piece: Piece, words: Sequence[str]) -> None:
    """Run pytest, also if it is interrupted, and add the outcomes to the figures.

    :param words: its arguments
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}", *words]
        # a Ctrl-C reaches pytest too, which then writes its report
        with subprocess.Popen(command, cwd=ROOT) as process:
            while True:
                try:
                    status = process.wait()
                    break
                except KeyboardInterrupt:
                    continue
        cases = list(ET.parse(report).iter("testcase")) if report.exists() else []
    outcomes = Counter(_outcome(case) for case in cases)
    piece.tried(outcomes, seconds_of_tests=round(sum(float(case.get("time", 0)) for case in cases)))
    for case in cases:
        if _outcome(case) == "failed":
            name = case.get("name", "")
            path = case.get("classname", "").replace(".", "/")
            problem = next(child.get("message", "") for child in case if child.tag in ("failure", "error"))
            piece.found(f"{path}.py::{name}: {problem}", f"scripts/test {shlex.quote(f'{path}.py::{name}')} -m '{ALL}'")
    if status not in (0, 1, 5) and not outcomes["failed"]:  # 1: tests have failed; 5: no tests were selected
        piece.found(f"pytest ended with status {status}", f"pytest {shlex.join(words)}")


def _outcome(case: ET.Element) -> str:
    tags = {child.tag for child in case}
    return "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"


def _matrix(piece: Piece, versions: Sequence[str]) -> None:
    """Run scripts/matrix, which also writes its table in docs/running.md, version by version."""
    known = [version.name for version in script("matrix").VERSIONS]
    results = ROOT / ".matrix" / "results.json"
    for version in versions or known:
        status = subprocess.run([ROOT / "scripts" / "matrix", version], cwd=ROOT).returncode
        result = json.loads(results.read_text()).get(version, {}).get("all") if results.exists() else None
        if result is not None:
            piece.tried({f"{version} {outcome}": result[outcome] for outcome in ("passed", "skipped", "failed")})
        if status:
            piece.found(f"{version}: {result}", f"scripts/matrix {version}")


if __name__ == "__main__":
    sys.exit(main())
