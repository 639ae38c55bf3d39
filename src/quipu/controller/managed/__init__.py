"""Managed placement of diskless partitions: one replica in each rack, and as few moves as possible.

    topology.py     `Topology`: the racks as planning sees them
    load.py         `ReplicaLoad`: how many replicas each broker has; the least loaded ones
    planning.py     what is right and wrong about a partition's replicas, and the next step for it
    placing.py      the replicas of new partitions
    reconciling.py  the records that bring partitions to their target, a bounded number at a time
    describing.py   placements as administrators see them

Start with planning.py, at `assess`.  Everything here but `reconciling` and `describing` works on
plain values, so that it can be measured on clusters larger than any.

Not here: the states of racks (controller/racks.py), the placement of one partition in the metadata
(controller/placement.py), when reconciliation runs and how fast (broker/cluster/reconciliation.py).
"""
