"""Differences from Kafka that stay, each with its reason; docs/reference/kafka-compatibility.md is
made of this table.

A difference is looked up by API, version, path and the classes of both values, all with `*` and
`?` as in file names; the first row that fits explains it.  A row is as narrow as it can be: what is
not in the table fails a run.  Rows are for behaviour that users may meet; what both brokers only
call by different names is a rule of the comparison (comparing.py).
"""

from fnmatch import fnmatchcase
from functools import cache
from typing import Final, NamedTuple

from quipu.wire.messages import REQUESTS
from tests.differential.comparing import Difference
from tests.differential.explained_rows import ROWS


class Explanation(NamedTuple):
    """Why some differences stay."""

    topic: str  # the heading that it is shown under
    api: str  # name of an API, or *
    path: str
    kafka: str
    quipu: str
    reason: str
    versions: range = range(1 << 15)


EXPLANATIONS: Final = tuple(Explanation(*row) for row in ROWS)

# APIs that both announce and that no request of a run has, and why.
EXCLUDED: Final[dict[int, str]] = {
    17: "SASL needs listeners of its own; the stories of security have it.",
    36: "As SaslHandshake.",
    90: "On Kafka a question about a share group's offsets may stay without a response.",
    91: "On Kafka it creates a share group.",
    92: "On Kafka it needs a share group, which are not served here.",
}
# Kinds of requests that no run has, and why.
NOT_SENT: Final = (
    ("Produce with null records",
     "Kafka 4.2 does not respond at all; here it is INVALID_RECORD."),
    ("Produce with two batches for a partition, one of them not one whole batch, or zstd before v7",
     "Kafka answers with the error, and stores the other one; here the last one counts."),
    ("Produce with a codec that does not exist",
     ("Kafka answers UNKNOWN_SERVER_ERROR, before v7 for all batches of the request; here it is "
      "UNSUPPORTED_COMPRESSION_TYPE.")),
    ("Produce of batches with attributes that only brokers set, or that mean nothing",
     ("Kafka stores them, and takes the bits out or keeps them; here they are refused with "
      "INVALID_TIMESTAMP or INVALID_RECORD. The same holds for a producer id without an epoch.")),
    ("Fetch with negative limits of bytes, or with a topic id of zeros",
     "Kafka answers UNKNOWN_SERVER_ERROR; here they mean 0, and UNKNOWN_TOPIC_ID."),
    ("Metadata of a topic without name and id",
     "Kafka answers UNKNOWN_SERVER_ERROR and no brokers; here it is UNKNOWN_TOPIC_ID."),
    ("Produce of a batch whose records all have times below -1",
     "Kafka writes -1 as the batch's largest time; here the batch is stored as it came."),
    (("Descriptions of an element that is named twice: settings, producers, quorums, partitions, "
      "groups and their offsets"),
     ("Kafka describes it twice; here it is described once, so that the work for a request has a "
      "bound.")),
    ("DescribeConfigs of several resources, one of an unknown type",
     "Kafka refuses them all with INVALID_REQUEST; here the others are described."),
    ("AlterClientQuotas with an entity that has a type twice",
     "Kafka's response has the last one only; here it has both."),
    ("IncrementalAlterConfigs of several resources, one with an operation that does not exist",
     ("Kafka fails them all with UNKNOWN_SERVER_ERROR, and so it does if something is appended to "
      "an unknown setting; here each resource gets its own result.")),
    ("DeleteRecords with several offsets for a partition, of which two are equal",
     "In Kafka the last one counts; here a repeated one counts where it is first."),
    ("An empty cleanup.policy",
     ("Kafka 4.2 then removes nothing; here it is INVALID_CONFIG, and retention.ms=-1 with "
      "retention.bytes=-1 says the same.")),
    ("DescribeTopicPartitions of a topic without a name",
     ("Kafka fails all topics of the request with UNKNOWN_SERVER_ERROR; here that one is "
      "INVALID_TOPIC_EXCEPTION.")),
    ("Fetch over the end of a segment",
     ("Kafka's records of a partition end there, and the next request gets the others; here a "
      "response goes on in the next segment.")),
    ("ListOffsets by time, where DeleteRecords has taken all records of a segment",
     ("Kafka looks into the first segment that is new enough, and finds nothing there until it is "
      "removed; here the record that is found is one that can be read.")),
    ("ListOffsets -3, the largest time, of a partition with deleted records",
     "Kafka may name a record that is deleted; here it is the newest one that can be read."),
    ("AlterConfigs that names a resource twice", "Kafka 4.2 does not respond at all."),
    ("Deletion of __consumer_offsets",
     "Kafka deletes it, and forgets all groups; here it is INVALID_TOPIC_EXCEPTION."),
    ("max.message.bytes below 100, min.insync.replicas=0",
     ("Kafka takes the first, and refuses the second; here it is the other way round: 0 stands "
      "for all nodes of a chain.")),
    ("Names of existing brokers in UnregisterBroker, AddRaftVoter, RemoveRaftVoter",
     "The only broker of either side must stay."),
    ("Time limits of 1 to 999 ms", "Whether they are over is a matter of chance."),
    ("Requests of other brokers: replica ids, controlled shutdown, Raft",
     "Nodes of a cluster talk to each other in another way here."),
)


def explanation(key: int, version: int, difference: Difference) -> Explanation | None:
    """The row that explains a difference."""
    name = api_name(key)
    return next((row for row in EXPLANATIONS if version in row.versions and _fits(
        row, name, difference)), None)


@cache
def _fits(row: Explanation, api: str, difference: Difference) -> bool:
    return (fnmatchcase(api, row.api) and fnmatchcase(difference.path, row.path.replace("[", "[[]"))
            and fnmatchcase(difference.kafka, row.kafka)
            and fnmatchcase(difference.quipu, row.quipu))


def api_name(key: int) -> str:
    """The name of an API."""
    return REQUESTS[key].__name__.removesuffix("Request") if key in REQUESTS else f"API {key}"
