"""What other processes say of a module of the tests."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def told_elsewhere(module: str, function: str, seeds: str) -> list[Any]:
    """What a function gives in processes of their own, which order sets and dicts of hashes otherwise.

    :param module: the function's module
    :param function: takes nothing, and gives what JSON carries
    :param seeds: a process for each, of one digit
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
