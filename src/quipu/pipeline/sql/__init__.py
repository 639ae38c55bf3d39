"""The language: text to statements and back, with errors that point at the text.

    text -> lexer (tokens, statements) -> parser (cursor, formats, sources) -> statements
    statements -> printer -> text        `secrecy` keeps passwords out of all that is shown
    text so far -> completion -> words
"""
