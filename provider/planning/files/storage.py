"""Store snapshots and plans at any address that fsspec opens, and spell the address for Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_steward.errors import PlanError

T = TypeVar("T")

#: Rows per Parquet row group. Spark divides a file among its tasks by row groups.
_GROUP_ROWS = 20_000


def spark_uri(uri: str) -> str:
    """Return the address in the spelling of Hadoop's file systems: `s3a://` for S3, `file:///` for a plain path."""
    if uri.startswith("s3://"):
        return f"s3a://{uri.removeprefix('s3://')}"
    # Not `as_uri`: Hadoop does not decode %20, and accepts a literal space.
    return uri if ":" in uri.split("/", 1)[0] else f"file://{Path(uri).absolute()}"


def fsspec_uri(uri: str) -> str:
    """Return the address in fsspec's spelling: `s3://` for S3, `file:///` for what Spark writes as `file:/`."""
    if uri.startswith("s3a://"):
        return f"s3://{uri.removeprefix('s3a://')}"
    if uri.startswith("file:/") and not uri.startswith("file:///"):
        return f"file:///{uri.removeprefix('file:/').lstrip('/')}"
    return uri


def is_local_uri(uri: str) -> bool:
    """Return True if the address is on this machine's own disk."""
    return spark_uri(uri).startswith("file:")


#: The advice to install a package, by the scheme of the addresses that it opens.
_EXTRAS = {
    scheme: f" Install airflow-provider-kafka-steward[{extra}]."
    for extra, schemes in {"s3": ("s3",), "gcs": ("gs", "gcs"), "azure": ("az", "abfs", "abfss")}.items()
    for scheme in schemes
}


def _scheme(uri: str) -> str:
    return fsspec_uri(uri).partition(":")[0]


def is_object_store(uri: str) -> bool:
    """Return True if the address is in a store without folders, such as S3, where no folder is made before a file."""
    return _scheme(uri) in _EXTRAS


@contextmanager
def open_file(uri: str, what: str) -> Iterator[BinaryIO]:
    """Open one file to read its bytes. Raises PlanError if no package opens such addresses, else OSError."""
    system, path = _find_file_system(uri, what)
    with _store_errors_as_os_errors(uri), system.open(path, "rb") as file:
        yield cast("BinaryIO", file)


@contextmanager
def _store_errors_as_os_errors(uri: str) -> Iterator[None]:
    """Turn the errors of a store's client, such as missing credentials or no endpoint, into OSError."""
    try:
        yield
    except _store_errors(uri) as error:
        raise OSError(str(error)) from error


def _store_errors(uri: str) -> tuple[type[Exception], ...]:
    """Return the errors of the store's client that are no OSErrors.

    An `except` clause calls this only once something was raised, so that the client's package is not imported before.
    """
    if _scheme(uri) != "s3":
        return ()
    try:
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - only s3fs requires it
    except ImportError:
        return ()
    return (BotoCoreError,)


def _find_file_system(uri: str, what: str) -> tuple[Any, str]:
    # Imported here: Spark's workers open no folder, and this import would take them as long as Arrow's.
    import fsspec  # noqa: PLC0415

    try:
        system, path = fsspec.core.url_to_fs(fsspec_uri(uri))
    except (ImportError, ValueError, OSError) as error:
        # A protocol that a package adds to fsspec is unknown until it is installed: a ValueError. HDFS without its
        # native library is an OSError.
        missing = isinstance(error, ImportError) or _scheme(uri) not in fsspec.available_protocols()
        remedy = _EXTRAS.get(_scheme(uri), "") if missing else ""
        words = str(error).strip().split("\n")[0].rstrip(".")
        raise PlanError(f"The {what} address {uri} cannot be opened: {words}.{remedy}") from error
    return system, path


