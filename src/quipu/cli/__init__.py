"""The `quipu` command: what people touch.

    main        finds the command and imports nothing else
    start       runs a node
    dev         runs a cluster of nodes on this machine
    chain       list, create, extend, describe
    topic       create, list, describe, alter, delete
    group       list, describe, reset, delete
    produce     lines in, records out
    consume     records in, lines or JSON out
    sql         sources and views on Spark: scripts, a shell, queries that are kept running
    log         looks into stored logs, without a node
    bench       measures a broker beside the limits of its machine

Commands parse, ask and tell; the broker decides.  Most talk to any Kafka broker through librdkafka
(kafka.py); what only Quipu knows goes by a connection of our own (direct.py).  Output goes to
standard output, as a table or with --json as JSON lines; errors are one message on standard error
that says what to do.  Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""
