"""The rows of the table of explained differences: see explained.py."""

from typing import Final

Row = tuple[str, str, str, str, str, str]  # topic, API, path, Kafka's value, Quipu's, reason

SOME_GROUP: Final = ("Seen once in 20 000 requests: Kafka knows a group without members that is "
                     "not known here. A commit, a deletion of its offset and descriptions of it, "
                     "one after the other, are answered alike.")
MIN_INSYNC: Final = ("Kafka 4.2 sets it for the whole cluster when that is made; here the default "
                     "holds until somebody sets it.")
LAST_TIMESTAMP: Final = ("When the broker got the last batch, by which producers are forgotten; "
                         "Kafka shows the time that the producer gave its records.")
TOPICS_ONLY: Final = ("follower.replication.throttled.replicas",
                      "leader.replication.throttled.replicas", "remote.log.copy.disable",
                      "remote.log.delete.on.disable", "remote.storage.enable")
OWN_SETTINGS: Final = ("chain.rotate", "chain.spread", "diskless.enable",
                       "max.decompressed.message.bytes", "message.records.check")

ROWS: Final[tuple[Row, ...]] = (
    ("APIs", "ApiVersions", "api_keys[*]", "present", "absent",
     "An API that is not served; see the table of APIs."),
    ("APIs", "ApiVersions", "api_keys[*]", "absent", "present",
     "An API of our own, or one that Kafka serves only with a plugin (telemetry)."),
    ("APIs", "ApiVersions", "supported_features[*]*", "*", "*",
     "Only features that have an effect here are named."),
    ("APIs", "ApiVersions", "finalized_features*", "*", "*",
     "Only features that have an effect here are named."),
    ("Transactions", "DescribeTransactions", "transaction_states[].error_code", "NOT_COORDINATOR",
     "TRANSACTIONAL_ID_NOT_FOUND",
     "Transactions are not served: there is no coordinator to look for."),
    ("Topics", "Metadata", "topics[].error_code", "UNKNOWN_TOPIC_OR_PARTITION", "NONE",
     ("A topic that is created by a Metadata request is ready when the response is sent; Kafka "
      "answers UNKNOWN_TOPIC_OR_PARTITION, and creates it afterwards.")),
    ("Groups", "OffsetDelete", "topics[]", "present", "absent",
     "A topic that is named without partitions is not in the response."),
    ("Not understood yet", "OffsetDelete", "error_code", "NONE", "GROUP_ID_NOT_FOUND",
     SOME_GROUP),
    ("Not understood yet", "DeleteGroups", "results[].error_code", "NONE", "GROUP_ID_NOT_FOUND",
     SOME_GROUP),
    ("Topics", "Metadata", "topics[].topic_id", "none", "an id", "As its error code."),
    ("Topics", "Metadata", "topics[].partitions[]", "absent", "present", "As its error code."),
    ("Log directories", "DescribeLogDirs", "results[].topics[].partitions[].partition_size", "0",
     "n", "The node's own batches lie in a partition's log, so it is never empty."),
    *(("Settings", api, f"*[].configs[{name}]", "absent", "present", "A setting of our own.")
      for api in ("CreateTopics", "DescribeConfigs") for name in OWN_SETTINGS),
    *(("Settings", api, "*[].configs[flush.ms].value", "'9223372036854775807'", "'1000'",
       "Records are flushed to disk once a second; Kafka leaves it to the operating system.")
      for api in ("CreateTopics", "DescribeConfigs")),
    ("Settings", "DescribeConfigs", "results[].configs[flush.ms].synonyms[log.flush.interval.ms]",
     "absent", "present", "It has a default here, and none in Kafka."),
    *(("Settings", api, "*[].configs[min.insync.replicas].config_source", "3", "5",
       MIN_INSYNC) for api in ("CreateTopics", "DescribeConfigs")),
    ("Settings", "DescribeConfigs",
     "results[].configs[min.insync.replicas].synonyms[min.insync.replicas].source", "3", "5",
     MIN_INSYNC),
    ("Settings", "DescribeConfigs",
     "results[].configs[min.insync.replicas].synonyms[min.insync.replicas]", "present", "absent",
     MIN_INSYNC),
    *(("Settings", "DescribeConfigs", f"results[].configs[{name}].synonyms[{name}]", "absent",
       "present", ("The default is listed as a synonym; Kafka lists none for a setting of topics "
                   "that brokers do not have.")) for name in TOPICS_ONLY),
    ("Settings", "DescribeConfigs",
     "results[].configs[segment.jitter.ms].synonyms[log.roll.jitter.hours]", "absent", "present",
     "The default of that name, which is in force, is listed; Kafka shows the value without it."),
    ("Settings", "DescribeConfigs",
     "results[].configs[log.retention.ms].synonyms[log.retention.hours]", "present", "absent",
     "A broker's setting lists the values of its own name; Kafka adds those of other units."),
    ("Settings", "DescribeConfigs", "results[].configs[num.partitions].read_only", "true", "false",
     "It can be changed while the brokers run; in Kafka it cannot."),
    *(("Settings", api, "responses[].error_code", "NONE", "INVALID_CONFIG",
       ("A topic's name of a setting, given for a broker, is refused with a hint; Kafka stores it, "
        "without an effect."))
      for api in ("AlterConfigs", "IncrementalAlterConfigs")),
    ("Settings", "IncrementalAlterConfigs", "responses[].error_code", "UNKNOWN_SERVER_ERROR",
     "INVALID_REQUEST", "An operation that does not exist."),
    ("Settings", "IncrementalAlterConfigs", "responses[].error_code", "UNKNOWN_SERVER_ERROR",
     "INVALID_CONFIG", "Something is appended to an unknown setting, or subtracted from it."),
    ("Settings", "IncrementalAlterConfigs", "responses[].error_code", "UNKNOWN_SERVER_ERROR",
     "INVALID_TOPIC_EXCEPTION", "The same, for a topic that cannot exist."),
    ("Topics", "CreateTopics", "topics[].topic_id", "an id", "none",
     ("With validate_only no topic gets an id; if another topic of the request is refused, Kafka "
      "tells one that is used for nothing.")),
    ("Topics", "DeleteTopics", "responses[]", "present, INVALID_REQUEST", "absent",
     "Topics without name and id, several in a request, get one answer."),
    ("Produce", "Produce", "responses[].partition_responses[].error_code", "INVALID_RECORD",
     "MESSAGE_TOO_LARGE",
     "A batch with two faults, too large and not one whole batch: its size is checked first."),
    ("Producers", "DescribeProducers",
     "topics[].partitions[].active_producers[].last_timestamp", "*", "n", LAST_TIMESTAMP),
    ("Producers", "DescribeProducers",
     "topics[].partitions[].active_producers[].last_timestamp", "n", "another n", LAST_TIMESTAMP),
    *(("Partitions", "AlterPartitionReassignments", "responses[].partitions[].error_code", kafka,
       "INVALID_REQUEST", ("A partition that is named twice is refused; Kafka carries out one list "
                           "of replicas after the other."))
      for kafka in ("NONE", "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_REPLICA_ASSIGNMENT",
                    "NO_REASSIGNMENT_IN_PROGRESS")),
    ("Partitions", "AlterPartitionReassignments", "allow_replication_factor_change", "true",
     "false", "A request without topics: Kafka does not say what the request said."),
    ("Partitions", "ElectLeaders", "replica_election_results[]", "present", "absent",
     ("A request for all partitions: Kafka lists every topic, also those without an election, "
      "with no partitions.")),
    ("Partitions", "ElectLeaders", "error_code", "NONE", "INVALID_REQUEST",
     "A type of election that does not exist, for no partitions, is refused too."),
    ("Log directories", "AlterReplicaLogDirs", "results[]", "absent", "present",
     "A topic that is named without partitions is in the response, without partitions."),
    ("Log directories", "AlterReplicaLogDirs", "results[].partitions[]", "absent",
     "present, LOG_DIR_NOT_FOUND",
     "A directory that is named twice: Kafka answers for the last one only."),
    ("Users", "AlterUserScramCredentials", "results[].error_code", "UNACCEPTABLE_CREDENTIAL",
     "INVALID_REQUEST",
     "The cluster keeps no SCRAM credentials: all changes are refused, good and bad ones."),
    ("Users", "AlterUserScramCredentials", "results[].error_code", "RESOURCE_NOT_FOUND",
     "DUPLICATE_RESOURCE",
     ("A credential that is deleted and set in one request: Kafka looks for the old one first, "
      "which is never there in a run.")),
    ("Users", "AlterUserScramCredentials", "results[].error_code", "UNACCEPTABLE_CREDENTIAL",
     "DUPLICATE_RESOURCE",
     "A credential that is set twice in one request, and is faulty besides: this is told first."),
    ("Cluster", "DescribeQuorum", "nodes[].listeners[].name", "'CONTROLLER'", "'PLAINTEXT'",
     ("Kafka's controllers have a listener of their own; a node without others is reached where "
      "clients reach it.")),
)
