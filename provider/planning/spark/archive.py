"""Make and check the archive for remote executors: the planning code, LEMON's flow solver and fsspec, in one file.

NumPy and pyarrow are left to the cluster, because its Spark needs them for Arrow anyway. Binary parts fit one platform
and one minor version of Python. The first member of the archive names these, and the digest of the code that the
archive holds. It is read before a job is submitted.
"""

from __future__ import annotations

import importlib.util
import io
import json
import platform
import shutil
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from importlib import metadata
from pathlib import Path

import kafka_steward
from kafka_steward.errors import PlanError, SettingError
from kafka_steward.planning.files.storage import fsspec_uri, open_file

#: Name of the unpacked archive in each executor's working directory.
FOLDER = "kafka_steward_archive"
#: How an archive is made, for messages.
MAKE_ARCHIVE = "airflow kafka-steward make-archive"

_OURS = (
    *("__init__.py", "assignment.py", "cache.py", "errors.py", "escaping.py", "given_targets.py"),
    *("planning", "rack_rule.py", "service_topics.py", "value_parsing.py"),
)
_FACTS = "kafka_steward_archive.json"
#: Bytes that are read of the first member: more than ours ever has.
_LONGEST_FACTS = 10_000


def python_version() -> str:
    """Return the minor version of this Python, such as 3.11."""
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


@dataclass(frozen=True)
class ArchiveFacts:
    """The Python and platform that an archive fits, its version of Kafka Steward, and the digest of its code."""

    python: str
    platform: str
    version: str
    code: str

    @classmethod
    def of_this_machine(cls) -> ArchiveFacts:
        """Return the facts of an archive that would be made here and now."""
        machine = (sys.platform, platform.machine(), platform.libc_ver()[0])
        # Such as linux-x86_64-glibc: what binary packages are made for.
        name = "-".join(part for part in machine if part)
        return cls(python_version(), name, kafka_steward.__version__, _code_digest())


def make_archive(path: str) -> ArchiveFacts:
    """Write the archive, a `.tar.gz`, and return its facts. Raises PlanError when it cannot be written."""
    facts = ArchiveFacts.of_this_machine()
    content = json.dumps(asdict(facts), indent=2, sort_keys=True).encode()
    try:
        with tarfile.open(path, "w:gz", compresslevel=3, dereference=True) as archive:
            first = tarfile.TarInfo(_FACTS)
            first.size = len(content)
            archive.addfile(first, io.BytesIO(content))
            # The facts come first, so that a reader need not unpack the rest.
            for name, file in sorted(_archive_members()):
                archive.add(file, name, recursive=False)
    except OSError as error:
        raise PlanError(f"The archive {path} cannot be written: {error.strerror}.") from error
    return facts


def read_archive_facts(uri: str) -> ArchiveFacts:
    """Return the facts in the archive at an address. Raises SettingError if it cannot be read, or is not ours."""
    content = _read_first_member(uri)
    try:
        facts = json.loads(content)
        return ArchiveFacts(**{field.name: str(facts[field.name]) for field in fields(ArchiveFacts)})
    except (ValueError, KeyError, TypeError) as error:
        raise SettingError(_not_ours(uri)) from error


def check_archive(uri: str, facts: ArchiveFacts) -> None:
    """Raise SettingError if the archive does not fit this driver.

    Executors need the driver's minor version of Python, so an archive for another one fits no executor.
    """
    here = ArchiveFacts.of_this_machine()
    if facts.python != here.python:
        raise SettingError(
            f"The archive {uri} is made for Python {facts.python}, and the driver runs Python {here.python}, as "
            f"Spark's executors must, too; make it again with `{MAKE_ARCHIVE}` by Python {here.python}."
        )
    # The digest is compared and not the version: code that was edited in place has the same version.
    if facts.code != here.code:
        raise SettingError(
            f"The archive {uri} holds other code (of version {facts.version}) than is installed here (version "
            f"{here.version}); make it again with `{MAKE_ARCHIVE}`."
        )


def archive_conf(uri: str) -> dict[str, str]:
    """Return the Spark configuration that puts the archive at `uri` on every executor's path."""
    return {"spark.archives": f"{uri}#{FOLDER}", "spark.executorEnv.PYTHONPATH": f"./{FOLDER}"}


def copy_archive(uri: str, folder: Path) -> Path:
    """Return the archive as a file of this machine, copied into `folder` if it is elsewhere. Raises PlanError."""
    local = fsspec_uri(uri).removeprefix("file://")
    if ":" not in local.split("/", 1)[0]:
        return Path(local)
    copy = folder / uri.rpartition("/")[2]
    try:
        with open_file(uri, "archive") as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target)
    except OSError as error:
        raise PlanError(f"The archive {uri} cannot be read here: {error.strerror or error}.") from error
    return copy


def _read_first_member(uri: str) -> bytes:
    try:
        with open_file(uri, "archive") as file, tarfile.open(fileobj=file, mode="r|gz") as archive:
            first = archive.next()
            member = archive.extractfile(first) if first is not None and first.name == _FACTS else None
            return b"" if member is None else member.read(_LONGEST_FACTS)
    except PlanError as error:
        raise SettingError(f"The archive {uri} cannot be read here: {str(error).rstrip('.')}.") from error
    except (tarfile.TarError, EOFError) as error:
        raise SettingError(_not_ours(uri)) from error
    except OSError as error:
        raise SettingError(
            f"The archive {uri} cannot be read here ({error.strerror or error}); make it with `{MAKE_ARCHIVE}`, and "
            "put it where this worker can read it."
        ) from error


def _not_ours(uri: str) -> str:
    return (
        f"The file {uri} is no archive of this version of Kafka Steward, which begins with {_FACTS}; make one with "
        f"`{MAKE_ARCHIVE}`."
    )


def _code_digest() -> str:
    """Return the SHA-256 of our part of the archive: names and contents."""
    hasher = sha256()
    for name, file in sorted(_our_members()):
        content = file.read_bytes()
        hasher.update(f"{name}\n{len(content)}\n".encode() + content)
    return hasher.hexdigest()


def _archive_members() -> Iterator[tuple[str, Path]]:
    yield from _our_members()
    for package in ("pylmcf", "nanobind_backend", "fsspec"):
        folder = _package_folder(package)
        yield from _walk_files(folder, folder.parent)
    # pylmcf reads its own version from its metadata when it is imported.
    for file in metadata.files("pylmcf") or ():
        if file.parent.suffix == ".dist-info" and file.name == "METADATA":
            yield str(file), Path(str(file.locate()))


def _our_members() -> Iterator[tuple[str, Path]]:
    folder = _package_folder("kafka_steward")
    for part in _OURS:
        yield from _walk_files(folder / part, folder.parent)


def _walk_files(start: Path, base: Path) -> Iterator[tuple[str, Path]]:
    files = [start] if start.is_file() else start.rglob("*")
    for file in files:
        if file.is_file() and "__pycache__" not in file.parts:
            yield str(file.relative_to(base)), file


def _package_folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise PlanError(f"The archive cannot be made: {package} is not installed here.")
    return Path(next(iter(spec.submodule_search_locations)))
