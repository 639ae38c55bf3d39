"""Every spec has its format."""

import subprocess
import sys

from quipu.pipeline.formats.factory import make_format
from quipu.pipeline.formats.specs import Avro, Csv, Json, Regex, Text


def test_a_spec_becomes_the_format_that_carries_it_out() -> None:
    """I10: columns by the spec's own names."""
    specs = [Text("t"), Json(), Csv(("a", "b")), Regex("(?P<x>.)"),
             Avro('{"type": "record", "name": "R", "fields": [{"name": "f", "type": "long"}]}')]
    assert [[column.name for column in make_format(spec).columns] for spec in specs] == [
        ["t"], ["data"], ["a", "b"], ["x"], ["f"]]


def test_what_is_not_used_is_not_loaded() -> None:
    """I4: nobody pays for Avro who reads text."""
    program = ("import sys; from quipu.pipeline.formats.factory import make_format; "
               "from quipu.pipeline.formats.specs import Text; make_format(Text()); "
               "print([name for name in sys.modules if 'avro' in name or 'protobuf' in name])")
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True,
                            text=True)
    assert answer.stdout.strip() == "[]"
