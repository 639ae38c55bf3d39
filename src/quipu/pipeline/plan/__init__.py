"""Planning: turns statements into planned sources, and finds every error of a statement.

    sources.py         `plan_source`: plans a CREATE SOURCE, by passes over a draft, in this order
    draft.py           `Draft`: a source while it is planned, with what the passes have found
    options.py         pass: WITH options
    topic_location.py  pass: the cluster and its topics
    policies.py        pass: what is done with bad records; the order in which records count
    formats.py         pass: the specs of FORMAT clauses
    registries.py      specs of formats whose schemas are in a registry
    rows.py            pass: the columns of the value
    column_types.py    Arrow types of the types in a statement
    keys.py            pass: the key, or the columns that identify a row
    include.py         pass: metadata columns
    names.py           pass: final names of columns, all different
    start.py           pass: the offsets at which reading begins
    connections.py     checks CREATE CONNECTION, and finds the client's settings
    views.py           which objects a query reads; which are dropped together
    external_facts.py  `ExternalFacts`: what planning needs from outside, and how it is recorded

Start with sources.py.  Passes are pure but for the external facts that they use.
Not here: parsing (sql/), requests to Kafka and registries (live_facts.py), execution (spark/).
"""
