"""The backends that managers are tested on: those of the contract."""

from tests.contract.metadata_backend.conftest import under_test

__all__ = ["under_test"]
