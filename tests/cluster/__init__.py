"""Clusters of real processes: killed, paused, cut off, emptied and restarted under load."""
