"""`quipu bench placement`: the cores of managed placement on clusters larger than any (D34).

    command.py  the command: runs the sizes, prints the table
    events.py   what happens to the cluster, and what is measured of each event
    model.py    `PlacementModel`: the replicas and leaders of every partition, in memory
    picture.py  draws time and memory over the size

Start with events.py.  Real are `place` and `Planner` of controller/managed; there are no brokers,
and no metadata log.
"""
