"""Calls functions of test modules in other processes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def results_in_processes(module: str, function: str, seeds: str) -> list[Any]:
    """Call a function in new processes with different hash seeds, which change the order of sets. Return its results.

    :param module: the function's module
    :param function: has no parameters, and returns a value that JSON can represent
    :param seeds: one hash seed for each process, each a single digit
    """
    program = f"import json; from {module} import {function}; print(json.dumps({function}()))"
    return [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", program],
                cwd=Path(__file__).parents[1],
                env={**os.environ, "PYTHONHASHSEED": seed},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for seed in seeds
    ]
