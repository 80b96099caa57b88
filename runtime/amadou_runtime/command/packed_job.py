"""Writes the files with which `spark-submit` runs a job on machines that do not have the job's code."""

import hashlib
import io
import shlex
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from importlib.metadata import distribution, version
from importlib.util import find_spec
from pathlib import Path

from amadou_runtime.spark.modules import ModuleSource

PROGRAM = "run_packaged_job.py"
SCRIPT = "submit.sh"
ARCHIVE_SUFFIX = ".tar.gz"

_OURS = ("amadou", "amadou_runtime", "amadou_plugins")
_PROGRAM = '''"""Runs the packaged job with spark-submit. Written by `amadou package`."""

from importlib import import_module

from amadou_runtime import main

packaged_job = import_module({module!r}).{name}

if __name__ == "__main__":
    main(packaged_job)
'''
_SCRIPT = """\
#!/usr/bin/env bash
# Submits the packaged job to Spark. Written by `amadou package`.
#
#     {script} [OPTION OF SPARK-SUBMIT …] [-- OPTION OF THE JOB …]
#     {script} --master spark://HOST:7077 -- --checkpoint /shared/checkpoint
#
# Options of spark-submit are, for example, --master, --deploy-mode and --conf. The job has the options of `amadou run`.
# Relative paths are relative to the directory of this script.
set -euo pipefail
cd "$(dirname "$0")"

spark_options=() py_files="" archives="" # spark-submit would take only the last --py-files and --archives
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in
        --py-files) py_files+=,${{2:?--py-files needs a value}} && shift ;;
        --py-files=*) py_files+=,${{1#*=}} ;;
        --archives) archives+=,${{2:?--archives needs a value}} && shift ;;
        --archives=*) archives+=,${{1#*=}} ;;
        *) spark_options+=("$1") ;;
    esac
    shift
done
[ $# -eq 0 ] || shift

{unpack}exec "${{SPARK_HOME:+$SPARK_HOME/bin/}}spark-submit" \\
    {options} \\
    ${{spark_options[@]+"${{spark_options[@]}}"}} \\
    {program} "$@"
"""
_UNPACK = """\
# In client mode, the driver runs on this machine, with the same environment. Each archive has a name of its own.
if [ ! -d {environment} ]; then
    partial=$(mktemp -d environment.XXXXXX 2>&1) || {{
        echo "{script}: the environment cannot be unpacked ($partial): copy $PWD to a place that you can write to" >&2
        exit 1
    }}
    trap 'rm -rf "$partial"' EXIT
    tar -xzf {environment}{suffix} -C "$partial"
    [ -d {environment} ] || mv "$partial" {environment}
    rm -rf "$partial"
fi

"""


def write_modules(directory: Path, sources: Mapping[str, ModuleSource], *, with_amadou: bool) -> str:
    """Write a zip file with modules, and optionally with amadou, from which Python can import them. Return its name.

    :param sources: the modules by name
    """
    path = directory / "modules.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, source in sorted(sources.items()):
            place = name.replace(".", "/")
            if source.packed is None:  # Python finds a namespace package only through an entry for its directory
                archive.writestr(f"{place}/", b"")
            else:
                file = "/__init__.py" if source.is_package else ".py"
                archive.writestr(place + file, _encoded(zlib.decompress(source.packed)))
        if with_amadou:
            _add_amadou(archive)
    return named_by_checksum(path).name


def _encoded(source: bytes) -> bytes:
    """Return UTF-8 source code in the encoding that it declares."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    return source.decode().encode(encoding)


def write_wheel(directory: Path) -> Path:
    """Write a wheel of the installed amadou, even if it was installed from a clone. Return the wheel's path."""
    path = directory / f"amadou-{version('amadou')}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        info = _add_amadou(archive)
        names = [*archive.namelist(), f"{info}/RECORD"]
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in names))
    return path


def write_program(path: Path, module: str, name: str) -> None:
    """Write the main program.

    :param module: name of the module that contains the job
    :param name: the job's name in this module
    """
    path.write_text(_PROGRAM.format(module=module, name=name), encoding="utf-8")


def named_by_checksum(path: Path) -> Path:
    """Rename a file of a package so that its name contains its checksum, and return the new path. A run reads its files
    until it ends, so no later package may replace them.
    """
    stem, _, suffix = path.name.partition(".")
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return path.rename(path.with_name(f"{stem}-{checksum}.{suffix}"))


def write_script(path: Path, job: str, modules: str, environment: str | None) -> None:
    """Write the script that calls `spark-submit`.

    :param job: the job's name
    :param modules: name of the file with the modules
    :param environment: name of the environment; `None` if there is none
    """
    options = spark_options(job, modules, environment, more_modules='"$py_files"', more_archives='"$archives"')
    if environment is None:
        unpack = ""
        options.append('${archives:+--archives "${archives#,}"}')
    else:
        unpack = _UNPACK.format(script=SCRIPT, environment=environment, suffix=ARCHIVE_SUFFIX)
    text = _SCRIPT.format(
        script=SCRIPT,
        unpack=unpack,
        options=" \\\n    ".join(options),
        program=PROGRAM,
    )
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def spark_options(
    job: str, modules: str, environment: str | None, *, more_modules: str = "", more_archives: str = ""
) -> list[str]:
    """Return the options that the script passes to `spark-submit`.

    :param job: the job's name
    :param modules: name of the file with the modules
    :param environment: name of the environment; `None` if there is none
    :param more_modules: text to append to the modules, for the shell
    :param more_archives: text to append to the environment's archive, for the shell
    """
    options = [f"--name {shlex.quote(job)}", f"--py-files {modules}{more_modules}"]
    if environment is not None:
        archive = f"{environment}{ARCHIVE_SUFFIX}"
        options += [
            f"--archives {archive}#{environment}{more_archives}",
            f"--conf spark.pyspark.python=./{environment}/bin/python",
        ]
    return options


def _add_amadou(archive: zipfile.ZipFile) -> str:
    """Add the installed amadou, with the metadata from which it knows its version. Return the metadata's directory."""
    installed = distribution("amadou")
    info = f"amadou-{installed.version}.dist-info"
    for name, path in _files_of_amadou():
        archive.write(path, name)
    for name in ("METADATA", "WHEEL", "entry_points.txt", "licenses/LICENSE"):
        archive.writestr(f"{info}/{name}", installed.read_text(name) or "")
    return info


def _files_of_amadou() -> Iterator[tuple[str, Path]]:
    """Return the files of amadou's packages, with their names in a wheel."""
    for package in _OURS:
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        directory = Path(spec.origin).parent
        for path in sorted(directory.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield str(path.relative_to(directory.parent)), path
