"""Tests of the client's requests about a cluster itself."""
