"""The operator, which is the same on each engine: keying, timers, key groups, watermarks, references, lookups."""
