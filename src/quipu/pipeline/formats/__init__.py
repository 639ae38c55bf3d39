"""Formats: bytes of keys and values to Arrow columns, a column at a time."""