class Folder:
    """One folder of a workspace. `what` is the noun for it in messages: "snapshot" or "plan"."""

    def __init__(self, uri: str, what: str) -> None:
        self.uri, self.what = uri, what
        self._fs, self._path = _find_file_system(uri, what)

    def read_json(self, name: str) -> dict[str, Any]:
        """Return a JSON object. Raises PlanError when the file is missing or holds anything else."""
        value = self._read_or_raise(name, lambda: json.loads(self._fs.cat_file(self._file_path(name))))
        if not isinstance(value, dict):
            raise self._corrupt_error(name, "it does not contain JSON object")
        return value

    def read_text(self, name: str) -> str | None:
        """Return a text, None if there is no such file. Raises PlanError when it is unreadable."""

        def text() -> str | None:
            try:
                return str(self._fs.cat_file(self._file_path(name)).decode())
            except FileNotFoundError:
                return None

        return self._read_or_raise(name, text)

    def read_table(self, name: str) -> pa.Table:
        """Return the table of a Parquet file. Raises PlanError when it is unreadable."""

        def table() -> pa.Table:
            # The bytes are copied into Arrow's memory. A thread of Arrow may outlive the reading by a moment, and a
            # process that exits meanwhile aborts if the thread holds a Python object (a file, or bytes).
            copy = pa.BufferOutputStream()
            copy.write(self._fs.cat_file(self._file_path(name)))
            return pq.ParquetFile(pa.BufferReader(copy.getvalue())).read()

        return self._read_or_raise(name, table)

    def write_table(self, name: str, table: pa.Table) -> None:
        """Write a Parquet file. Raises PlanError when the workspace cannot be written."""
        buffer = pa.BufferOutputStream()
        pq.write_table(table, buffer, compression="zstd", row_group_size=_GROUP_ROWS)
        self._write_file(name, buffer.getvalue().to_pybytes())

    def write_json(self, name: str, value: dict[str, Any]) -> None:
        """Write a JSON object in human-readable form. Raises PlanError when the workspace cannot be written."""
        self._write_file(name, (json.dumps(value, indent=2, sort_keys=True) + "\n").encode())

    def write_text(self, name: str, text: str) -> None:
        """Write a text. Raises PlanError when the workspace cannot be written."""
        self._write_file(name, text.encode())

    def delete(self, name: str) -> None:
        """Delete one file. Raises PlanError when the workspace cannot be written."""
        with self._writing(name, "cannot be deleted"):
            self._fs.rm_file(self._file_path(name))

    def newest_entry(self, pattern: str) -> tuple[str, float] | None:
        """Return the newest file or folder that matches, and its time in seconds since 1970; None if there is none.

        Stores keep no time of a folder: there, `pattern` has to name files. Raises PlanError when the workspace cannot
        be read.
        """
        entries = self._read_or_raise(pattern, lambda: self._fs.glob(self._file_path(pattern), detail=True))
        times = {path: _modified_s(entry) for path, entry in entries.items()}
        known = {path: at_s for path, at_s in times.items() if at_s is not None}
        if not known:
            return None
        newest = max(known, key=known.__getitem__)
        return newest[len(self._path.rstrip("/")) + 1 :], known[newest]

    def _write_file(self, name: str, data: bytes) -> None:
        with self._writing(name, "failed"):
            # In a store this would create a missing bucket, even if only its name in the address is wrong.
            if not is_object_store(self.uri):
                self._fs.makedirs(self._path, exist_ok=True)
            self._fs.pipe_file(self._file_path(name), data)

    @contextmanager
    def _writing(self, name: str, fault: str) -> Iterator[None]:
        try:
            with _store_errors_as_os_errors(self.uri):
                yield
        except OSError as error:
            raise PlanError(
                f"The workspace cannot be written: {name} of {self.uri} {fault}: {_error_reason(error)}."
            ) from error

    def _file_path(self, name: str) -> str:
        return f"{self._path.rstrip('/')}/{name}"

    def _read_or_raise(self, name: str, read: Callable[[], T]) -> T:
        # Another process may have written since this one last listed the folder.
        self._fs.invalidate_cache(self._file_path(name))
        try:
            with _store_errors_as_os_errors(self.uri):
                return read()
        except OSError as error:
            raise PlanError(f"The {self.what} at {self.uri} cannot be read: {name}: {_error_reason(error)}.") from error
        except (ValueError, pa.ArrowException) as error:
            raise self._corrupt_error(name, str(error).strip().split("\n")[0].rstrip(".")) from error

    def _corrupt_error(self, name: str, reason: str) -> PlanError:
        return PlanError(f"The {self.what} at {self.uri} is corrupt: {name} is not in the expected format ({reason}).")


def _modified_s(entry: Mapping[str, Any]) -> float | None:
    # fsspec's file systems have different names and types for the time of an entry.
    at = next((entry[name] for name in ("mtime", "LastModified", "last_modified", "updated") if entry.get(name)), None)
    if isinstance(at, float | int):
        return float(at)
    return None if at is None else float(at.timestamp())


def _error_reason(error: OSError) -> str:
    if not isinstance(error, FileNotFoundError):
        return (error.strerror or str(error)).rstrip(".")
    # botocore's error, which s3fs translates, holds S3's answer.
    answer = getattr(error.__cause__, "response", None) or {}
    return "no such bucket" if answer.get("Error", {}).get("Code") == "NoSuchBucket" else "no such file"
