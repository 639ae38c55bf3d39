"""Everything that parses foreign bytes, as functions that take bytes and must not crash."""
