"""Errors of workers whose Python or packages differ from the driver's are explained in one line."""

import pytest

from amadou_runtime.spark.spark_errors import size_problem
from amadou_runtime.spark.worker_setup import last_error, setup_problem


def test_workers_with_another_python_are_named_on_spark_3_5() -> None:
    message = (
        "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
        "Traceback (most recent call last):\n"
        '  File "worker.py", line 1100, in main\n    raise PySparkRuntimeError(\n'
        "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different "
        "version (3, 11) than that in driver 3.10, PySpark cannot run with different minor versions.\n"
    )
    assert str(setup_problem(message)).startswith("the workers have Python 3.11, the driver has Python 3.10: install")
    assert last_error(message).startswith(
        "An exception was thrown from the Python worker. Please see the stack trace below. pyspark.errors."
    )


LOADING = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "worker_util.py", line 75, in read_command
    command = serializer.loads(file)
{}

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException
"""


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("ModuleNotFoundError: No module named 'shop.orders'", "the workers have no module shop: install it on all"),
        (
            "AttributeError: Can't get attribute 'KeyingStage' on <module 'amadou_runtime.spark.keying_stage'>",
            "the workers cannot load the job ([PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
            "AttributeError: Can't get attribute 'KeyingStage'",
        ),
    ],
)
def test_the_module_or_class_that_workers_cannot_load_is_named(error: str, shown: str) -> None:
    assert str(setup_problem(LOADING.format(error))).startswith(shown)


def test_errors_that_have_nothing_to_do_with_loading_a_job_are_not_explained() -> None:
    assert setup_problem("Job aborted\nModuleNotFoundError: No module named 'amadou'") is None


def test_a_message_is_cut_to_its_first_line_and_its_python_error() -> None:
    assert last_error("Job aborted\nDriver stacktrace:") == "Job aborted"
    assert last_error("") == ""
    assert last_error(LOADING.format("KeyError: 'a'")) == (
        "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: KeyError: 'a'"
    )


def test_results_that_the_driver_cannot_hold_are_named() -> None:
    sizes = "Total size of serialized results of 3 tasks (2.0 GiB) is bigger than spark.driver.maxResultSize (1 GiB)"
    assert str(size_problem(f"Job aborted due to stage failure: {sizes}")).startswith(
        "the driver could not receive its results, which must be smaller than spark.driver.maxResultSize. Sinks for"
    )
