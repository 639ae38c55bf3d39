"""Sinks: write the versions of views to files, tables and topics.

    sink.py   plans a sink, and writes one version after the other to its target

Start with sink.py.  Not here: writing to each kind of target (`pipeline/sinks`).
"""
