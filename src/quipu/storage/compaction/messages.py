"""Jobs and their results as lines of JSON, between the broker and the process that compacts.

Both ends are of one version on one machine, and neither is a stranger; so what does not fit is a
bug, and raises.
"""

import json
from typing import Any

from quipu.storage.compaction.marks import CompactionMark
from quipu.storage.compaction.planning import SegmentFacts
from quipu.storage.compaction.worker import CompactedGroup, CompactionJob, PassEnd
from quipu.storage.segments.index import Summary


def encode_job(job: CompactionJob, secret: bytes, bytes_per_second: int) -> bytes:
    """The request for one pass."""
    fields = {name: getattr(job, name) for name in job.__slots__}
    return _encode({"job": fields, "secret": secret.hex(), "rate": bytes_per_second})


def decode_job(line: bytes) -> tuple[CompactionJob, bytes, int]:
    """The job, the secret for the map of keys, and how many bytes per second it may take."""
    request = json.loads(line)
    fields: dict[str, Any] = request["job"]
    fields["segments"] = tuple(
        SegmentFacts._make((*numbers, CompactionMark(*mark)))
        for *numbers, mark in fields["segments"])
    fields["groups"] = tuple(tuple(bases) for bases in fields["groups"])
    fields["kept_bases"] = tuple(fields["kept_bases"])
    return CompactionJob(**fields), bytes.fromhex(request["secret"]), request["rate"]


def encode_outcome(outcome: CompactedGroup | PassEnd) -> bytes:
    """One line of the result."""
    return _encode({"group" if isinstance(outcome, CompactedGroup) else "end": outcome})


def decode_outcome(line: bytes) -> CompactedGroup | PassEnd:
    """The other way."""
    (kind, fields), = json.loads(line).items()
    if kind == "end":
        return PassEnd(*fields)
    bases, summary, mark, *numbers = fields
    return CompactedGroup(tuple(bases), Summary(*summary), CompactionMark(*mark), *numbers)


def _encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
