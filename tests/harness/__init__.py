"""Helpers that tests share: real nodes and clusters as processes, clients, checkers."""
