"""Peers that do not keep to the protocol, at a node that serves others meanwhile."""
