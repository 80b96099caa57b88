"""Random jobs are run on an engine and by a model of `docs/semantics.md`, and their outputs are compared.

`python -m tests.qualify.fuzz --help` lists what can be set. A script (`scripts.py`) is a job and the steps of a test
run, made from a seed and a number (`generate.py`). `handlers.py` makes the job, `script_run.py` runs it, and `model.py`
says what it gives, without any code of amadou. `known.py` lists what is left out, and why.
"""
