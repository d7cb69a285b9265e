"""The tutorial, typed as it stands by somebody who has only the wheel and a browser: a broker dies, and is healed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest

from tests.install.environments import ROOT, newcomer
from tests.install.page_viewer import Person, Viewer
from tests.install.typed_page import TypedPage, missing_lines, type_page
from tests.page import browser

PAGE = ROOT / "docs" / "start" / "first-heal.md"
#: An installation by pip, an Airflow's start and a heal, on a machine that does other things as well.
WITHIN_S = 1800.0
WIDTHS = DESK, PHONE = 1300, 360
HEALTHY = "healthy Every partition is fully replicated."
#: What the page shows before a block with such a command is typed, as the tutorial says.
EXPECTED = (
    ("python -m kafka_steward.sandbox", "You may see no cluster"),
    ("kafka-steward plan drain", "No DAG uses this connection of type Kafka Steward: kafka_test;"),
    ("kill -9", HEALTHY),
    ("kill $(jobs -p)", HEALTHY),
)
#: States that may last for less time than the page takes to refresh itself.
BETWEEN = {"unwatched", "degraded"}

pytestmark = [pytest.mark.kraft, pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.apart]


@dataclass(frozen=True)
class Visit:
    """The tutorial that was typed, and what the page of Kafka Steward showed meanwhile, by the browser's width."""

    typed: TypedPage
    viewers: Mapping[int, Viewer]


@pytest.fixture(scope="module")
def visit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    folder = tmp_path_factory.mktemp("tutorial")
    environment = newcomer(folder)
    with ExitStack() as browsers:
        viewers = {width: browsers.enter_context(viewer(folder, width)) for width in WIDTHS}
        person = Person(folder, environment["AIRFLOW__API__BASE_URL"], [*viewers.values()], EXPECTED)
        typed = type_page(PAGE, folder, environment, within_s=WITHIN_S, beside=person.beside)
    yield Visit(typed, viewers)
    # An environment has a gigabyte.
    shutil.rmtree(folder)


@contextmanager
def viewer(folder: Path, width: int) -> Iterator[Viewer]:
    """A browser at a desk, where the page is within Airflow, or as narrow as a phone."""
    with browser(folder / f"browser-{width}") as page:
        page.emulate(width=width, height=800)
        yield Viewer(page, framed=width == DESK)


@pytest.fixture(scope="module")
def typed(visit: Visit) -> TypedPage:
    return visit.typed


def test_the_page_ends_with_a_healed_broker(typed: TypedPage) -> None:
    healed = typed.printed_by("grep completed")
    assert "heal" in healed, healed
    assert "0 of 12 partitions are under-replicated." in typed.printed_by("--under-replicated-partitions")
    assert "orders-" in typed.printed_by("audit --since")


def test_nothing_fails_but_the_first_look_as_the_page_says(typed: TypedPage) -> None:
    assert typed.failed == ("1 airflow kafka-steward doctor --cluster kafka_test",)
    assert "2 of " in typed.printed_by("doctor --cluster")


def test_each_answer_on_the_page_is_what_was_printed(typed: TypedPage) -> None:
    shown = [each for each in typed.blocks if each.block.shown]
    assert len(shown) >= 3
    assert {
        each.block.typed: missing for each in shown if (missing := missing_lines(each.printed, each.block.shown))
    } == {}


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_shows_each_stage_at_a_desk_and_on_a_phone(visit: Visit, width: int) -> None:
    seen = visit.viewers[width]
    stages = [word for word, _ in groupby(word for word in seen.words if word not in BETWEEN)]
    assert stages == ["healthy", "waiting", "healing", "healthy"], seen.words
    left = [int(found[1]) for each in seen.countdowns if (found := re.fullmatch(r"(\d+) s", each))]
    assert len(left) > 2, seen.countdowns
    assert left == sorted(left, reverse=True)
    assert left[0] <= 60
    assert re.search(r"Brokers live\s+3 of 3", seen.text), seen.text
    assert seen.too_wide == []
