"""The APIs that a broker of Apache Kafka 4.2 announces, and why some are not served here.

`tests/interop/test_differential.py` compares the table with what the real one announces.
"""

from typing import Final

KAFKA_VERSION: Final = "4.2"

# Key: name, lowest and highest version.
KAFKA_APIS: Final[dict[int, tuple[str, tuple[int, int]]]] = {
    0: ("Produce", (0, 13)), 1: ("Fetch", (4, 18)), 2: ("ListOffsets", (1, 11)),
    3: ("Metadata", (0, 13)), 8: ("OffsetCommit", (2, 10)), 9: ("OffsetFetch", (1, 10)),
    10: ("FindCoordinator", (0, 6)), 11: ("JoinGroup", (0, 9)), 12: ("Heartbeat", (0, 4)),
    13: ("LeaveGroup", (0, 5)), 14: ("SyncGroup", (0, 5)), 15: ("DescribeGroups", (0, 6)),
    16: ("ListGroups", (0, 5)), 17: ("SaslHandshake", (0, 1)), 18: ("ApiVersions", (0, 4)),
    19: ("CreateTopics", (2, 7)), 20: ("DeleteTopics", (1, 6)), 21: ("DeleteRecords", (0, 2)),
    22: ("InitProducerId", (0, 5)), 23: ("OffsetForLeaderEpoch", (2, 4)),
    24: ("AddPartitionsToTxn", (0, 5)), 25: ("AddOffsetsToTxn", (0, 4)), 26: ("EndTxn", (0, 5)),
    27: ("WriteTxnMarkers", (1, 2)), 28: ("TxnOffsetCommit", (0, 5)),
    29: ("DescribeAcls", (1, 3)), 30: ("CreateAcls", (1, 3)), 31: ("DeleteAcls", (1, 3)),
    32: ("DescribeConfigs", (1, 4)), 33: ("AlterConfigs", (0, 2)),
    34: ("AlterReplicaLogDirs", (1, 2)), 35: ("DescribeLogDirs", (1, 4)),
    36: ("SaslAuthenticate", (0, 2)), 37: ("CreatePartitions", (0, 3)),
    38: ("CreateDelegationToken", (1, 3)), 39: ("RenewDelegationToken", (1, 2)),
    40: ("ExpireDelegationToken", (1, 2)), 41: ("DescribeDelegationToken", (1, 3)),
    42: ("DeleteGroups", (0, 2)), 43: ("ElectLeaders", (0, 2)),
    44: ("IncrementalAlterConfigs", (0, 1)), 45: ("AlterPartitionReassignments", (0, 1)),
    46: ("ListPartitionReassignments", (0, 0)), 47: ("OffsetDelete", (0, 0)),
    48: ("DescribeClientQuotas", (0, 1)), 49: ("AlterClientQuotas", (0, 1)),
    50: ("DescribeUserScramCredentials", (0, 0)), 51: ("AlterUserScramCredentials", (0, 0)),
    55: ("DescribeQuorum", (0, 2)), 57: ("UpdateFeatures", (0, 2)),
    60: ("DescribeCluster", (0, 2)), 61: ("DescribeProducers", (0, 0)),
    64: ("UnregisterBroker", (0, 0)), 65: ("DescribeTransactions", (0, 0)),
    66: ("ListTransactions", (0, 2)), 68: ("ConsumerGroupHeartbeat", (0, 1)),
    69: ("ConsumerGroupDescribe", (0, 1)), 74: ("ListConfigResources", (0, 1)),
    75: ("DescribeTopicPartitions", (0, 0)), 76: ("ShareGroupHeartbeat", (1, 1)),
    77: ("ShareGroupDescribe", (1, 1)), 78: ("ShareFetch", (1, 2)),
    79: ("ShareAcknowledge", (1, 2)), 80: ("AddRaftVoter", (0, 1)),
    81: ("RemoveRaftVoter", (0, 0)), 83: ("InitializeShareGroupState", (0, 0)),
    84: ("ReadShareGroupState", (0, 0)), 85: ("WriteShareGroupState", (0, 1)),
    86: ("DeleteShareGroupState", (0, 0)), 87: ("ReadShareGroupStateSummary", (0, 1)),
    88: ("StreamsGroupHeartbeat", (0, 0)), 89: ("StreamsGroupDescribe", (0, 0)),
    90: ("DescribeShareGroupOffsets", (0, 1)), 91: ("AlterShareGroupOffsets", (0, 0)),
    92: ("DeleteShareGroupOffsets", (0, 0)),
}

_TRANSACTIONS: Final = ("Transactions are not served: FindCoordinator says so, and clients stop "
                        "there.")
_SHARE: Final = "Share groups (KIP-932) are not served."
_WHY_NOT: Final[dict[int, str]] = {
    17: "Served on listeners with SASL only.", 36: "Served on listeners with SASL only.",
    **dict.fromkeys((24, 25, 26, 27, 28), _TRANSACTIONS),
    **dict.fromkeys((65, 66), "Transactions are not served: there are none to describe."),
    **dict.fromkeys((68, 69), "The consumer protocol of KIP-848 is not served; clients use the "
                              "classic one, as with `group.protocol=classic`."),
    **dict.fromkeys((76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92), _SHARE),
    **dict.fromkeys((88, 89), "The streams protocol of KIP-1071 is not served; Kafka Streams uses "
                              "the classic one."),
    **dict.fromkeys((29, 30, 31), "There are no ACLs."),
    **dict.fromkeys((38, 39, 40, 41), "There are no delegation tokens."),
    34: "A node has one log directory.", 48: "There are no quotas of clients.",
    49: "There are no quotas of clients.", 50: "SCRAM credentials are not kept in the cluster.",
    51: "SCRAM credentials are not kept in the cluster.",
    57: "There are no features to update.", 74: "Not served yet.",
}


def why_not_served(key: int) -> str:
    """The reason for an API of Kafka that is not announced here."""
    return _WHY_NOT[key]
