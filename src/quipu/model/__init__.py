"""Types that every room shares: numbers, errors, batch types, topic names, settings.

    ids.py               types of numbers: offsets, epochs, ids of brokers and producers
    errors.py            errors, by what the caller must do about them; Kafka's error codes
    batch_types.py       the registry of batch types: one number per type
    partition_log.py     `PartitionLog`, the protocol by which all code uses a partition's log
    tiered_log.py        what a log offers to a remote tier, and what it needs from one
    batch_rules.py       which batches a topic accepts, according to its settings
    topics.py            topic names: which are legal, which clash, which are internal
    chains.py            the replicas of a partition, their states and their order
    migration.py         how far a topic is that becomes diskless
    listeners.py         the named addresses that clients connect to
    principals.py        on whose behalf a request is carried out
    settings.py          settings by name: looking them up, parsing, what a topic inherits
    settings_types.py    what a setting is, and the functions that declare one
    settings_rules.py    which values a setting allows, and how its text is parsed
    listener_zones.py    the type of a setting that maps listeners to zones
    settings_sources.py  settings from a properties file, the environment, the command line
    settings_check.py    everything that is wrong with a node's settings, at once
    broker_settings.py   the table of a broker's settings
    connection_settings.py the part of it that is about connections and memory
    kraft_settings.py    the part of it that Kafka has for roles and controller listeners
    remote_settings.py   the part of it that is about a remote tier
    diskless_settings.py the part of it that is about diskless topics
    throttle_settings.py the settings that limit the traffic of replicas which catch up
    topic_settings.py    the table of a topic's settings
    kafka_settings/      every setting of Kafka: which have an effect, which have none and why
    controller_listener.py Kafka's controller listener as our peer listener
    resource_settings.py the tables of the settings of groups and of client metrics
    tiering_rules.py     which settings of a topic go together with a remote tier
    diskless_rules.py    which topics may be diskless
    token_bucket.py      limits bytes per second
    bounds.py            limits on the terms, epochs and offsets that another node may send
    nearest.py           the known name that is nearest to a misspelt one

Start with ids.py; then read batch_types.py, which lists the types of batches in a log, and
partition_log.py, which declares the operations on a partition's log.
Not here: anything with an effect.  This room does no I/O and imports no third party.
"""
