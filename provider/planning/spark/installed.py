"""Find and check the Spark and the Java of this machine, without importing or starting them.

Airflow's Spark provider requires the package pyspark-client. It holds the Python code of pyspark without the jars, in
the same folder, and may be of another version: what pip installs last overwrites the code of what it installed first,
and then no job runs. The jars bring the Python code of their own version as an archive, which takes precedence here.

A plan of a few thousand partitions takes a JVM some seconds, in which it mostly loads, verifies and links Spark's
classes. Java can do that once and map the result into memory afterwards: class-data sharing (JEP 350). The archive is
recorded by `record_class_archive`, and used by every job on this machine from then on. A job without one is slower.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from kafka_steward.cache import cache_path, locked_cache
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
    if _is_too_old(_jars_version(home)):
        advice = "Unset SPARK_HOME, or let it name a Spark 4." if os.environ.get("SPARK_HOME") else _repair_message()
        raise PlanningFailed(
            f"Spark cannot be used: {home} has Spark {_jars_version(home)}, and plans need Spark 4. {advice}"
        )
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
    version = installed.get("pyspark") or installed.get("pyspark-client")
    if _is_too_old(version):
        return f"{pip} 'pyspark>=4,<5'"
    return f"{pip} --force-reinstall --no-deps pyspark=={version or '4.*'}"


def _is_too_old(version: str | None) -> bool:
    return version is not None and version.split(".")[0] in {"1", "2", "3"}


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


#: A JVM that lives for seconds gains nothing from its second compiler or from parallel garbage collection.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_JAVA_VERSION = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
_RECORDED_WITHIN_S = 600
#: The cluster that is planned while classes are recorded: one of its brokers has failed.
_BROKERS = [{"id": 1}, {"id": 2}, {"id": 3, "state": "failed"}]
_CURRENT = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 3]}]}


def local_java_options(home: Path, env: Mapping[str, str] = os.environ) -> str:
    """Return the options of the JVM for a job of the Spark at `home`, with the archive of its classes if there is one.

    `env` is the environment in which the JVM is started.
    """
    java = find_java(env)
    archive = None if java is None else _archive_path(java, home)
    if archive is None or not _is_trusted(archive):
        return QUICK_JAVA
    # A Java that cannot use it continues without it, but would log that into the job's output.
    return f"{QUICK_JAVA} -XX:SharedArchiveFile={archive} -Xlog:disable"


def record_class_archive(home: Path, env: Mapping[str, str] = os.environ) -> Path:
    """Record the classes that a plan loads, with the Spark at `home`, unless that has been done; return the archive.

    It makes a plan of one partition. An archive belongs to one Java and one Spark.
    Raises PlanningFailed if there is no Java, if Spark fails, and if the cache cannot be written.
    """
    java = find_java(env)
    if java is None:
        raise PlanningFailed("Spark needs Java, and none is in JAVA_HOME or on the PATH; install Java 17 or newer.")
    archive = _archive_path(java, home)
    if " " in str(archive):
        raise PlanningFailed(f"The cache {archive.parent} has a space in its name, which options of Java cannot have.")
    try:
        with locked_cache("spark-classes"):
            # A folder of its own, because a cache may be one of a group's.
            archive.parent.mkdir(mode=0o700, exist_ok=True)
            if not _is_trusted(archive):
                _record(home, archive, env)
    except OSError as error:
        raise PlanningFailed(f"The cache {archive.parent} cannot be written: {error.strerror}.") from error
    return archive


def find_java(env: Mapping[str, str] = os.environ) -> Path | None:
    """Return the Java that Spark's scripts start; None if there is none."""
    named = env.get("JAVA_HOME")
    java = f"{named}/bin/java" if named else shutil.which("java", path=env.get("PATH"))
    return Path(java).resolve() if java and Path(java).exists() else None


def java_version(java: Path) -> str | None:
    """Return the version of a Java, such as "17.0.9", from the file that is installed with it; None without one.

    The JVM is not started.
    """
    try:
        version = _JAVA_VERSION.search((java.parent.parent / "release").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return None if version is None else version[1]


#: The oldest Java that Spark 4 runs with.
OLDEST_JAVA = 17


def old_java_sentence(java: Path | None, version: str | None) -> str:
    """Return what to do about a Java that is too old for Spark; empty if it is not, or if its version is not known."""
    numbers = re.findall(r"\d+", (version or "").removeprefix("1."))
    if java is None or not numbers or int(numbers[0]) >= OLDEST_JAVA:
        return ""
    return (
        f"Java {version} is too old for Spark ({java}): install Java {OLDEST_JAVA} or newer, and let JAVA_HOME, if it "
        "is set, name it."
    )


def _archive_path(java: Path, home: Path) -> Path:
    # The key changes with Java and Spark. Java itself refuses an archive if either has changed since.
    jars = sorted((home.resolve() / "jars").glob("*.jar"))
    known = [f"{file}:{file.stat().st_mtime_ns}" for file in (java, *jars)]
    key = hashlib.sha256("\n".join(known).encode()).hexdigest()[:16]
    return cache_path() / "spark-classes" / f"{key}.jsa"


def _is_trusted(archive: Path) -> bool:
    """Return whether the archive exists and no other user can have written it: its classes run in the job."""
    try:
        facts = (archive.stat(), archive.parent.stat())
    except OSError:
        return False
    return all(fact.st_uid in (0, os.geteuid()) and not fact.st_mode & 0o022 for fact in facts)


def _record(home: Path, archive: Path, env: Mapping[str, str]) -> None:
    with tempfile.TemporaryDirectory(dir=archive.parent) as name:
        folder = Path(name)
        (folder / "brokers.json").write_text(json.dumps(_BROKERS))
        (folder / "current.json").write_text(json.dumps(_CURRENT))
        partial = folder / "classes.jsa"
        done = subprocess.run(
            _recording_command(home, folder, partial),
            env={**env, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=_RECORDED_WITHIN_S,
            check=False,
        )
        if done.returncode or not partial.exists():
            last = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
            raise PlanningFailed(
                f"Java wrote no archive of Spark's classes: {last[-1].strip() if last else 'it said nothing'}"
            )
        partial.chmod(0o444)
        partial.rename(archive)


def _recording_command(home: Path, folder: Path, archive: Path) -> list[str]:
    conf = {
        "spark.master": "local[*]",
        "spark.log.level": "ERROR",
        "spark.pyspark.driver.python": sys.executable,
        "spark.driver.extraJavaOptions": f"{QUICK_JAVA} -XX:ArchiveClassesAtExit={archive} -Xlog:disable",
    }
    job = Path(__file__).with_name("job.py")
    files = ["--current", str(folder / "current.json"), "--brokers", str(folder / "brokers.json")]
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    request = [*files, "--operation", "heal", "--out", str(folder / "plan")]
    return [str(home / "bin" / "spark-submit"), *options, str(job), *request]
