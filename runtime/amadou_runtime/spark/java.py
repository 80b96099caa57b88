"""Controls how the Spark launcher starts Java."""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_SCRIPT = """#!/bin/sh
# Runs Java without a module that the Spark launcher adds: Java warns about the module, and only MLlib uses it.
for option do
    shift
    if [ "$option" = --add-modules=jdk.incubator.vector ]; then {home}; else set -- "$@" "$option"; fi
done
exec {java} "$@"
"""


@contextmanager
def without_incubator_modules(java: str) -> Iterator[None]:
    """Within the context, make the Spark launcher start Java without the incubator module so that Java does not log a
    warning.

    :param java: path of the Java executable
    """
    home = os.environ.get("JAVA_HOME")
    with TemporaryDirectory(prefix="amadou-java-") as directory:
        script = Path(directory) / "bin" / "java"
        script.parent.mkdir()
        restore = "unset JAVA_HOME" if home is None else f"export JAVA_HOME={shlex.quote(home)}"
        script.write_text(_SCRIPT.format(home=restore, java=shlex.quote(java)))
        script.chmod(0o700)
        if not os.access(script, os.X_OK):  # the directory is mounted with noexec: accept the warning
            yield
            return
        os.environ["JAVA_HOME"] = directory
        try:
            yield
        finally:
            os.environ.pop("JAVA_HOME")
            if home is not None:
                os.environ["JAVA_HOME"] = home
