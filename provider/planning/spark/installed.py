"""Find and check the Spark that is installed with Python, without importing it.

Airflow's Spark provider requires the package pyspark-client. It holds the Python code of pyspark without the jars, in
the same folder, and may be of another version: what pip installs last overwrites the code of what it installed first,
and then no job runs. The jars bring the Python code of their own version as an archive, which takes precedence here.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from kafka_steward.errors import PlanningFailed

_VERSION = re.compile(r"""^__version__.*=\s*['"]([^'"]+)['"]""", re.MULTILINE)


def find_spark() -> Path:
    """Return the folder of the installed Spark, or of SPARK_HOME.

    The folder has jars, and Python code of their version, in place or as an archive. Raises PlanningFailed, with the
    command that repairs it.
    """
    home = Path(os.environ.get("SPARK_HOME") or _package_folder())
    if not (home / "jars").is_dir():
        raise PlanningFailed(f"Spark is missing: {home} has no jars{_CLIENT_ONLY}. {_repair_message()}")
    if _has_other_code(home) and not _archived_code(home):
        raise PlanningFailed(
            f"Spark cannot be used: in {home} the jars are of version {_jars_version(home)} and the Python code is of "
            f"version {_code_version(home)}{_CLIENT_OVER_IT}. {_repair_message()}"
        )
    return home


@dataclass(frozen=True)
class InstalledSpark:
    """The Spark that jobs on this machine use. A version is None if no file names it.

    `version` is that of the jars, and `code_in_place` that of the Python code that `import pyspark` finds. Where they
    differ, jobs use the code that came with the jars.
    """

    home: Path
    version: str | None
    code_in_place: str | None


def describe_spark() -> InstalledSpark:
    """Return the installed Spark, without starting or importing it. Raises PlanningFailed as `find_spark` does."""
    home = find_spark()
    return InstalledSpark(home, _jars_version(home), _code_version(home))


def repair_command() -> str:
    """Return the command that installs Spark, or puts it right where pyspark-client is in its place."""
    pip = f"{sys.executable} -m pip install"
    if util.find_spec("pyspark") is None:
        return f"{pip} 'apache-airflow-providers-apache-spark[pyspark]'"
    installed = {
        package.name: package.version for package in metadata.distributions() if package.name.startswith("pyspark")
    }
    # Where only pyspark-client is left, its version is the best guess.
    version = installed.get("pyspark") or installed.get("pyspark-client") or "4.*"
    return f"{pip} --force-reinstall --no-deps pyspark=={version}"


def prefer_code_of_jars() -> None:
    """Make `import pyspark` find the code that belongs to the jars. Call this before the first import of it.

    Raises PlanningFailed as `find_spark` does. A Python that Spark itself starts does not need this.
    """
    home = find_spark()
    if _has_other_code(home):
        sys.path[:0] = [str(path) for path in _archived_code(home)]
        # pyspark looks for its jars around its own files, and so not around an archive.
        os.environ["SPARK_HOME"] = str(home)


def hadoop_version() -> str | None:
    """Return the version of Hadoop's jars, such as 3.5.0, which further jars must have; None if no jar names it.

    Raises PlanningFailed as `find_spark` does.
    """
    names = [path.stem for path in (find_spark() / "jars").glob("hadoop-client-api-*.jar")]
    return names[0].rpartition("-")[2] if names else None


_CLIENT_ONLY = ", because the package pyspark-client was installed instead of pyspark, or over it"
_CLIENT_OVER_IT = ", because the package pyspark-client was installed over pyspark"


def _package_folder() -> str:
    spec = util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise PlanningFailed(
            f"Spark is missing: the package pyspark is not installed on the worker. Run `{repair_command()}`."
        )
    return str(Path(spec.origin).parent)


def _has_other_code(home: Path) -> bool:
    code, jars = _code_version(home), _jars_version(home)
    return code is not None and jars is not None and code != jars


def _code_version(home: Path) -> str | None:
    """Return the version of the Python code in place; None for a Spark that has only the archive, as SPARK_HOME has."""
    file = home / "version.py"
    version = _VERSION.search(file.read_text()) if file.is_file() else None
    return None if version is None else version[1]


def _jars_version(home: Path) -> str | None:
    names = [path.stem for path in (home / "jars").glob("spark-core_*.jar")]
    return names[0].rpartition("-")[2] if names else None


def _archived_code(home: Path) -> list[Path]:
    """Return the archives of pyspark and of py4j that the jars came with; empty if either is missing."""
    archives = [*home.glob("python/lib/pyspark.zip"), *home.glob("python/lib/py4j-*-src.zip")]
    return archives if len(archives) > 1 else []


def _repair_message() -> str:
    return f"Run `{repair_command()}` on the worker."
