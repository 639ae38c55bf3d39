"""JSON: decodes objects to typed Arrow columns, or whole documents to one column of text.

    format.py      `JsonFormat`: columns by name, Kafka Connect's payloads, errors of rows
    values.py      casts values at known positions of a text to typed columns
    scan.py        checks the grammar and finds members and elements, compiled or plain
    _scan.pyx      the compiled scan
    _scan_pure.py  the same scan in plain Python, against which the compiled one is tested

Start at format.py.  docs/adr/0032 says why no library is used.
Not here: casting the text of numbers and dates (casts.py, one room up).
"""
