"""The metadata of what the wheel requires: `python -m tests.required_distributions FOLDER`, for the SBOM.

The development environment also has what tests and checks need, which an SBOM of the wheel must not list.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

#: With the extra that a deployment on several hosts needs.
PACKAGE = Requirement("airflow-provider-kafka-steward[postgres]")


def main(folder: Path) -> None:
    """Link the metadata of each required distribution into `folder`, which then is an environment of these alone."""
    folder.mkdir(parents=True)
    for metadata in sorted({_metadata_folder(each) for each in _find_required(PACKAGE)}):
        (folder / metadata.name).symlink_to(metadata)


def _find_required(root: Requirement) -> Iterator[Distribution]:
    """Yield the distribution of `root`, and all that it requires on this machine, its extras included."""
    waiting, seen = [root], set()
    while waiting:
        requirement = waiting.pop()
        if (key := (requirement.name, frozenset(requirement.extras))) not in seen:
            seen.add(key)
            found = distribution(requirement.name)
            yield found
            required = (Requirement(text) for text in found.requires or ())
            waiting += (each for each in required if _applies(each, requirement.extras))


def _applies(required: Requirement, extras: set[str]) -> bool:
    return required.marker is None or any(required.marker.evaluate({"extra": extra}) for extra in ("", *extras))


def _metadata_folder(found: Distribution) -> Path:
    (file,) = (file for file in found.files or () if file.match("*.dist-info/METADATA"))
    return Path(str(file.locate())).resolve().parent


if __name__ == "__main__":
    main(Path(sys.argv[1]))
