"""Kafka's messages: one module per API key, with its request, its response and their structs.

    k00_produce.py                          Produce
    k01_fetch.py                            Fetch
    k02_list_offsets.py                     ListOffsets
    k03_metadata.py                         Metadata
    k08_offset_commit.py                    OffsetCommit
    k09_offset_fetch.py                     OffsetFetch
    k10_find_coordinator.py                 FindCoordinator
    k11_join_group.py                       JoinGroup
    k12_heartbeat.py                        Heartbeat
    k13_leave_group.py                      LeaveGroup
    k14_sync_group.py                       SyncGroup
    k15_describe_groups.py                  DescribeGroups
    k16_list_groups.py                      ListGroups
    k17_sasl_handshake.py                   SaslHandshake
    k18_api_versions.py                     ApiVersions
    k19_create_topics.py                    CreateTopics
    k20_delete_topics.py                    DeleteTopics
    k21_delete_records.py                   DeleteRecords
    k22_init_producer_id.py                 InitProducerId
    k23_offset_for_leader_epoch.py          OffsetForLeaderEpoch
    k29_describe_acls.py                    DescribeAcls
    k30_create_acls.py                      CreateAcls
    k31_delete_acls.py                      DeleteAcls
    k32_describe_configs.py                 DescribeConfigs
    k33_alter_configs.py                    AlterConfigs
    k34_alter_replica_log_dirs.py           AlterReplicaLogDirs
    k35_describe_log_dirs.py                DescribeLogDirs
    k36_sasl_authenticate.py                SaslAuthenticate
    k37_create_partitions.py                CreatePartitions
    k38_create_delegation_token.py          CreateDelegationToken
    k39_renew_delegation_token.py           RenewDelegationToken
    k40_expire_delegation_token.py          ExpireDelegationToken
    k41_describe_delegation_token.py        DescribeDelegationToken
    k42_delete_groups.py                    DeleteGroups
    k43_elect_leaders.py                    ElectLeaders
    k44_incremental_alter_configs.py        IncrementalAlterConfigs
    k45_alter_partition_reassignments.py    AlterPartitionReassignments
    k46_list_partition_reassignments.py     ListPartitionReassignments
    k47_offset_delete.py                    OffsetDelete
    k48_describe_client_quotas.py           DescribeClientQuotas
    k49_alter_client_quotas.py              AlterClientQuotas
    k50_describe_user_scram_credentials.py  DescribeUserScramCredentials
    k51_alter_user_scram_credentials.py     AlterUserScramCredentials
    k55_describe_quorum.py                  DescribeQuorum
    k57_update_features.py                  UpdateFeatures
    k60_describe_cluster.py                 DescribeCluster
    k61_describe_producers.py               DescribeProducers
    k64_unregister_broker.py                UnregisterBroker
    k65_describe_transactions.py            DescribeTransactions
    k66_list_transactions.py                ListTransactions
    k74_list_config_resources.py            ListConfigResources
    k75_describe_topic_partitions.py        DescribeTopicPartitions
    k77_share_group_describe.py             ShareGroupDescribe
    k80_add_raft_voter.py                   AddRaftVoter
    k81_remove_raft_voter.py                RemoveRaftVoter
    k89_streams_group_describe.py           StreamsGroupDescribe
    k90_describe_share_group_offsets.py     DescribeShareGroupOffsets
    k91_alter_share_group_offsets.py        AlterShareGroupOffsets
    k92_delete_share_group_offsets.py       DeleteShareGroupOffsets
    k10000_describe_chains.py               DescribeChains
    k10001_create_chain.py                  CreateChain
    k10002_extend_chain.py                  ExtendChain
    k10003_describe_remote_segments.py      DescribeRemoteSegments
    k10004_describe_diskless_runs.py        DescribeDisklessRuns
    k10005_describe_racks.py                DescribeRacks
    k10006_migrate_topic.py                 MigrateTopic
    k10007_remove_chain.py                  RemoveChain
    consumer_protocol.py                    what consumers send each other in JoinGroup, SyncGroup

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
from quipu.wire.messages.k29_describe_acls import DescribeAclsRequest, DescribeAclsResponse
from quipu.wire.messages.k30_create_acls import CreateAclsRequest, CreateAclsResponse
from quipu.wire.messages.k31_delete_acls import DeleteAclsRequest, DeleteAclsResponse
from quipu.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from quipu.wire.messages.k33_alter_configs import AlterConfigsRequest, AlterConfigsResponse
from quipu.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
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
from quipu.wire.messages.k38_create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from quipu.wire.messages.k39_renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from quipu.wire.messages.k40_expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from quipu.wire.messages.k41_describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
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
from quipu.wire.messages.k48_describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from quipu.wire.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from quipu.wire.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from quipu.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from quipu.wire.messages.k55_describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from quipu.wire.messages.k57_update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from quipu.wire.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from quipu.wire.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from quipu.wire.messages.k64_unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from quipu.wire.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from quipu.wire.messages.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from quipu.wire.messages.k74_list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from quipu.wire.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from quipu.wire.messages.k77_share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from quipu.wire.messages.k80_add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from quipu.wire.messages.k81_remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from quipu.wire.messages.k89_streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from quipu.wire.messages.k90_describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from quipu.wire.messages.k91_alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from quipu.wire.messages.k92_delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from quipu.wire.messages.k10000_describe_chains import DescribeChainsRequest, DescribeChainsResponse
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
from quipu.wire.messages.k10007_remove_chain import RemoveChainRequest, RemoveChainResponse
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
        DescribeAclsRequest,
        CreateAclsRequest,
        DeleteAclsRequest,
        DescribeConfigsRequest,
        AlterConfigsRequest,
        AlterReplicaLogDirsRequest,
        DescribeLogDirsRequest,
        SaslAuthenticateRequest,
        CreatePartitionsRequest,
        CreateDelegationTokenRequest,
        RenewDelegationTokenRequest,
        ExpireDelegationTokenRequest,
        DescribeDelegationTokenRequest,
        DeleteGroupsRequest,
        ElectLeadersRequest,
        IncrementalAlterConfigsRequest,
        AlterPartitionReassignmentsRequest,
        ListPartitionReassignmentsRequest,
        OffsetDeleteRequest,
        DescribeClientQuotasRequest,
        AlterClientQuotasRequest,
        DescribeUserScramCredentialsRequest,
        AlterUserScramCredentialsRequest,
        DescribeQuorumRequest,
        UpdateFeaturesRequest,
        DescribeClusterRequest,
        DescribeProducersRequest,
        UnregisterBrokerRequest,
        DescribeTransactionsRequest,
        ListTransactionsRequest,
        ListConfigResourcesRequest,
        DescribeTopicPartitionsRequest,
        ShareGroupDescribeRequest,
        AddRaftVoterRequest,
        RemoveRaftVoterRequest,
        StreamsGroupDescribeRequest,
        DescribeShareGroupOffsetsRequest,
        AlterShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsRequest,
        DescribeChainsRequest,
        CreateChainRequest,
        ExtendChainRequest,
        DescribeRemoteSegmentsRequest,
        DescribeDisklessRunsRequest,
        DescribeRacksRequest,
        MigrateTopicRequest,
        RemoveChainRequest,
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
        DescribeAclsResponse,
        CreateAclsResponse,
        DeleteAclsResponse,
        DescribeConfigsResponse,
        AlterConfigsResponse,
        AlterReplicaLogDirsResponse,
        DescribeLogDirsResponse,
        SaslAuthenticateResponse,
        CreatePartitionsResponse,
        CreateDelegationTokenResponse,
        RenewDelegationTokenResponse,
        ExpireDelegationTokenResponse,
        DescribeDelegationTokenResponse,
        DeleteGroupsResponse,
        ElectLeadersResponse,
        IncrementalAlterConfigsResponse,
        AlterPartitionReassignmentsResponse,
        ListPartitionReassignmentsResponse,
        OffsetDeleteResponse,
        DescribeClientQuotasResponse,
        AlterClientQuotasResponse,
        DescribeUserScramCredentialsResponse,
        AlterUserScramCredentialsResponse,
        DescribeQuorumResponse,
        UpdateFeaturesResponse,
        DescribeClusterResponse,
        DescribeProducersResponse,
        UnregisterBrokerResponse,
        DescribeTransactionsResponse,
        ListTransactionsResponse,
        ListConfigResourcesResponse,
        DescribeTopicPartitionsResponse,
        ShareGroupDescribeResponse,
        AddRaftVoterResponse,
        RemoveRaftVoterResponse,
        StreamsGroupDescribeResponse,
        DescribeShareGroupOffsetsResponse,
        AlterShareGroupOffsetsResponse,
        DeleteShareGroupOffsetsResponse,
        DescribeChainsResponse,
        CreateChainResponse,
        ExtendChainResponse,
        DescribeRemoteSegmentsResponse,
        DescribeDisklessRunsResponse,
        DescribeRacksResponse,
        MigrateTopicResponse,
        RemoveChainResponse,
    )
}
