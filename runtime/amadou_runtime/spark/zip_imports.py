"""Saves tasks on older versions of Spark most of their time.

Spark before 4.2 calls `importlib.invalidate_caches` in every task. Python before 3.13 then reads the directory of
`pyspark.zip` once for each package that was imported from it, which takes several times as long as a small task.
"""

import os
import sys
import zipimport
from functools import cache
from typing import Any


@cache
def keep_zip_directories() -> None:
    """Make this process read the directory of a zip file again only if the file has changed."""
    if sys.version_info >= (3, 13):
        return
    module: Any = zipimport
    read, directories = module.zipimporter.invalidate_caches, module._zip_directory_cache
    seen: dict[str, tuple[int, int]] = {}

    def read_if_changed(importer: Any) -> None:
        path = importer.archive
        try:
            status = os.stat(path)
        except OSError:
            read(importer)
            return
        state = (status.st_mtime_ns, status.st_size)
        if seen.get(path) == state and path in directories:
            importer._files = directories[path]
        else:
            seen[path] = state
            read(importer)

    module.zipimporter.invalidate_caches = read_if_changed
