import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from tests.services import (
    Bucket,
    KafkaLogin,
    OwnService,
    Storage,
    bucket,
    kafka_login,
    need,
    new_database,
    new_storage,
    own_service,
    unavailable,
)

from amadou._connectors import secret as _secret
from amadou.spark_versions import spark_version

CHECKOUT = Path(__file__).resolve().parent.parent

settings.register_profile("amadou", deadline=None, max_examples=50)  # how long one takes says more of the machine
settings.load_profile("amadou")


_LONGEST = ("tests/spark/", "test_package.py", "test_kafka_connectors.py", "test_own_connectors.py")
"""Files that take minutes, as parts of their paths."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests of `scripts/qualify`, skip those that need a newer Spark, and run the longest files first: at the
    end of a parallel run, one process would otherwise wait for the other.
    """
    if "qualify" not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker("qualify")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("qualify")]
    for item in items:
        needed = max((mark.args for mark in item.iter_markers("needs_spark")), default=())
        if needed and spark_version() < needed:
            version = ".".join(map(str, needed))
            item.add_marker(pytest.mark.skip(reason=f"needs Spark {version} or newer"))
    items.sort(key=lambda item: not any(part in item.path.as_posix() for part in _LONGEST))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how long the files took that took longest, as `--durations` does for tests, and each folder."""
    if not terminalreporter.config.getoption("durations"):
        return
    seconds: Counter[str] = Counter()
    for report in chain(*terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            seconds[report.fspath] += report.duration
    terminalreporter.section("slowest files")
    for file, taken in seconds.most_common(30):
        terminalreporter.write_line(f"{taken:7.1f}s {file}")
    rooms: Counter[str] = Counter()
    for file, taken in seconds.items():
        rooms["/".join(file.split("/")[:2] if file.count("/") > 1 else file.split("/")[:1])] += taken
    for room, taken in rooms.most_common():
        terminalreporter.write_line(f"{taken:7.1f}s {room}")
    terminalreporter.write_line(f"{seconds.total():7.1f}s in all files")


@pytest.fixture(autouse=True)
def _secrets_of_one_test() -> Iterator[None]:
    """Lets no test's secrets hide words in the errors of others."""
    known = set(_secret._revealing)
    yield
    _secret._revealing.clear()
    _secret._revealing.update(known)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One local Spark for the whole test run."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    _need_spark()
    from amadou_runtime.spark import session

    # Hundreds of queries run in it: it keeps some 2 MB of each.
    conf = {"spark.ui.enabled": "false", "spark.driver.memory": "4g"}
    if "AMADOU_S3" in os.environ:
        conf |= bucket().spark_conf
    spark = session("amadou-tests", master="local[2,1]", conf=conf)
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Finds a file of the folder `shared`, which stands beside the checkout or where AMADOU_SHARED says."""
    folder = Path(os.environ.get("AMADOU_SHARED", CHECKOUT.parent / "shared"))

    def find(name: str) -> Path:
        path = folder / name
        if not path.exists():
            pytest.skip(f"needs {path}: put the folder shared beside the checkout or set AMADOU_SHARED")
        return path

    return find


@pytest.fixture(scope="session")
def kafka() -> str:
    """The bootstrap address of a Kafka broker that all tests share. It makes no topics by itself."""
    return need("Kafka", "AMADOU_KAFKA")


@pytest.fixture(scope="session")
def schema_registry() -> str:
    """The URL of a schema registry that all tests share."""
    return need("the schema registry", "AMADOU_SCHEMA_REGISTRY")


@pytest.fixture(scope="session")
def kafka_sasl() -> KafkaLogin:
    """The same broker, as it is reached with SASL PLAIN over plain text."""
    return kafka_login()


@pytest.fixture
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL database of the test's own, with the name and password of a superuser."""
    with new_database() as url:
        yield url


@pytest.fixture(scope="session")
def hdfs() -> str:
    """The URL of an HDFS that all tests share, such as `hdfs://127.0.0.1:9000`."""
    return need("HDFS", "AMADOU_HDFS")


@pytest.fixture(scope="session")
def yarn() -> Path:
    """The directory with the configuration of a YARN cluster that all tests share."""
    return Path(need("YARN", "AMADOU_YARN_CONF"))


@pytest.fixture(scope="session")
def s3() -> Bucket:
    """A bucket that all tests share."""
    return bucket()


@pytest.fixture(params=[pytest.param("hdfs", marks=pytest.mark.qualify), "s3", "other"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """A new directory on HDFS, on S3, and on a file system that can replace no file."""
    return new_storage(request.param, tmp_path)


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[OwnService]:
    """A Kafka broker of the test's own, to stop and start."""
    need("Kafka", "AMADOU_KAFKA")
    yield from own_service("kafka", tmp_path / "kafka")


@pytest.fixture
def own_postgres(tmp_path: Path) -> Iterator[OwnService]:
    """A PostgreSQL of the test's own, to stop and start."""
    need("PostgreSQL", "AMADOU_POSTGRES")
    yield from own_service("postgres", tmp_path / "postgres")


@pytest.fixture(scope="session")
def _chromium() -> Iterator[Any]:
    from tests.browser import headless_chromium, missing_programs

    if missing := missing_programs():
        unavailable(missing)
    with headless_chromium() as chromium:
        yield chromium


@pytest.fixture
def chromium(_chromium: Any) -> Iterator[Any]:
    """A browser as a new user has it. Its log must have no warnings or errors at the end of the test."""
    _chromium.reset()
    _chromium.problems()
    yield _chromium
    assert _chromium.problems() == []


def _need_spark() -> None:
    missing = []
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        missing.append("Java 17 or 21 (set JAVA_HOME, or put java on the PATH)")
    try:
        import pyspark  # noqa: F401
    except ImportError:
        missing.append("pyspark (pip install 'amadou[spark]')")
    if missing:
        unavailable(f"Spark cannot run here, it lacks {' and '.join(missing)}")
