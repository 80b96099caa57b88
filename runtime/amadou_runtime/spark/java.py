"""Java as Spark's launcher finds it."""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_SCRIPT = """#!/bin/sh
# Runs Java without the module that Spark's launcher adds: Java warns about it, and only MLlib uses it.
for option do
    shift
    if [ "$option" = --add-modules=jdk.incubator.vector ]; then {home}; else set -- "$@" "$option"; fi
done
exec {java} "$@"
"""


@contextmanager
def without_incubator_modules(java: str) -> Iterator[None]:
    """Within this context, let Spark's launcher start Java without a module that Java warns about on the console.

    :param java: path of the Java program
    """
    home = os.environ.get("JAVA_HOME")
    with TemporaryDirectory(prefix="amadou-java-") as directory:
        script = Path(directory) / "bin" / "java"
        script.parent.mkdir()
        restore = "unset JAVA_HOME" if home is None else f"export JAVA_HOME={shlex.quote(home)}"
        script.write_text(_SCRIPT.format(home=restore, java=shlex.quote(java)))
        script.chmod(0o700)
        if not os.access(script, os.X_OK):  # a noexec directory: Java shows its warning
            yield
            return
        os.environ["JAVA_HOME"] = directory
        try:
            yield
        finally:
            os.environ.pop("JAVA_HOME")
            if home is not None:
                os.environ["JAVA_HOME"] = home
