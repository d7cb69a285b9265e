"""Plans beside those of others, on the same inputs."""

import json
import re

import pytest

from benchmarks.planner.exactness import exactness
from benchmarks.planner.iteration import rebalanced
from benchmarks.planner.makespan import makespans
from kafka_steward.planning.checker.check import check
from tests.builders import planned
from tests.planning.public_cases import CASES, snapshot_of_case


@pytest.mark.parametrize("name", ["highWeightRandomExtend", "replaceBroker"])
def test_two_public_cases_of_kafka_19048_expect_a_move_more_than_is_needed(name: str) -> None:
    snapshot = snapshot_of_case(CASES[name])
    plan = planned(snapshot, "rebalance")
    verdict = check(snapshot, plan)
    assert (verdict.problems, verdict.unproven) == ([], ())
    assert plan.proof["replicas_moved"] == plan.proof["lower_bound"] == CASES[name].theirs.moved - 1


#: With five replicas on five racks the reading gets stuck before all racks are apart.
@pytest.mark.parametrize("name", [name for name in CASES if name != "rf5Replace"])
def test_the_reading_of_the_iteration_is_even_and_keeps_racks_apart(name: str) -> None:
    snapshot = snapshot_of_case(CASES[name])
    rows = snapshot.brokers.to_pylist()
    rack = {row["broker"]: row["rack"] for row in rows}
    targets = [row["broker"] for row in rows if row["state"] in ("live", "new")]
    after = rebalanced(snapshot.partitions["replicas"].to_pylist(), targets, rack)
    for replicas in after:
        assert len({rack[one] for one in replicas}) == len(set(replicas)) == len(replicas)
        assert set(replicas) <= set(targets)
    ours = planned(snapshot, "rebalance").proof["spread"]["replicas"]["after"]["by_broker"]
    held = [one for replicas in after for one in replicas]
    assert sorted(held.count(one) for one in targets) == sorted(ours[str(one)] for one in targets)


def test_twenty_replicas_need_not_move_where_one_will_do() -> None:
    # 20 brokers in two zones, ten partitions; the last broker goes. A fresh placement moves nearly all of it.
    pairs = [(7, 18), (8, 19), (9, 10), (0, 11), (1, 12), (2, 13), (3, 14), (4, 15), (5, 16), (6, 17)]
    document = {
        "version": 1,
        "partitions": [{"topic": "t", "partition": at, "replicas": list(pair)} for at, pair in enumerate(pairs)],
    }
    from kafka_steward.planning.files.reassignment import snapshot_tables
    from tests.builders import snapshot_of

    brokers = [{"id": one, "rack": "ab"[one % 2], **({"state": "draining"} if one == 19 else {})} for one in range(20)]
    tables = snapshot_tables(json.loads(json.dumps(document)), brokers)
    snapshot = snapshot_of(tables[0].to_pylist(), tables[1].to_pylist())
    plan = planned(snapshot, "drain")
    assert plan.proof["replicas_moved"] == 1
    assert check(snapshot, plan).unproven == ()


def test_the_benchmarks_tables_hold_what_they_promise() -> None:
    given, made = exactness(10).splitlines()[2:4]
    assert re.findall(r"\d+", given) == ["12", *"000000"]
    assert re.findall(r"\d+", made)[1:] == [*"000000"]
    rows = makespans(moves=300).splitlines()[2:]
    assert all(float(row.split("|")[2]) <= 1.06 for row in rows[1:])
