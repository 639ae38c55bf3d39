"""From statements to planned sources and views: every mistake is found here.

    sources.plan_source   a CREATE SOURCE, by passes over a draft, one module per subject
    connections           CREATE CONNECTION, and what it means for a client
    views                 which relations a query reads; what is needed by what
    world                 the facts that planning asks for, and how they are remembered
"""
