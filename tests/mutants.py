"""`make mutants`: change the code in one place at a time, and name each change that no quick test of it notices.

mutmut makes the changes and runs the tests, in a copy of the repository whose folders are named as they are installed.
`tests/mutants.toml` says what is changed, which tests have to notice, and which changes are known to change nothing.
The table and the diff of each survivor are in `build/mutants.txt`. A survivor that is not known ends the run with a
sentence and exit code 1, and so does one that is listed as known and does not survive.
As a plugin of pytest, this module lets the shortest tests run first.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[1]
_BUILD = _ROOT / "build"
#: What mutmut's exit codes mean; any other than these ends the run.
_OUTCOMES = {0: "survived", 33: "survived", 5: "survived", 1: "killed", 3: "killed", -24: "timed out", 24: "timed out"}
_OUTCOMES |= {36: "timed out", 152: "timed out", 255: "timed out", -9: "timed out"}
_PYTEST = ("--quick", "--every-case", "-p", "no:cacheprovider", "-p", "tests.mutants")
_COLUMNS = ("tried", "killed", "survived", "timed out")
#: A quoted text. Where it holds a space it is a sentence: its words are tested where they matter, not letter by letter.
_QUOTED = re.compile(r"""\"{3}.*?\"{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'""", re.DOTALL)
#: Whether `zip` asserts that both sides have one length: they have, by construction, and no test can make it otherwise.
#: mutmut leaves the comma before an argument that it removes.
_STRICT = re.compile(r",\s*(?:strict=\w+\s*,?\s*)?(?=\))")


@dataclass(frozen=True)
class Mutant:
    """One change: `name` is mutmut's; module, function and the changed lines outlast edits elsewhere."""

    name: str
    file: Path
    function: str
    before: str
    after: str

    @property
    def key(self) -> tuple[str, str, str]:
        lines = difflib.unified_diff(self.before.splitlines(), self.after.splitlines(), n=0, lineterm="")
        changed = [line[0] + " " + line[1:].strip() for line in list(lines)[2:] if not line.startswith("@@")]
        return str(self.file), self.function, "\n".join(changed)

    @property
    def is_of_no_interest(self) -> bool:
        """Whether it changes words that are for people, or an assertion about our own code."""
        return _essence(self.before) == _essence(self.after)

    @property
    def rank(self) -> str:
        """As good as chance, and the same as long as the function is."""
        return sha256("\n".join(self.key).encode()).hexdigest()


def _essence(code: str) -> list[str]:
    """The code without its sentences, and without a word on how strict a `zip` is."""
    code = _QUOTED.sub(lambda found: "" if re.search(r"\s", found[0]) else found[0], code)
    return _STRICT.sub("", code).split()


