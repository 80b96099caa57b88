"""Java as Spark's launcher finds it."""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_SCRIPT = """#!/bin/sh
# Runs Java without the module that Spark's launcher adds: Java warns of it, and only MLlib has a use for it.
for option do
    shift
    if [ "$option" = --add-modules=jdk.incubator.vector ]; then {home}; else set -- "$@" "$option"; fi
done
exec {java} "$@"
"""


@contextmanager
def without_incubator_modules(java: str) -> Iterator[None]:
    """Let Spark's launcher start Java without a module that Java warns of on the console, as long as this lasts.

    :param java: the program
    """
    home = os.environ.get("JAVA_HOME")
    with TemporaryDirectory(prefix="amadou-java-") as directory:
        script = Path(directory) / "bin" / "java"
        script.parent.mkdir()
        restore = "unset JAVA_HOME" if home is None else f"export JAVA_HOME={shlex.quote(home)}"
        script.write_text(_SCRIPT.format(home=restore, java=shlex.quote(java)))
        script.chmod(0o700)
        if not os.access(script, os.X_OK):  # nothing is run from there: the warning is shown
            yield
            return
        os.environ["JAVA_HOME"] = directory
        try:
            yield
        finally:
            os.environ.pop("JAVA_HOME")
            if home is not None:
                os.environ["JAVA_HOME"] = home
