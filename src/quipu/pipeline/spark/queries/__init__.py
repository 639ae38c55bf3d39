"""Analyzes queries with Spark's planner, and makes DataFrames of the tables that they read.

    analysis.py     which columns a query needs, and whether it can be maintained by changes
    aggregates.py   which aggregates can be maintained by group, by partial aggregates
    admission.py    refuses queries that reach outside of the pipeline
    scope.py        `Scope`: the relations and views that a query may name
    relations.py    DataFrames of tables by key and of append-only tables
    errors.py       turns Spark's errors into SqlError and OutstandingErrors
    jvm_plans.py    access to Spark's plans and expressions, which are objects of the JVM

Start with analysis.py.  Not here: which relations a query names (`pipeline/plan/views.py`), and
the parts of an aggregation (`pipeline/views/aggregation.py`).
"""
