"""Schema registries: a client of Confluent's HTTP interface, and a small registry of our own.

Start with client.py (what readers of messages need).  server.py serves what store.py knows;
`python -m quipu.pipeline.registry` runs it.
"""
