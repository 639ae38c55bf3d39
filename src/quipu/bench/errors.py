"""The error that ends a run of the bench."""

from quipu.model.errors import QuipuError


class BenchError(QuipuError):
    """A run cannot be made, or the broker's response was unexpected."""
