"""JSON's grammar: the compiled and the plain scanner, with Python's json as oracle.

Where nothing is compiled, both are the plain one, and these tests hold for it alone.
"""

import json
import os
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quipu.pipeline.formats.json import _scan_pure, scan
from quipu.pipeline.formats.json._scan_pure import DEPTH_MAX
from quipu.pipeline.formats.json.scan import ARRAY, ESCAPED, FAULTS, MISSING
from quipu.pipeline.formats.spans import laid, pieces

PIECES = [
    "{", "}", "[", "]", ",", ":", '"', '"a"', '"b":', '"a":', '"\\u0061":', "null", "true", "1",
    "-1", "01", "1.5", "1e5", "1E+", ".", "-", " ", "\n", "\\", "\\n", "\\ud83d\\ude00", "\\ud83d",
    "\\u00e9", "\\uZZ", "é", "😀", "\x01", '"x\\"y"', '{"a":[1,{"b":2}]}', "tru", "nulll",
    '"abcdefghijklmnop"', "",
]
NAMES = ["a", "é", 'q"', "not there"]
BOTH = (scan, _scan_pure)


def refuse(constant: str) -> None:
    raise ValueError(constant)


def meant(text: str) -> Any:
    """What Python's json reads; raises ValueError."""
    return json.loads(text, parse_constant=refuse)


def some_value(rng: random.Random, depth: int = 0) -> Any:
    chance = rng.random()
    if depth > 3 or chance < 0.5:
        return rng.choice([None, True, 1, 2.5, "x", 'é\n"q', "😀", -7, 1e30, "nothing inside it"])
    if chance < 0.75:
        return [some_value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    return {rng.choice(["a", "b", "é", 'q"']): some_value(rng, depth + 1)
            for _ in range(rng.randint(0, 3))}


def some_text(rng: random.Random) -> str | None:
    if rng.random() < 0.05:
        return None
    if rng.random() < 0.4:
        return "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 9)))
    text = json.dumps(some_value(rng), ensure_ascii=rng.random() < 0.5,
                      indent=rng.choice([None, 2]))
    if rng.random() < 0.5:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(PIECES) + text[at + rng.randint(0, 1) :]
    return text


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(left, right) for left, right in zip(one, other, strict=True))


@pytest.mark.parametrize("seed", range(8))
def test_the_scanners_agree_with_each_other_and_with_python(seed: int) -> None:
    """I10, I15: which texts are JSON, where they stop being it, and what members mean."""
    rng = random.Random(seed)
    texts = [some_text(rng) for _ in range(400)]
    array = pa.array([None, *texts], pa.string()).slice(1)
    faults, other_faults = (twin.check(array) for twin in BOTH)
    assert same(faults, other_faults)
    wrong = dict(zip(faults.rows.tolist(), faults.codes.tolist(), strict=True))
    for row, text in enumerate(texts):
        if text is None:
            assert row not in wrong
            continue
        try:
            meant(text)
        except ValueError:
            assert row in wrong, text
        else:  # Python keeps lone surrogates, which no UTF-8 has
            assert row not in wrong or "surrogate" in FAULTS[wrong[row]], text
    check_members(texts, array)


def check_members(texts: list[str | None], array: pa.StringArray) -> None:
    names = [name.encode() for name in NAMES]
    (found, faults), (other_found, other_faults) = (twin.members(array, names) for twin in BOTH)
    assert same(faults, other_faults)
    wrong = set(faults.rows.tolist())
    for name, values, others in zip(NAMES, found, other_found, strict=True):
        assert same(values, others)
        raw = pieces(laid(array).data, values.starts, values.ends,
                     missing=values.kinds == MISSING)
        plain = scan.unescaped(raw, values.kinds)
        plain.validate(full=True)
        assert plain.equals(_scan_pure.unescaped(raw, values.kinds))
        for row, text in enumerate(texts):
            document = {} if text is None or row in wrong else meant(text)
            assert (values.kinds[row] == MISSING) == (name not in document)
            if name in document:
                value = document[name]
                is_text = isinstance(value, str)
                assert value == (plain[row].as_py() if is_text else meant(raw[row].as_py()))
        check_elements(raw, values.kinds)


def check_elements(raw: pa.StringArray, kinds: Any) -> None:
    arrays = raw.filter(pa.array(kinds == ARRAY))
    (ends, values), (other_ends, others) = (twin.elements(arrays) for twin in BOTH)
    assert np.array_equal(ends, other_ends)
    assert same(values, others)
    counts = [len(meant(text)) for text in arrays.to_pylist()]
    assert np.diff(ends).tolist() == counts


def test_nesting_has_an_end() -> None:
    """K8: no stack to exhaust."""
    deep = "[" * DEPTH_MAX + "]" * DEPTH_MAX
    texts = pa.array([deep, f"[{deep}]", "[" * 100_000, '{"a":' * 100_000])
    for twin in BOTH:
        faults = twin.check(texts)
        assert faults.rows.tolist() == [1, 2, 3]
        assert {FAULTS[code] for code in faults.codes} == {"recursion limit exceeded"}


def test_long_names_with_escapes_do_not_reach_past_the_room_for_names() -> None:
    """K8: a name is unescaped only if it can be one that is looked for."""
    long = "".join(f"\\u{ord(char):04x}" for char in "abc")
    texts = pa.array([f'{{"{long}": 1}}', '{"' + "\\u0061" * 10_000 + '": 2}', '{"abc": 3}'])
    for twin in BOTH:
        (values,), _ = twin.members(texts, [b"abc"])
        assert (values.kinds == MISSING).tolist() == [False, True, False]


def test_of_members_with_one_name_the_last_counts() -> None:
    """I10: as in most readers."""
    for twin in BOTH:
        (values,), _ = twin.members(pa.array(['{"a":1,"b":2,"a":"\\n"}']), [b"a"])
        assert values.kinds.tolist() == [ESCAPED]


def test_the_plain_scanner_serves_when_asked_for() -> None:
    """I12: QUIPU_PURE=1 chooses it."""
    program = "from quipu.pipeline.formats.json import scan; print(scan.COMPILED)"
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True,
                            text=True, env={**os.environ, "QUIPU_PURE": "1"})
    assert answer.stdout.strip() == "False"
