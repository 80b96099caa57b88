"""The version of amadou."""

from importlib.metadata import PackageNotFoundError, version


def amadou_version() -> str | None:
    """Return the version of amadou in this process; `None` if it is not known."""
    try:
        return version("amadou")
    except PackageNotFoundError:
        return None
