"""The differential protocol test: the same requests to Apache Kafka and to Quipu, compared.

    python -m tests.differential --requests 200000 --seed 1

Random sequences of well-formed requests, of every API and version that both serve, go to both
brokers; responses are compared field by field.  A difference that no row of the table explains
fails the run, with the request that shows it.

    both.py            ids that the brokers call by different names
    batches.py         batches for Produce, fine and faulty
    brokers.py         Kafka and Quipu side by side
    comparing.py       two responses compared: rules, paths, classes of values
    connections.py     connections with many requests on their way
    coverage.py        what a run has covered, and what it found, as text
    explained.py       the table of differences that stay: lookup, exclusions
    explained_rows.py  its rows
    fetched.py         record batches of two responses compared
    filling.py         requests filled in by their declarations
    generators.py      one generator per API
    kafka_apis.py      what Kafka announces, and why some of it is not served
    run.py             a run, from its first request to what it found
    scenes.py          requests that need the responses of earlier ones
    steps.py           one request for both brokers
    world.py           the topics, groups and producers that both brokers share
    __main__.py        the command

Start at run.py.  Not here: the page that users read (tools/compatibility_page.py).
"""
