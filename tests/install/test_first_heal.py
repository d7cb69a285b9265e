"""The tutorial, typed as it stands by somebody who has only the wheel: a broker dies, and is healed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_steward.sandbox.artifacts import find_or_install_java
from kafka_steward.sandbox.cluster_layout import pick_ports
from tests.install.environments import ROOT, build_wheel, clean_environment
from tests.install.typed_page import TypedPage, missing_lines, type_page

PAGE = ROOT / "docs" / "start" / "first-heal.md"
#: An installation by pip, an Airflow's start and a heal, on a machine that does other things as well.
WITHIN_S = 1800.0

pytestmark = [pytest.mark.kraft, pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow, pytest.mark.apart]


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TypedPage]:
    folder = tmp_path_factory.mktemp("tutorial")
    yield type_page(PAGE, folder, newcomer(folder), within_s=WITHIN_S)
    # An environment has a gigabyte.
    shutil.rmtree(folder)


def newcomer(folder: Path) -> dict[str, str]:
    """The environment of somebody who has Python, Java, the wheel, and nothing else of ours.

    The port differs from the page's, because another Airflow of this machine may have that one.
    """
    programs, home = folder / "programs", folder / "home"
    programs.mkdir()
    home.mkdir()
    # This very Python would be the one of our own environment.
    (programs / "python3").write_text(f'#!/bin/sh\nexec {sys._base_executable} "$@"\n')  # type: ignore[attr-defined]
    (programs / "python3").chmod(0o755)
    java = find_or_install_java().home
    (port,) = pick_ports(1)
    wheels = " ".join(filter(None, (os.environ.get("PIP_FIND_LINKS"), str(build_wheel(folder / "sources").parent))))
    return {
        **clean_environment(),
        "PATH": os.pathsep.join((str(programs), str(java / "bin"), _path_without_ours())),
        "JAVA_HOME": str(java),
        "PIP_FIND_LINKS": wheels,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
    }


def _path_without_ours() -> str:
    ours = str(Path(sys.executable).parent)
    return os.pathsep.join(each for each in os.environ["PATH"].split(os.pathsep) if each != ours)


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
