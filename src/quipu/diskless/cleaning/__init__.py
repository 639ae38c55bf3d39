"""Removes what diskless topics need no longer: old records, dead objects, orphans, sparse objects.

    limits.py     how often, how much and how late: the numbers of all passes, and their relations
    stats.py      what the passes have done
    services.py   what every pass uses
    shares.py     which node does what
    retention.py  old records leave their logs; producers that are gone are forgotten
    deletion.py   objects in which nothing is left are deleted, after a grace period
    receipts.py   what deleted objects said about objects that stay is written once more
    ownership.py  a store says which control plane its objects belong to
    orphans.py    objects that were stored and never committed are found and deleted
    plan.py       which sparse objects are written together as one (core)
    rewriting.py  carries out such a plan
    cleaner.py    `DisklessCleaner`: runs all passes, on every node

Start with `cleaner`.  Every node runs every pass; nothing is locked.  Each step may be repeated,
by the same node or another, and may end anywhere: the next pass finds what is left.

Not here: which records are old (the control plane's `retain`), the bytes of objects (objects/),
and the remote tier (tiering/).
"""
