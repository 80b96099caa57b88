"""Pages of the docs name files, definitions and options that exist."""

import ast
import importlib
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from tests.browser import SCHEMES
from tests.commands import output
from tests.conformance.handlers import START
from tests.console_runs import ADDRESSES, image_of

from amadou.spark_versions import OLDEST
from amadou_runtime import TestRun

ROOT = Path(__file__).parents[1]
HOW_IT_WORKS = ROOT / "docs" / "how-it-works.md"
PAGES = [HOW_IT_WORKS, *ROOT.glob("CONTRIBUTING.md")]
FOLDERS = (ROOT, ROOT / "runtime" / "amadou_runtime")
"""Directories to which paths on these pages are relative."""
CHECKPOINT = {"offsets/N", "clock/N", "clock/N-1", "clock/N-began", "commits/N", "state/", "references/"}
"""Paths in a checkpoint, not in the repository."""

PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*)`")
FILE = re.compile(r"`([\w/.-]+\.py)`")
DEFINITIONS = re.compile(r"((?:`[\w.]+`(?:,\s+|\s+and\s+)?)+)\s+(?:in\s+|\()`([\w/.-]+\.py)`")
"""Names with the file that defines them: "`a` and `b` in `file.py`", "`a` (`file.py`)"."""


def existing(path: str) -> Path | None:
    return next((folder / path for folder in FOLDERS if (folder / path).exists()), None)


def defined_in(body: list[ast.stmt], within: str = "") -> Iterator[str]:
    """Yield the names of functions, classes and assignments of a file, also those inside classes."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield f"{within}{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from defined_in(node.body, f"{within}{node.name}.")
        if isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (f"{within}{target.id}" for target in targets if isinstance(target, ast.Name))


def definitions_on(page: Path) -> list[tuple[str, str]]:
    named = DEFINITIONS.findall(page.read_text())
    return [(name, file) for names, file in named for name in re.findall(r"`([\w.]+)`", names)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_path_on_a_page_for_developers_exists(page: Path) -> None:
    text = page.read_text()
    paths = {*PATH.findall(text), *FILE.findall(text)} - CHECKPOINT
    assert sorted(path for path in paths if existing(path) is None) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_name_on_a_page_for_developers_is_defined_in_the_file_that_the_page_names(page: Path) -> None:
    missing = [
        f"{name} in {file}"
        for name, file in definitions_on(page)
        if (path := existing(file)) is not None and name not in {*defined_in(ast.parse(path.read_text()).body)}
    ]
    assert missing == []


def test_each_class_and_method_in_how_it_works_exists() -> None:
    product = (path for folder in ("sdk", "runtime", "plugins") for path in (ROOT / folder).rglob("*.py"))
    known = {name for path in product for name in defined_in(ast.parse(path.read_text()).body)}
    named = set(re.findall(r"`([A-Z]\w+(?:\.\w+)?)`", HOW_IT_WORKS.read_text()))
    assert sorted(named - known) == []
    assert len(named) > 30


def test_how_it_works_names_more_than_40_definitions() -> None:
    assert len(definitions_on(HOW_IT_WORKS)) > 40


def test_the_picture_in_how_it_works_names_files_that_exist() -> None:
    files = re.findall(r"[\w/]+\.py", (ROOT / "docs" / "how-it-works.svg").read_text())
    core = ROOT / "runtime" / "amadou_runtime" / "core"
    assert len(files) > 8
    assert [file for file in files if existing(file) is None and not (core / file).exists()] == []


def test_the_docs_show_each_page_of_the_console_in_light_and_dark() -> None:
    """A new page of the console needs a picture in docs/console.md; `scripts/screenshots` makes it."""
    shown = set(re.findall(r"images/console-[\w-]+\.png", (ROOT / "docs" / "console.md").read_text()))
    written = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "images").glob("console-*")}
    needed = {image_of(page, scheme) for page in ADDRESSES for scheme in SCHEMES}
    assert {f"docs/{path}" for path in shown} == written == needed


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/deploying/*.md")), ids=lambda page: page.name)
def test_json_and_yaml_on_pages_about_deploying_can_be_parsed(page: Path) -> None:
    for language, text in re.findall(r"^```(json|yaml)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        assert (json.loads if language == "json" else yaml.safe_load)(text)


