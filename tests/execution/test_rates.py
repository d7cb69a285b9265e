"""Which rate a broker gets, and what is written down of it: one line per case. Bytes per second."""

from __future__ import annotations

import pytest

from kafka_steward.execution.throttle_rates import decide_rate, effective_rate, lease_late_rate
from kafka_steward.journal.records import ThrottleLease


def noted(before: str | None, ours: str | None, rate: str = "50", *earlier: str, **others: str) -> ThrottleLease:
    return ThrottleLease(before, ours, {"p": (rate,), **{plan: (each,) for plan, each in others.items()}}, earlier)


@pytest.mark.parametrize(
    ("known", "rate", "now", "then", "wanted"),
    [
        (None, "50", None, noted(None, "50"), "50"),
        (None, "50", "70", noted("70", "50"), "50"),
        (None, "50", "7", noted("7", None), None),
        (None, "50", "50", noted("50", None), None),
        (None, None, "70", None, None),
        (noted("7", None), "50", "7", noted("7", None), None),
        (noted("7", None), "50", None, noted(None, "50"), "50"),
        (noted("7", None), "50", "70", noted("70", "50"), "50"),
        (noted("7", None), "5", "7", noted("7", "5", "5"), "5"),
        (noted(None, "50"), "50", "50", noted(None, "50"), None),
        (noted(None, "50"), "50", None, noted(None, "50"), "50"),
        (noted("70", "50"), "50", None, noted(None, "50"), "50"),
        (noted("70", "50"), "50", "70", noted("70", "50"), "50"),
        (noted("70", "50"), "500", "50", noted("70", "70", "500", "50"), "70"),
        (noted(None, "50"), "500", "50", noted(None, "500", "500", "50"), "500"),
        (noted(None, "50"), "20", "50", noted(None, "20", "20", "50"), "20"),
        (noted(None, "50"), "50", "7", noted(None, "50"), None),
        (noted(None, "50"), "50", "99", noted(None, "50"), None),
        (noted(None, "50"), "20", "99", noted("99", "20", "20", "50"), "20"),
        (noted(None, "50"), "20", "7", noted(None, "50", "20"), None),
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


def test_an_earlier_rate_of_ours_that_shows_is_ours_to_give_back() -> None:
    assert [effective_rate(noted("70", "20", "20", "50"), now) for now in ("20", "50", "70", "9", None)] == [
        "20",
        "20",
        "70",
        "9",
        None,
    ]


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
