"""The deterministic simulator: real cores and real nodes in a world that one seed decides.

Time is virtual; the network drops, duplicates, delays and cuts; disks lose and tear what was not
flushed; processes crash, pause and come back.  After every step, checkers named after invariants
look at everything; after the faults the world heals and must converge.
"""
