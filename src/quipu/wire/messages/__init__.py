"""Kafka's messages: one module per API key, with its request, its response and their structs.

    k00_produce.py                        Produce
    k01_fetch.py                          Fetch
    k02_list_offsets.py                   ListOffsets
    k03_metadata.py                       Metadata
    k08_offset_commit.py                  OffsetCommit
    k09_offset_fetch.py                   OffsetFetch
    k10_find_coordinator.py               FindCoordinator
    k11_join_group.py                     JoinGroup
    k12_heartbeat.py                      Heartbeat
    k13_leave_group.py                    LeaveGroup
    k14_sync_group.py                     SyncGroup
    k15_describe_groups.py                DescribeGroups
    k16_list_groups.py                    ListGroups
    k17_sasl_handshake.py                 SaslHandshake
    k18_api_versions.py                   ApiVersions
    k19_create_topics.py                  CreateTopics
    k20_delete_topics.py                  DeleteTopics
    k21_delete_records.py                 DeleteRecords
    k22_init_producer_id.py               InitProducerId
    k23_offset_for_leader_epoch.py        OffsetForLeaderEpoch
    k32_describe_configs.py               DescribeConfigs
    k33_alter_configs.py                  AlterConfigs
    k35_describe_log_dirs.py              DescribeLogDirs
    k36_sasl_authenticate.py              SaslAuthenticate
    k37_create_partitions.py              CreatePartitions
    k42_delete_groups.py                  DeleteGroups
    k43_elect_leaders.py                  ElectLeaders
    k44_incremental_alter_configs.py      IncrementalAlterConfigs
    k45_alter_partition_reassignments.py  AlterPartitionReassignments
    k46_list_partition_reassignments.py   ListPartitionReassignments
    k47_offset_delete.py                  OffsetDelete
    k55_describe_quorum.py                DescribeQuorum
    k60_describe_cluster.py               DescribeCluster
    k61_describe_producers.py             DescribeProducers
    k64_unregister_broker.py              UnregisterBroker
    k71_get_telemetry_subscriptions.py    GetTelemetrySubscriptions
    k72_push_telemetry.py                 PushTelemetry
    k75_describe_topic_partitions.py      DescribeTopicPartitions
    k80_add_raft_voter.py                 AddRaftVoter
    k81_remove_raft_voter.py              RemoveRaftVoter
    k10000_describe_chains.py             DescribeChains
    k10001_create_chain.py                CreateChain
    k10002_extend_chain.py                ExtendChain
    k10003_describe_remote_segments.py    DescribeRemoteSegments
    k10004_describe_diskless_runs.py      DescribeDisklessRuns
    k10005_describe_racks.py              DescribeRacks
    k10006_migrate_topic.py               MigrateTopic
    consumer_protocol.py                  what consumers send each other in JoinGroup, SyncGroup

Names are Kafka's.  Times and timeouts are milliseconds, error codes are plain numbers (their
names are in quipu.model.errors), and a UUID of zeros means none.  Keys from OWN_KEY_FIRST on are
Quipu's own; Kafka clients never see them.  Definitions cover every version that Kafka 4.2 supports.

Start with k18_api_versions.py, which is small; then k03_metadata.py.
Not here: which versions are served (broker/handlers).
"""

from typing import Final

from quipu.wire.messages.k00_produce import ProduceRequest, ProduceResponse
from quipu.wire.messages.k01_fetch import FetchRequest, FetchResponse
from quipu.wire.messages.k02_list_offsets import ListOffsetsRequest, ListOffsetsResponse
from quipu.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from quipu.wire.messages.k08_offset_commit import OffsetCommitRequest, OffsetCommitResponse
from quipu.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from quipu.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from quipu.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from quipu.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from quipu.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse
from quipu.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from quipu.wire.messages.k15_describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from quipu.wire.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from quipu.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from quipu.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from quipu.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsResponse
from quipu.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from quipu.wire.messages.k21_delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from quipu.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from quipu.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from quipu.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from quipu.wire.messages.k33_alter_configs import AlterConfigsRequest, AlterConfigsResponse
from quipu.wire.messages.k35_describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from quipu.wire.messages.k36_sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from quipu.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from quipu.wire.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from quipu.wire.messages.k43_elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from quipu.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from quipu.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from quipu.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from quipu.wire.messages.k47_offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from quipu.wire.messages.k55_describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from quipu.wire.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from quipu.wire.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from quipu.wire.messages.k64_unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from quipu.wire.messages.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from quipu.wire.messages.k72_push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from quipu.wire.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from quipu.wire.messages.k80_add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from quipu.wire.messages.k81_remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from quipu.wire.messages.k10000_describe_chains import (
    DescribeChainsRequest,
    DescribeChainsResponse,
)
from quipu.wire.messages.k10001_create_chain import CreateChainRequest, CreateChainResponse
from quipu.wire.messages.k10002_extend_chain import ExtendChainRequest, ExtendChainResponse
from quipu.wire.messages.k10003_describe_remote_segments import (
    DescribeRemoteSegmentsRequest,
    DescribeRemoteSegmentsResponse,
)
from quipu.wire.messages.k10004_describe_diskless_runs import (
    DescribeDisklessRunsRequest,
    DescribeDisklessRunsResponse,
)
from quipu.wire.messages.k10005_describe_racks import DescribeRacksRequest, DescribeRacksResponse
from quipu.wire.messages.k10006_migrate_topic import MigrateTopicRequest, MigrateTopicResponse
from quipu.wire.schema import Request, Response

