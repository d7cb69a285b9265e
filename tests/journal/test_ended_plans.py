"""Plans that ended a while ago: out of what each look reads, and as they were for everybody else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_steward.assignment import TopicPartition
from kafka_steward.errors import JournalUnreachable, VersionConflict
from kafka_steward.journal import paths
from kafka_steward.journal.copy import copy_journal
from kafka_steward.journal.records import MoveState, PlanRecord, PlanStatus
from kafka_steward.journal.store import Journal, open_journal
from tests.journal.test_plans import moves_of, record_of


def ended(journal: Journal, digest: str = "d1", **changes: Any) -> PlanRecord:
    """A plan that is complete."""
    record = journal.plans.publish(record_of(journal, digest), moves_of(2))
    journal.plans.set_move_states(
        digest, [move.topic_partition for move in moves_of(2)], MoveState.COMPLETED, fence=None
    )
    return journal.plans.update(record, status=PlanStatus.COMPLETED, **changes)


def archive(journal: Journal, needed: str = "", most: int = 9) -> list[str]:
    """Whatever has ended by now."""
    return journal.plans.archive(journal.now_ms() + 1, is_needed=lambda record: record.digest == needed, most=most)


def test_it_leaves_the_tree_and_is_known_as_before(journal: Journal) -> None:
    before = ended(journal, reason="done")
    rows = journal.plans.rows("d1")
    assert archive(journal) == ["d1"]
    assert journal.tree.children(paths.PLANS) == []
    assert journal.plans.recent() == journal.plans.unfinished() == []
    assert journal.plans.get("d1") == before
    assert journal.plans.latest(9) == [before]
    assert journal.plans.digests() == ["d1"]
    assert journal.plans.rows("d1") == rows
    assert archive(journal) == []


def test_what_has_not_ended_or_is_needed_or_ended_lately_stays(journal: Journal) -> None:
    journal.plans.publish(record_of(journal, "d1"), moves_of(1))
    ended(journal, "d2")
    assert archive(journal, needed="d2") == []
    assert journal.plans.archive(journal.now_ms() - 60_000, is_needed=lambda _: False, most=9) == []
    assert [record.digest for record in journal.plans.recent()] == ["d1", "d2"]


def test_so_many_at_once(journal: Journal) -> None:
    for digest in ("d1", "d2", "d3"):
        ended(journal, digest)
    assert [len(archive(journal, most=2)) for _ in range(3)] == [2, 1, 0]


def test_the_latest_are_those_published_last_wherever_they_are(journal: Journal) -> None:
    for digest in ("d1", "d2", "d3"):
        ended(journal, digest)
    archive(journal, needed="d2")
    journal.plans.publish(record_of(journal, "d4"), moves_of(1))
    assert [record.digest for record in journal.plans.latest(3)] == ["d4", "d3", "d2"]
    assert len(journal.plans.latest(9)) == 4


def test_one_that_changes_is_among_the_others_again(journal: Journal) -> None:
    ended(journal)
    archive(journal)
    found = journal.plans.get("d1")
    assert found is not None
    changed = journal.plans.update(found, status=PlanStatus.ROLLED_BACK)
    assert journal.plans.recent() == [changed]
    assert journal.plans.latest(9) == [changed]
    with pytest.raises(VersionConflict):
        journal.plans.update(found, status=PlanStatus.ABANDONED)
    archive(journal)
    assert journal.plans.get("d1") == changed


def test_one_that_changes_is_in_the_tree_alone(journal: Journal) -> None:
    ended(journal, "d1")
    ended(journal, "d2")
    archive(journal)
    found = journal.plans.get("d1")
    assert found is not None
    journal.plans.update(found, reason="looked at again")
    assert journal.tree.children(paths.PLANS) == ["d1"]
    assert journal.plans._ended.digests() == ["d2"]


def test_the_same_plan_again_is_the_one_that_ended(journal: Journal) -> None:
    before = ended(journal)
    archive(journal)
    assert journal.plans.publish(record_of(journal), moves_of(2)) == before


def test_it_is_forgotten_with_its_rows_like_any_other(journal: Journal) -> None:
    ended(journal)
    archive(journal)
    assert journal.plans.purge(journal.now_ms() - 60_000) == []
    assert journal.plans.purge(journal.now_ms() + 1) == ["d1"]
    assert journal.plans.get("d1") is None
    assert journal.plans.rows("d1") == []


def test_a_process_that_dies_in_between_leaves_it_where_it_was(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ended(journal)

    def die(*_: object, **__: object) -> None:
        raise JournalUnreachable("The process died.")

    with monkeypatch.context() as patched:
        patched.setattr(journal.tree, "delete", die)
        with pytest.raises(JournalUnreachable):
            archive(journal)
    assert journal.plans.recent() == journal.plans.latest(9) == [before]
    assert archive(journal) == ["d1"]
    assert journal.plans.latest(9) == [before]


def test_a_process_that_dies_while_it_comes_back_loses_none_of_its_rows(journal: Journal) -> None:
    ended(journal)
    archive(journal)
    found = journal.plans.get("d1")
    assert found is not None
    # As where tree and rows are two stores: the node is there again, and the old row still is.
    journal.tree.create(paths.plan("d1"), replace(found, status=PlanStatus.RUNNING).to_json())
    assert journal.plans.purge(journal.now_ms() + 1) == []
    assert len(journal.plans.rows("d1")) == 2
    assert journal.plans._ended.digests() == []


def test_a_copy_has_it_too(journal: Journal, tmp_path_factory: pytest.TempPathFactory) -> None:
    before = ended(journal)
    archive(journal)
    url = f"sqlite:///{tmp_path_factory.mktemp('copy')}/journal.db"
    with open_journal(url, journal.cluster_id) as target:
        assert copy_journal(journal, target).plans == 1
        assert target.plans.get("d1") == before
        assert target.plans.rows("d1")[0].topic_partition == TopicPartition("orders", 0)
        assert target.plans.recent() == []
