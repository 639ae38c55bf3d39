"""Tests of the room `launch`."""
