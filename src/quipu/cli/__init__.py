"""The `quipu` command: what people touch.

    main        finds the command and imports nothing else
    start       runs a node
    topic       create, list, describe, alter, delete
    group       list, describe, reset, delete
    produce     lines in, records out
    consume     records in, lines or JSON out
    log         looks into stored logs, without a node
    bench       measures a broker beside the limits of its machine

Commands parse, ask and tell; the broker decides.  All but `start` and `log` talk to any Kafka
broker through librdkafka.  Output goes to standard output, as a table or with --json as JSON lines;
errors are one message on standard error that says what to do.  Exit codes: 0 done, 1 failed,
2 wrong usage, 130 interrupted.
"""
