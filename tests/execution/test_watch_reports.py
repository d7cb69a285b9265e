"""What a health check says of each broker, as the page shows it."""

from __future__ import annotations

from kafka_steward.cluster.health import BrokerLoad, Health
from kafka_steward.execution.watch_reports import broker_reports
from kafka_steward.journal.observed import BrokerReport


def test_each_broker_is_reported_with_all_that_the_health_check_knows_of_it() -> None:
    health = Health(
        partitions=9,
        live=(1, 2),
        gone=(3,),
        under_replicated=(),
        under_min_isr=(),
        offline=(),
        reassigning=(),
        max_lag=None,
        replica_imbalance=0,
        leader_imbalance=0,
        under_replicated_by_leader={1: 4},
        bytes_in={1: 10.9, 2: 0},
        bytes_out={2: 20.2},
        failed_log_dirs={1: ("/data/1", "/data/2")},
        cordoned=(2,),
        loads={
            1: BrokerLoad("a", 5, 2, replica_bytes=100, total_bytes=1_000, usable_bytes=400),
            2: BrokerLoad(None, 6, 3, replica_bytes=200, total_bytes=2_000, usable_bytes=700),
            3: BrokerLoad("b", 7),
        },
    )
    assert broker_reports(health) == (
        BrokerReport(
            1,
            rack="a",
            live=True,
            replicas=5,
            leaders=2,
            under_replicated=4,
            failed_log_dirs=("/data/1", "/data/2"),
            replica_bytes=100,
            disk_total=1_000,
            disk_usable=400,
            bytes_in=10,
        ),
        BrokerReport(
            2,
            live=True,
            cordoned=True,
            replicas=6,
            leaders=3,
            replica_bytes=200,
            disk_total=2_000,
            disk_usable=700,
            bytes_in=0,
            bytes_out=20,
        ),
        BrokerReport(3, rack="b", live=False, replicas=7),
    )
