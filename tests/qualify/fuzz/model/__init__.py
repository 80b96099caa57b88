"""What a script gives by `docs/semantics.md`, computed with plain lists and obvious loops, and no code of amadou."""

from tests.qualify.fuzz.model.job import Results, results_of_model

__all__ = ["Results", "results_of_model"]