OWN_KEY_FIRST: Final = 10_000

REQUESTS: Final[dict[int, type[Request]]] = {
    request.KEY: request for request in (
        ProduceRequest,
        FetchRequest,
        ListOffsetsRequest,
        MetadataRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
        FindCoordinatorRequest,
        JoinGroupRequest,
        HeartbeatRequest,
        LeaveGroupRequest,
        SyncGroupRequest,
        DescribeGroupsRequest,
        ListGroupsRequest,
        SaslHandshakeRequest,
        ApiVersionsRequest,
        CreateTopicsRequest,
        DeleteTopicsRequest,
        DeleteRecordsRequest,
        InitProducerIdRequest,
        OffsetForLeaderEpochRequest,
        DescribeConfigsRequest,
        AlterConfigsRequest,
        DescribeLogDirsRequest,
        SaslAuthenticateRequest,
        CreatePartitionsRequest,
        DeleteGroupsRequest,
        ElectLeadersRequest,
        IncrementalAlterConfigsRequest,
        AlterPartitionReassignmentsRequest,
        ListPartitionReassignmentsRequest,
        OffsetDeleteRequest,
        DescribeQuorumRequest,
        DescribeClusterRequest,
        DescribeProducersRequest,
        UnregisterBrokerRequest,
        GetTelemetrySubscriptionsRequest,
        PushTelemetryRequest,
        DescribeTopicPartitionsRequest,
        AddRaftVoterRequest,
        RemoveRaftVoterRequest,
        DescribeChainsRequest,
        CreateChainRequest,
        ExtendChainRequest,
        DescribeRemoteSegmentsRequest,
        DescribeDisklessRunsRequest,
        DescribeRacksRequest,
        MigrateTopicRequest,
    )
}

RESPONSES: Final[dict[int, type[Response]]] = {
    response.KEY: response for response in (
        ProduceResponse,
        FetchResponse,
        ListOffsetsResponse,
        MetadataResponse,
        OffsetCommitResponse,
        OffsetFetchResponse,
        FindCoordinatorResponse,
        JoinGroupResponse,
        HeartbeatResponse,
        LeaveGroupResponse,
        SyncGroupResponse,
        DescribeGroupsResponse,
        ListGroupsResponse,
        SaslHandshakeResponse,
        ApiVersionsResponse,
        CreateTopicsResponse,
        DeleteTopicsResponse,
        DeleteRecordsResponse,
        InitProducerIdResponse,
        OffsetForLeaderEpochResponse,
        DescribeConfigsResponse,
        AlterConfigsResponse,
        DescribeLogDirsResponse,
        SaslAuthenticateResponse,
        CreatePartitionsResponse,
        DeleteGroupsResponse,
        ElectLeadersResponse,
        IncrementalAlterConfigsResponse,
        AlterPartitionReassignmentsResponse,
        ListPartitionReassignmentsResponse,
        OffsetDeleteResponse,
        DescribeQuorumResponse,
        DescribeClusterResponse,
        DescribeProducersResponse,
        UnregisterBrokerResponse,
        GetTelemetrySubscriptionsResponse,
        PushTelemetryResponse,
        DescribeTopicPartitionsResponse,
        AddRaftVoterResponse,
        RemoveRaftVoterResponse,
        DescribeChainsResponse,
        CreateChainResponse,
        ExtendChainResponse,
        DescribeRemoteSegmentsResponse,
        DescribeDisklessRunsResponse,
        DescribeRacksResponse,
        MigrateTopicResponse,
    )
}