@dataclass(frozen=True)
class Part:
    """Folders or files that are tried with the same tests; of their mutants, `sample` are tried, or all."""

    name: str
    paths: list[str]
    tests: list[str]
    without_files: Sequence[str] = ()
    without_tests: Sequence[str] = ()
    sample: int | None = None

    def files(self, asked: Sequence[Path]) -> list[Path]:
        found = [file.relative_to(_ROOT) for path in self.paths for file in _files(_ROOT / path)]
        if asked:
            return [file for file in found if file in asked]
        return [file for file in found if not any(file.match(pattern) for pattern in self.without_files)]


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def main() -> str | None:
    """Try the mutants; return why the run fails, None if it does not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="all of these files' mutants; else what mutants.toml says")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--sample", type=int, help="of each part, at most so many")
    options = parser.parse_args()
    asked = [file.resolve().relative_to(_ROOT) for file in options.files]
    settings = _settings()
    known = {(each["file"], each["function"], each["change"].strip()): each["reason"] for each in settings["known"]}
    outcomes: dict[Mutant, str] = {}
    parts = [Part(**each) for each in settings["part"]]
    if missing := [name for part in parts for name in _missing(part)]:
        parser.error(f"tests/mutants.toml leaves out what is not there: {', '.join(missing)}")
    chosen = [(part, files) for part in parts if (files := part.files(asked))]
    if not chosen:
        parser.error("none of these files is in a folder that tests/mutants.toml names")
    for part, files in chosen:
        sample = options.sample or (None if asked else part.sample)
        outcomes |= _tried(part, files, sample, options.processes)
    survivors = [mutant for mutant, outcome in outcomes.items() if outcome == "survived"]
    new = [mutant for mutant in survivors if mutant.key not in known]
    # What is known and was tried, and is noticed by now, needs no reason any more.
    noticed = known.keys() & {mutant.key for mutant in outcomes} - {mutant.key for mutant in survivors}
    stale = [f"{file}: {function} is noticed by now:\n{change}" for file, function, change in sorted(noticed)]
    counted = f"{len(survivors)} survived, {len(new)} of them not known; {len(stale)} known ones did not."
    report = "\n\n".join([_table(outcomes), counted, *map(_diff, new), *stale])
    _BUILD.mkdir(exist_ok=True)
    (_BUILD / "mutants.txt").write_text(report + "\n")
    print(report)
    return _why_failed(len(new), len(stale))


def _why_failed(new: int, stale: int) -> str | None:
    faults = [
        (new, "survived that tests/mutants.toml does not list as known"),
        (stale, "that tests/mutants.toml lists as known did not survive"),
    ]
    counted = " and ".join(f"{count} {what}" for count, what in faults if count)
    return f"Of the mutants, {counted}: read build/mutants.txt." if counted else None


def _missing(part: Part) -> list[str]:
    """The tests and files that the part leaves out and that are there no more: renamed, they would be tried."""
    places = (name.partition("::")[::2] for name in part.without_tests)
    tests = [
        f"{file}::{function}"
        for file, function in places
        if not (_ROOT / file).exists() or f"def {function}" not in (_ROOT / file).read_text()
    ]
    return [*tests, *(pattern for pattern in part.without_files if not any(_ROOT.glob(pattern)))]


def _settings() -> Mapping[str, Any]:
    return {"known": []} | tomllib.loads((_ROOT / "tests/mutants.toml").read_text())


def _tried(part: Part, files: Sequence[Path], sample: int | None, processes: int) -> dict[Mutant, str]:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "repository"
        _copy(place, part, [installed_path(file) for file in files])
        os.chdir(place)  # mutmut reads its settings where it is imported
        mutants = [mutant for file in files for mutant in _mutants(file) if not mutant.is_of_no_interest]
        chosen = sorted(mutants, key=lambda mutant: mutant.rank)[:sample]
        started = time.monotonic()
        _run(chosen, processes)
        seconds = time.monotonic() - started
        print(f"{part.name}: {len(chosen)} of {len(mutants)} mutants in {seconds:.0f} s", flush=True)
        codes: dict[str, int] = {}
        for file in {mutant.file for mutant in chosen}:
            codes |= json.loads((place / "mutants" / f"{installed_path(file)}.meta").read_text())["exit_code_by_key"]
        os.chdir(_ROOT)
        return {mutant: _OUTCOMES[codes[mutant.name]] for mutant in sorted(chosen, key=lambda mutant: mutant.key)}


def installed_path(file: Path) -> Path:
    """Return where a file of the repository is installed: `provider/x.py` is `kafka_steward/x.py`."""
    return Path("kafka_steward", *file.parts[1:]) if file.parts[0] == "provider" else Path("kafka_steward", file)


#: What the tests need beside the mutated package.
_COPIED = ("benchmarks", "docs", "provider", "operators", "sensors", "dags")


def copy_repository(place: Path) -> None:
    """Copy the repository to `place`, a new folder, with its folders beside it as they are installed."""
    left = shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__", "spark-warehouse")
    shutil.copytree(_ROOT, place, ignore=left)
    shutil.copytree(place / "provider", place / "kafka_steward")
    for folder in ("operators", "sensors", "dags"):
        shutil.copytree(place / folder, place / "kafka_steward" / folder)


def _copy(place: Path, part: Part, files: Sequence[Path]) -> None:
    copy_repository(place)
    settings = {
        "source_paths": ["kafka_steward"],
        "only_mutate": [str(file) for file in files],
        "also_copy": [*_COPIED, "README.md"],
        "pytest_add_cli_args": [*_PYTEST, *(f"--deselect={test}" for test in part.without_tests)],
        "pytest_add_cli_args_test_selection": part.tests,
        "timeout_multiplier": 5.0,
        "timeout_constant": 2.0,
        "use_git_change_detection": False,
    }
    with (place / "pyproject.toml").open("a") as file:
        file.write("\n[tool.mutmut]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items()))


def _mutants(file: Path) -> Iterable[Mutant]:
    from mutmut.mutation.file_mutation import mutate_file_contents
    from mutmut.utils.format_utils import get_mutant_name, mangled_name_from_mutant_name, parse_mutant_key

    installed = installed_path(file)
    mutated = mutate_file_contents(str(installed), installed.read_text())
    lines = mutated.code.splitlines()

    def source(name: str, mangled: str) -> str:
        span = mutated.line_span_by_function_name[name]
        return "\n".join(lines[span.start - 1 : span.end]).replace(name, parse_mutant_key(mangled)[0])

    for name in mutated.mutant_names:
        mangled = mangled_name_from_mutant_name(name)
        function, of_class = parse_mutant_key(mangled)
        before, after = source(f"{mangled}__mutmut_orig", mangled), source(name, mangled)
        yield Mutant(
            get_mutant_name(installed, name), file, f"{of_class}.{function}" if of_class else function, before, after
        )


def _run(mutants: Sequence[Mutant], processes: int) -> None:
    _BUILD.mkdir(exist_ok=True)
    mutmut = str(Path(sys.executable).with_name("mutmut"))
    command = [mutmut, "run", "--max-children", str(processes), *(mutant.name for mutant in mutants)]
    with (_BUILD / "mutants.log").open("w") as log:
        environment = os.environ | {"PYTHONUTF8": "1"}
        done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=environment, check=False)
    if done.returncode:
        sys.exit(f"mutmut could not run: read the end of {_BUILD / 'mutants.log'}")


def _table(outcomes: Mapping[Mutant, str]) -> str:
    counts: dict[str, Counter[str]] = {}
    for mutant, outcome in outcomes.items():
        counts.setdefault(str(mutant.file.parent), Counter()).update(["tried", outcome])
    rows = [
        ["package", *_COLUMNS],
        *([name, *(str(each[column]) for column in _COLUMNS)] for name, each in counts.items()),
    ]
    return "\n".join(f"{name:40}" + "".join(f"{cell:>12}" for cell in cells) for name, *cells in rows)


def _diff(mutant: Mutant) -> str:
    lines = difflib.unified_diff(mutant.before.splitlines(), mutant.after.splitlines(), lineterm="")
    return "\n".join([f"{mutant.file}: {mutant.function}", *list(lines)[2:]])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The shortest first: most mutants are killed by many tests."""
    measured = Path("mutmut-stats.json")
    if measured.exists():
        seconds = json.loads(measured.read_text())["duration_by_test"]
        items.sort(key=lambda item: float(seconds.get(item.nodeid, 0)))


if __name__ == "__main__":
    sys.exit(main())
