"""Which rate a broker gets, and what is written down of it: one line per case. Bytes per second."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_steward.cluster.configs import ConfigChange, ConfigOp
from kafka_steward.execution.throttle_rates import decide_rate, lease_late_rate, rate_restoring_change
from kafka_steward.journal.records import ThrottleLease


def noted(before: str | None, ours: str | None, rate: str = "50", *earlier: str, **others: str) -> ThrottleLease:
    return ThrottleLease(before, ours, {"p": (rate,), **{plan: (each,) for plan, each in others.items()}}, earlier)


@pytest.mark.parametrize(
    ("known", "rate", "now", "then", "wanted"),
    [
        (None, "50", None, noted(None, "50"), "50"),
        (None, "50", "70", noted("70", "50"), "50"),
        (None, "50", "7", noted("7", None), "7"),
        (None, "50", "50", noted("50", None), "50"),
        (None, None, "70", None, "70"),
        (noted("7", None), "50", "7", noted("7", None), "7"),
        (noted("7", None), "50", None, noted(None, "50"), "50"),
        (noted("7", None), "50", "70", noted("70", "50"), "50"),
        (noted("7", None), "5", "7", noted("7", "5", "5"), "5"),
        (noted(None, "50"), "50", "50", noted(None, "50"), "50"),
        (noted(None, "50"), "50", None, noted(None, "50"), "50"),
        (noted("70", "50"), "50", None, noted(None, "50"), "50"),
        (noted("70", "50"), "50", "70", noted("70", "50"), "50"),
        (noted("70", "50"), "500", "50", noted("70", None, "500", "50"), "70"),
        (noted(None, "50"), "500", "50", noted(None, "500", "500", "50"), "500"),
        (noted(None, "50"), "20", "50", noted(None, "20", "20", "50"), "20"),
        (noted(None, "50"), "50", "7", noted(None, "50"), "7"),
        (noted(None, "50"), "50", "99", noted(None, "50"), "99"),
        (noted(None, "50"), "20", "99", noted("99", "20", "20", "50"), "20"),
        (noted(None, "50"), "20", "7", noted(None, "50", "20"), "7"),
        (noted(None, "20", "20", "50"), "20", "50", noted(None, "20", "20", "50"), "20"),
        (noted(None, "20", "20", "50"), "50", "20", noted(None, "50", "50", "20"), "50"),
        (noted(None, "50", "50", q="80"), "90", "50", noted(None, "80", "90", "50", q="80"), "80"),
        (noted(None, "50"), None, None, noted(None, "50"), "50"),
        (ThrottleLease(None, "50", {"p": ()}), None, None, ThrottleLease(None, "50", {"p": ()}), "50"),
        (ThrottleLease(None, None, {"p": ()}), None, None, ThrottleLease(None, None, {"p": ()}), None),
        (
            ThrottleLease(None, "80", {"q": ()}),
            "50",
            "80",
            ThrottleLease(None, "50", {"q": (), "p": ("50",)}, ("80",)),
            "50",
        ),
    ],
    ids=[
        "none was there",
        "a looser one was there",
        "a stricter one was there",
        "the same was there",
        "this plan asks for none",
        "the stricter one stays",
        "the stricter one was cleared",
        "the stricter one was loosened",
        "ours is made stricter than theirs",
        "it is set",
        "it was cleared, or does not show yet",
        "all was cleared: what was there before is withdrawn",
        "what was there before shows still",
        "raised, but not above what was there",
        "raised",
        "lowered",
        "someone set a stricter one since",
        "someone set a looser one since",
        "lowered below what someone set since",
        "lowered, and someone has a stricter one",
        "an earlier one of ours shows",
        "back to an earlier one of ours",
        "another plan asks for a stricter one",
        "as before, which was cleared",
        "written down by the release before, and cleared",
        "written down, and never set",
        "another plan's, written down by the release before",
    ],
)
def test_the_rate_of_a_broker(
    known: ThrottleLease | None, rate: str | None, now: str | None, then: ThrottleLease | None, wanted: str | None
) -> None:
    assert decide_rate(known, "p", rate, now) == (then, wanted)


@pytest.mark.parametrize(
    ("known", "rate", "shown", "then", "wanted"),
    [
        (None, "50", (None, "7"), noted(None, None), None),
        (None, "50", (None, "50"), noted(None, None), None),
        (None, "50", (None, "0"), noted(None, None), None),
        (None, "50", (None, "70"), noted(None, "50"), "50"),
        (None, "50", ("70", "7"), noted("70", "50"), "50"),
        (None, "50", ("7", "9"), noted("7", None), "7"),
        (noted(None, None), "50", (None, "7"), noted(None, None), None),
        (noted(None, None), "50", (None, "70"), noted(None, "50"), "50"),
        (noted(None, None), "50", (None, None), noted(None, "50"), "50"),
        (noted(None, None), "50", ("99", "7"), noted("99", "50"), "50"),
        (noted(None, None), "5", (None, "7"), noted(None, "5", "5"), "5"),
        (noted(None, "50"), "50", ("50", "7"), noted(None, None, "50", "50"), None),
        (noted(None, "50"), "50", ("50", "70"), noted(None, "50"), "50"),
        (noted(None, "50"), "50", (None, "7"), noted(None, None, "50", "50"), None),
        (noted(None, "50"), "50", ("99", "7"), noted(None, "50"), "99"),
        (noted("70", "50"), "50", (None, "7"), noted(None, None, "50", "50"), None),
        (noted("70", "50"), "50", ("50", "7"), noted("70", "50"), "50"),
        (noted(None, None, "50", "50"), "50", ("50", "7"), noted(None, None, "50", "50"), None),
        (noted(None, None, "50", "50"), "50", ("50", "70"), noted(None, "50"), "50"),
        (noted(None, None, "50", "50"), None, (None, None), noted(None, "50"), "50"),
        (noted("7", None, "50", "50"), "50", ("50", None), noted("7", None, "50", "50"), "7"),
        (noted(None, "20", "50", q="20"), "50", ("20", "30"), noted(None, "20", "50", q="20"), "20"),
        (noted(None, "20", "50"), "50", ("20", "30"), noted(None, None, "50", "20"), None),
    ],
    ids=[
        "a stricter one is there for all",
        "the same is there for all",
        "the strictest is there for all",
        "a looser one is there for all",
        "the broker's own one hides the stricter one for all",
        "the broker's own stricter one hides the one for all",
        "the stricter one for all stays",
        "the one for all was loosened",
        "the one for all was deleted",
        "someone set a looser one on the broker",
        "ours is made stricter than the one for all",
        "a stricter one for all appeared",
        "a looser one for all appeared",
        "a stricter one for all appeared, and ours was cleared",
        "someone set one on the broker, and then one for all",
        "all was cleared on the broker, and one for all appeared",
        "what was there before hides the one for all",
        "ours, which was taken back, shows still",
        "ours, which was taken back, shows, and the one for all was loosened",
        "as before, and the one for all was deleted",
        "ours was set too late over a stricter one",
        "another plan asks for a stricter one than there is for all",
        "the plan that asked for a stricter one than there is for all has ended",
    ],
)
def test_the_rate_of_a_broker_with_one_for_all_brokers(
    known: ThrottleLease | None,
    rate: str | None,
    shown: tuple[str | None, str | None],
    then: ThrottleLease,
    wanted: str | None,
) -> None:
    assert decide_rate(known, "p", rate, *shown) == (then, wanted)


some_rate = st.none() | st.integers(0, 9).map(str)


@given(st.lists(st.tuples(some_rate, st.integers(1, 9).map(str)), min_size=1))
def test_a_broker_is_never_looser_than_the_plan_or_the_rate_for_all_brokers(
    steps: list[tuple[str | None, str]],
) -> None:
    """And what is left of it in the end is what was there before: nothing."""
    known: ThrottleLease | None = None
    own: str | None = None
    for inherited, rate in steps:
        known, own = decide_rate(known, "p", rate, own, inherited)
        applies = own or inherited
        assert applies is not None
        assert int(applies) == min(int(each) for each in (inherited, rate) if each is not None)
        assert own is None or inherited is None or int(own) < int(inherited)
    assert known is not None
    assert own is None or rate_restoring_change(own, known, "k") == ConfigChange("k", ConfigOp.DELETE)


def test_an_earlier_rate_of_ours_that_shows_is_ours_to_give_back() -> None:
    put_back = ConfigChange("k", ConfigOp.SET, "70")
    known = noted("70", "20", "20", "50")
    assert [rate_restoring_change(now, known, "k") for now in ("20", "50", "70", "9", None)] == [
        put_back,
        put_back,
        put_back,
        None,
        None,
    ]


def test_a_rate_that_was_taken_back_is_deleted_where_it_shows_again_and_none_that_we_never_set() -> None:
    deleted = ConfigChange("k", ConfigOp.DELETE)
    taken_back = noted(None, None, "50", "50")
    assert [rate_restoring_change(now, taken_back, "k") for now in ("50", None, "9")] == [deleted, None, None]
    assert [rate_restoring_change(now, noted("7", None), "k") for now in ("7", "50", None)] == [None] * 3
    assert rate_restoring_change(None, noted("7", None, "50", "50"), "k") is None, "a cleared rate is not put back"


def test_what_was_set_too_late_is_owed_again() -> None:
    assert lease_late_rate(None, "p", "50", "70") == noted("70", "50")
    others = ThrottleLease(None, "80", {"q": ("80",)})
    assert lease_late_rate(others, "p", "50", "80") == ThrottleLease(None, "80", {"q": ("80",), "p": ("50",)}, ("50",))
    assert lease_late_rate(noted(None, "50", "50", "20"), "p", "50", None) == noted(None, "50", "50", "20")


def test_no_more_than_twenty_rates_are_remembered() -> None:
    known: ThrottleLease | None = None
    for rate in range(100, 200):
        known, _ = decide_rate(known, "p", str(rate), None if known is None else known.ours)
    assert known is not None
    assert known.earlier == tuple(str(rate) for rate in range(179, 199))
