"""The archive for remote executors: the planning code, LEMON's flow solver and fsspec, in one file.

NumPy and pyarrow are left to the cluster, because its Spark needs them for Arrow anyway. Binary parts fit one platform
and one version of Python: make the archive with the version that the executors run.
"""

from __future__ import annotations

import importlib.util
import tarfile
from collections.abc import Iterator
from pathlib import Path

from kafka_steward.errors import PlanError

#: Name of the unpacked archive in each executor's working directory.
FOLDER = "kafka_steward_archive"

_OURS = ("__init__.py", "assignment.py", "errors.py", "escaping.py", "planning")


def make_archive(path: str) -> None:
    """Write the archive, a `.tar.gz`. Raises PlanError when it cannot be written."""
    try:
        with tarfile.open(path, "w:gz", compresslevel=3, dereference=True) as archive:
            for name, file in sorted(_archive_members()):
                archive.add(file, name, recursive=False)
    except OSError as error:
        raise PlanError(f"The archive {path} cannot be written: {error.strerror}.") from error


def archive_conf(uri: str) -> dict[str, str]:
    """Return the Spark configuration that puts the archive at `uri` on every executor's path."""
    return {"spark.archives": f"{uri}#{FOLDER}", "spark.executorEnv.PYTHONPATH": f"./{FOLDER}"}


def _archive_members() -> Iterator[tuple[str, Path]]:
    whole = (".",)
    for package, parts in (("kafka_steward", _OURS), ("pylmcf", whole), ("nanobind_backend", whole), ("fsspec", whole)):
        folder = _package_folder(package)
        for part in parts:
            yield from _walk_files(folder / part, folder.parent)


def _walk_files(start: Path, base: Path) -> Iterator[tuple[str, Path]]:
    found = [start] if start.is_file() else start.rglob("*")
    for file in found:
        if file.is_file() and "__pycache__" not in file.parts:
            yield str(file.relative_to(base)), file


def _package_folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise PlanError(f"The archive cannot be made: {package} is not installed here.")
    return Path(next(iter(spec.submodule_search_locations)))
