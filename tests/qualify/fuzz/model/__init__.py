"""What a script gives by `docs/semantics.md`, computed with plain lists and obvious loops, and no code of amadou."""

from tests.qualify.fuzz.model.job import Given, given_by_model

__all__ = ["Given", "given_by_model"]
