"""Tests of what is read next."""
