"""The forms in which a store keeps key groups: in one value, by key, as a log, and in memory."""
