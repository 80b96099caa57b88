import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One local Spark for the whole test run."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    _need_spark()
    from amadou_runtime.spark import session

    spark = session("amadou-tests", master="local[2]", conf={"spark.ui.enabled": "false"})
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


def _need_spark() -> None:
    missing = []
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        missing.append("Java 17 or 21 (set JAVA_HOME, or put java on the PATH)")
    try:
        import pyspark  # noqa: F401
    except ImportError:
        missing.append("pyspark (pip install 'amadou[spark]')")
    if missing:
        reason = f"Spark cannot run here, it lacks {' and '.join(missing)}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
