"""What `make soak` runs for as long as it is told to: faults and hostile requests by chance.

    cluster_faults    clusters of processes under kills, pauses, cut links and bad disks
    diskless_faults   diskless topics while nodes, the database and the store fail
"""
