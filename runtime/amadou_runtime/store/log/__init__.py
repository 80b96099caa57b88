"""The *log* store: Spark keeps a log of each key range's changes, and executors keep local views as caches.

Read it in this order:

- `processor`, `stage`: the stage in Spark's `transformWithState`
- `logged_range`: a key range during a batch, as the operator core sees it
- `entries`: the same as entries, with ids, values and times
- `segments`, `cleaning`, `merging`: the log
- `view`, `files`, `tree`, `index`, `records`, `steps`: the local view
"""