def test_options_of_jobs_on_pages_about_deploying_exist() -> None:
    known = set(re.findall(r"--[a-z-]+", output("run", "--help")))
    pages = "".join(page.read_text() for page in sorted(ROOT.glob("docs/deploying/*.md")))
    options = re.findall(r'(?<=")--[a-z-]+(?=",)|(?<=^    - )--[a-z-]+(?==)', pages, re.MULTILINE)
    assert set(options) <= known
    assert len(set(options)) > 4


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/deploying/*.md")), ids=lambda page: page.name)
def test_jobs_on_pages_about_deploying_serve_metrics_to_other_machines(page: Path) -> None:
    text = page.read_text()
    assert text.count("--metrics-host") >= text.count("--metrics-port") > 0
    assert not re.search(r"--metrics-host(?![ =]0\.0\.0\.0)", text)


def test_the_packages_for_emr_are_the_versions_that_were_tested() -> None:
    page = (ROOT / "docs" / "deploying" / "emr-serverless.md").read_text()
    tested = (ROOT / "docs" / "running.md").read_text()
    rows = re.findall(r"^\| ([\d.]+)\.\d+ \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| [^|]*EMR", tested, re.MULTILINE)
    assert len(rows) == 2
    for spark, python, pandas, pyarrow in rows:
        assert f"'pyspark=={spark}.*' pandas=={pandas} pyarrow=={pyarrow}" in page
        assert f"python{python}" in page


def test_the_page_for_systemd_installs_the_extras_that_its_options_need() -> None:
    page = (ROOT / "docs" / "deploying" / "standalone.md").read_text()
    (install,) = re.findall(r"pip install --find-links wheels 'amadou\[(.*?)\]'", page)
    assert "--metrics-port" in page
    assert {"spark", "prometheus"} <= set(install.split(","))
    assert "RestartPreventExitStatus=2\n" in page


def test_patterns_of_pkill_in_the_docs_match_only_the_driver_of_the_job() -> None:
    python = "./environment/bin/python /opt/click-counts/{} --checkpoint /shared/{}/checkpoint -p COUNTS=/shared/counts"
    java = "/usr/lib/jvm/bin/java -cp /opt/spark/jars/* org.apache.spark.deploy.SparkSubmit --py-files modules.zip {}"
    worker = "/opt/click-counts/environment/bin/python -m pyspark.daemon pyspark.worker"
    pages = "".join(page.read_text() for page in sorted(ROOT.glob("docs/deploying/*.md")))
    patterns = re.findall(r"(kubectl exec POD -- )?pkill .*?-f '(.*?)'", pages)
    assert len(patterns) == 4
    for pod, pattern in patterns:
        program = "main.py" if "main[.]py" in pattern else "run_packaged_job.py"
        assert re.search(pattern, python.format(program, "click-counts"))
        is_only_job = bool(pod)
        assert is_only_job or not re.search(pattern, python.format(program, "views"))
        assert not re.search(pattern, java.format(program))
        assert not re.search(pattern, worker)


def test_the_docs_name_the_oldest_version_of_spark_that_amadou_supports() -> None:
    oldest = ".".join(map(str, OLDEST))
    text = (ROOT / "docs" / "running.md").read_text()
    assert f"pyspark is older than {oldest}," in text
    assert f"amadou runs on Spark {oldest} " in text


def test_a_click_that_arrives_late_does_not_change_the_ranking_on_the_page_about_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "stages.md").read_text()
    [code] = [
        block
        for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        if "# ranking.py" in block
    ]
    (tmp_path / "ranking.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    run = TestRun(importlib.import_module("ranking").job)
    for second in (6, 12, 330):
        run.add_record({"page": "/a", "time": START + timedelta(seconds=second)}, "clicks")
    run.end_batch().add_record({"page": "/a", "time": START + timedelta(seconds=18)}, "clicks")
    result = run.run(flush=True)
    assert (result.records("top"), result.dropped) == ([[("/a", 2)], [("/a", 1)]], 1)
    assert [result.stage(name).keys() for name in ("views", "top")] == [[], []]
