"""Controls how the Spark launcher starts Java."""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_SCRIPT = """#!/bin/sh
# Runs Java without a module that the Spark launcher adds: Java warns about the module, and only MLlib uses it.
case " $* " in
*" org.apache.spark.launcher.Main "*) ;; # prints the command of the driver, which runs this script again
*)
    {variables}
    for option do
        shift
        [ "$option" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$option"
    done
    ;;
esac
exec {java} "$@"
"""


@contextmanager
def adapted_launcher(java: str, *, unzipped: bool) -> Iterator[None]:
    """Within the context, make the Spark launcher start Java without the incubator module so that Java does not log a
    warning.

    :param java: path of the Java executable
    :param unzipped: `True` to let workers import pyspark from where it is installed. Java finds Spark's zip of pyspark
        by SPARK_HOME, and places it before the installed pyspark; it has no compiled modules, so each Python process
        that Java starts takes 0.9 s rather than 0.2 s. Each start of a query with the store log starts one.
    """
    home = os.environ.get("JAVA_HOME")
    with TemporaryDirectory(prefix="amadou-java-") as directory:
        script = Path(directory) / "bin" / "java"
        script.parent.mkdir()
        variables = "unset JAVA_HOME" if home is None else f"export JAVA_HOME={shlex.quote(home)}"
        if unzipped:
            variables += "; unset SPARK_HOME"
        script.write_text(_SCRIPT.format(variables=variables, java=shlex.quote(java)))
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
