"""Sizes and times that decide how a key range's log is cleaned, and how its view is kept."""

import attrs


@attrs.frozen
class Limits:
    """Limits of a key range's log and view. Sizes are in bytes, and times in seconds.

    :param outdated: a log may be larger than twice its live entries by this size
    :param segments: number of segments above which neighbours are merged; four times as many as full segments would be,
        if that is more
    :param merged: maximum number of segments to merge in a batch
    :param indexed: minimum number of times to which a view's index is filled
    :param free: free space that a view may always have
    :param wait: time to wait while another process changes the view
    :param patience: time to wait if unlogged entries would be lost otherwise
    """

    outdated: int = 1 << 16
    segments: int = 128
    merged: int = 16
    indexed: int = 5_000
    free: int = 1 << 20
    wait: float = 1.0
    patience: float = 30.0


LIMITS = Limits()
