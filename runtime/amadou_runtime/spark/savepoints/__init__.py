"""Savepoints of runs on Spark.

- `stored_state`: the key groups in a checkpoint's state
- `writing`: writes a savepoint of a checkpoint
- `loading`: makes a checkpoint from a savepoint
"""
