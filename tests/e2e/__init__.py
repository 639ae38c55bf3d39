"""Stock clients against a real node: one contract, a small adapter per client.

    contract.py        what every client must be able to do, in words that fit all of them
    *_client.py        how each client does it
    member.py          a consumer group member as a process, so that it can be killed
    evidence.py        what the node itself says of what a client did
    test_clients.py    the stories, told once and run with every client
    test_topics.py     what topics can do, on logs of a node and on diskless topics
    test_matrix.py     what one client writes, every other one reads
"""
