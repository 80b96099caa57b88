import re


def shown(value: object) -> str:
    """Return the id of a test's parameter: a text that is the same in each process."""
    return re.sub("( object)? at 0x[^>]*", "", str(value))[:80]
