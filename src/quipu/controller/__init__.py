"""Cluster metadata: what exists, and how it may change.  Decides, and does no I/O.

The state
    state.py         `ClusterState`: brokers, chains, topics, settings; applies records
    members.py       brokers, and the chains that they are members of: values of the state
    chain_index.py   chains by node, and the topics on them
    racks.py         racks, and whether they can hold replicas
    placement.py     the kinds of placement of a partition, and the replica set of each
    topic_state.py   topics and partitions: values of the state
    derived_topics.py  topics after a change of brokers or chains
    resources.py     the kinds of resources that have settings
    invariants.py    what must hold of the state after each record

The metadata log
    records.py       the changes, as they are written to the log
    conversions.py   values of the state as records, and records as values
    snapshot.py      the records that build a whole state
    record_bounds.py         which records of another node are taken
    record_preconditions.py  which records about topics fit the state; others are left out

Decisions: (state, request) -> Decision
    decision.py      what a decision is: records to apply, and results to return after that
    brokers.py       register, fence, unfence, controlled shutdown, unregister
    chains.py        create, extend, promote; reconcile with the brokers that are up
    failed_replicas.py  partitions one of whose replicas has failed
    elections.py     preferred heads, and unclean ones
    reassignment.py  partitions that move to other nodes
    removal.py       chains, and nodes of chains, that are taken out for good
    migration.py     topics on chains that become diskless
    topics.py        create and delete topics, add partitions
    topic_requests.py  what clients request: new topics, more partitions
    configs.py       alter settings of topics, brokers, groups and client metrics
    producer_ids.py  reserve blocks of producer ids

Rules that they share
    assignments.py   which nodes the partitions of a request are assigned to, in which order
    derived_chains.py  the chains of partitions that are not on an operator's chain as it is
    placer.py        which chain a new topic goes to, by weight
    diskless.py      the replicas of diskless partitions: created, moved, elected
    managed/         managed placement: a replica of each diskless partition in each rack
    topic_limits.py  how many partitions there may be
    reconcile.py     the members that a chain or partition should have, by the brokers that are up
    internal_topics.py   what clients may not do to the cluster's own topics
    describe_configs.py  settings as clients see them, with where each value comes from

Start with state.py, then topics.py: a topic that is created is, in this order,

    CreatableTopic   of Kafka's CreateTopics request              (wire)
    NewTopic         what a client requests                       topic_requests.py
    TopicCreated     the decision, in the metadata log            records.py
    Topic            the topic in the state from then on          topic_state.py
    TopicResult      that topic, or why there is none             topics.py
    CreatableTopicResult   of Kafka's response                    (wire)

and there are no other types in between, for topics that a Metadata request creates as well.

The broker (broker/cluster) makes the records of a decision durable, applies them to the state, and
only then returns the results.  `ClusterState.apply` is the only writer of state, at run time and at
replay alike, so what a node knows is a function of its log.

Not here: the log (storage), the order of decisions and the waiting (broker/cluster), time, chance.
"""
