"""`quipu sql`: sources and views on Spark, by a script, a shell, or a command that keeps running.

    command.py       the command and its options; start here
    statements.py    runs the statements of a script, and shows their results
    shell.py         the shell on a terminal
    completion.py    the completions that the shell offers
    serve.py         --serve: keeps views up to date and reports their progress
    runner.py        runs a statement on a thread, shows a status line, cancels it at Ctrl-C
    engine.py        `Engine`, the protocol that runs statements, and the results of statements
    spark_engine.py  `SparkEngine`, the engine on a pipeline on Spark
    progress.py      the progress of views as table rows, as log lines, and in one line
    output.py        rows as aligned text and as JSON lines
    status_line.py   one line at the bottom of a terminal

Not here: what statements mean (`pipeline.sql`, `pipeline.spark`).
"""
