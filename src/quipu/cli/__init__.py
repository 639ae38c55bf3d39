"""The `quipu` command line.

Start at main.py: it finds the command in a table and imports only that one.

    main.py           the table of commands, and the exit codes
    application.py    the parser of all commands but `start`
    start.py          `quipu start`: runs a node
    start_command.py  the entry of `start` in the parser and the help text
    dev.py            `quipu dev`: runs a cluster of nodes on this machine
    dev_layout.py     the names, ports and settings of its nodes
    config.py         `quipu config`: checks and shows the settings of a node
    config_file.py    reads the file that --config names
    chain.py          `quipu chain`: list, create, extend, describe
    chain_removal.py  `quipu chain remove`: a chain, or one node of it
    quorum.py         `quipu quorum`: the nodes that elect the controller
    topic.py          `quipu topic`: create, list, describe, alter, delete
    topic_migration.py  makes a topic on chains diskless, and watches that
    group.py          `quipu group`: list, describe, reset, delete
    produce.py        `quipu produce`: lines in, records out
    consume.py        `quipu consume`: records in, lines or JSON out
    dirty.py          `quipu consume --dirty`: the records of one node, committed or not
    sql/              `quipu sql`: sources and views on Spark
    log.py            `quipu log`: shows, compares and repairs stored logs, without a node
    log_arguments.py  arguments that the commands of `quipu log` have in common
    log_export.py     `quipu log export`: partitions as files of Apache Kafka
    log_decoders.py   decodes the records of internal batches for `quipu log show --records`
    log_object.py     `quipu log show` of an object of diskless topics
    remote.py         `quipu remote`: lists and verifies what the remote tier has
    diskless.py       `quipu diskless`: objects, rebuild, tier
    diskless_objects.py  lists objects of diskless topics
    diskless_rebuild.py  fills an empty control plane from them
    diskless_places.py   opens the control plane and the store that a command names
    diskless_tier.py  `quipu diskless tier`: moves old records to the remote tier, on Spark
    placement.py      `quipu placement`: how diskless topics are placed, and the racks
    cluster.py        connects to the cluster at --bootstrap; checks topics, finds offsets
    waiting.py        tells what produce and consume wait for
    librdkafka.py     settings and errors of librdkafka, for produce and consume
    positions.py      positions in a topic as users write them: end, -10, 15m, ...
    output.py         tables for people, JSON lines for programs
    errors.py         the error that ends a command with a message

Commands parse options, send requests through `client` and show the response; the broker decides.
Output goes to standard output, as a table or with --json as JSON lines; errors are one message on
standard error that says what to do.  Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.

Not here: `quipu bench`, a room of its own (`bench`) that `main` finds by name.
"""
