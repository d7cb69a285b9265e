"""The wheel with the oldest and the newest versions of what it requires, and with those that others prescribe."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.install.environments import (
    PACKAGE,
    ROOT,
    UV,
    Environment,
    assert_works,
    build_wheel,
    find_pythons,
    requirements_of,
    resolve,
    run,
    uv_environment,
)

#: All that `requires-python` admits.
ADMITTED = [f"3.{minor}" for minor in range(11, 15)]
OFFICIAL = Path(__file__).with_name("airflow-constraints-2026-10-01-python3.13.txt")

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("sources"))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder that does not remain: an environment has a gigabyte."""
    yield tmp_path
    shutil.rmtree(tmp_path)


def oldest() -> Path:
    return next(iter(find_pythons().values()))


def newest() -> Path:
    return [*find_pythons().values()][-1]


def lowest(place: Path, wheel: Path) -> Environment:
    """The oldest version of each package that we name, on the oldest Python."""
    (place / "ours.txt").write_text("\n".join(requirements_of(wheel)))
    return uv_environment(place, oldest(), wheel, "--resolution", "lowest-direct", "--requirements", place / "ours.txt")


def highest(place: Path, wheel: Path) -> Environment:
    return uv_environment(place, newest(), wheel)


def official_constraints(place: Path, wheel: Path) -> Environment:
    """Under Airflow's own constraints. They were made for Python 3.13, and may be met on an earlier one, too."""
    return uv_environment(place, newest(), wheel, "--constraints", OFFICIAL)


def as_airflow_alone(place: Path, wheel: Path) -> Environment:
    """Under the versions that Airflow resolves to when nothing of ours is there."""
    python = find_pythons().get("3.12", Path(sys.executable))
    (place / "airflow.in").write_text("apache-airflow<4\n")
    run(
        *(UV, "pip", "compile", "--quiet", "--python", python, place / "airflow.in"),
        *("--output-file", place / "airflow.txt"),
        cwd=place,
    )
    return uv_environment(place, python, wheel, "--constraints", place / "airflow.txt")


def pinned(environment: Environment, constraints: Path) -> dict[str, tuple[str, str]]:
    """Return the prescribed and the installed version of each installed package that `constraints` name."""
    lines = [line for line in constraints.read_text().splitlines() if line and not line.startswith(("#", " "))]
    wanted = {name.lower().replace("_", "-"): version for name, _, version in (line.partition("==") for line in lines)}
    frozen = run(UV, "pip", "freeze", "--python", environment.python, cwd=environment.bin).splitlines()
    found = {name.lower().replace("_", "-"): version for name, _, version in (one.partition("==") for one in frozen)}
    return {name: (wanted[name], found[name]) for name in wanted.keys() & found.keys()}


@pytest.mark.parametrize(
    "install",
    [lowest, *(pytest.param(one, marks=pytest.mark.slow) for one in (official_constraints, highest, as_airflow_alone))],
)
def test_airflow_lists_it_and_the_documented_plan_is_made(
    install: Callable[[Path, Path], Environment], wheel: Path, place: Path
) -> None:
    environment = install(place, wheel)
    if install is lowest:
        for requirement in map(Requirement, requirements_of(wheel)):
            (least,) = (one.version for one in requirement.specifier if one.operator == ">=")
            version = environment.version(requirement.name, place)
            assert version.startswith(least), requirement
    if install is official_constraints:
        both = pinned(environment, OFFICIAL)
        assert len(both) > 100
        assert {name: versions for name, versions in both.items() if len(set(versions)) > 1} == {}
    assert_works(environment, place)


@pytest.mark.slow
@pytest.mark.parametrize("install", [lowest, highest])
def test_the_quick_tests_pass(install: Callable[[Path, Path], Environment], wheel: Path, place: Path) -> None:
    environment = install(place, wheel)
    run(UV, "pip", "install", "--quiet", "--python", environment.python, f"{wheel}[dev]", cwd=place)
    command = ("python", "-m", "pytest", "--quick", "-n", "2", "--dist", "worksteal", "-p", "no:cacheprovider")
    assert " passed" in environment.run(*command, cwd=ROOT).splitlines()[-1]


def test_every_python_that_is_admitted_gets_the_newest_airflow(wheel: Path, tmp_path: Path) -> None:
    """By resolver: whether or not an interpreter of that version is here."""
    (tmp_path / "ours.in").write_text("\n".join(requirements_of(wheel)))
    for version in ADMITTED:
        built = ("--no-binary", "pyspark", "--no-binary", "pyspark-client")
        wheels = ("--only-binary", ":all:", *built)
        chosen = resolve(tmp_path, "--python-version", version, *wheels, tmp_path / "ours.in")
        assert chosen["apache-airflow"].startswith("3.3."), version
        assert chosen["kafka-python"].startswith("3.0."), version


def test_the_extras_resolve_together_with_airflow(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "ours.in").write_text(f"{PACKAGE}[all] @ {wheel.as_uri()}\n")
    chosen = resolve(tmp_path, tmp_path / "ours.in")
    assert {"adlfs", "apache-airflow", "botocore", "gcsfs", "jgo", "psycopg", "s3fs"} <= chosen.keys()
