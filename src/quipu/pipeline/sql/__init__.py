"""The SQL language: parses statements and prints them, with errors that point at the text.

    parser.py       parses statements
    lexer.py        splits text into tokens, and a script into statements
    cursor.py       `TokenCursor`: the tokens of one statement, and which ones were expected
    sources.py      the grammar of CREATE SOURCE
    formats.py      the grammar of formats and of column types
    statements.py   one frozen class per statement and per clause
    printer.py      prints statements in one canonical form
    relations.py    finds the relations that a query reads
    query_names.py  rewrites names in double quotes for Spark
    completion.py   which words may come next
    secrets.py      masks passwords in statements, errors and scripts
    errors.py       `SqlError`: a message, the place in the text, and a hint
    text.py         `TextSpan`: spans of a text, lines and columns

Start with parser.py, then statements.py.
Not here: the meaning of a statement (plan/), and the grammar of queries, which is Spark's.
"""
