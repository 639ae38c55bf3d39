"""Tests of the blocking client."""
