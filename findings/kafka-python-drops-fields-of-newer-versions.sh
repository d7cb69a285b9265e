#!/usr/bin/env bash
# Seen with kafka-python 3.0.12: a field that the negotiated version of a request does not have is left out without an error, also when
# its value is not the default and its schema does not say `ignorable`. `allow_replication_factor_change=False` of
# AlterPartitionReassignments (KIP-860, version 1) asks the broker to refuse a target with another number of replicas; to a broker that
# knows version 0 only, before Kafka 4.1, the same bytes are sent as with True, so that the target is accepted. Kafka's Java client raises
# UnsupportedVersionException there ("Attempted to write a non-default allowReplicationFactorChange at version 0").
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
timeout 300 "$place/venv/bin/pip" install --quiet --disable-pip-version-check kafka-python==3.0.12
cat > "$place/encode.py" <<'PYTHON'
import sys

from kafka.protocol.admin import AlterPartitionReassignmentsRequest as Request


def encoded(version, *, allowed):
    topic = Request.ReassignableTopic
    partition = topic.ReassignablePartition(partition_index=0, replicas=[1, 2])
    request = Request(
        timeout_ms=1000,
        allow_replication_factor_change=allowed,
        topics=[topic(name="t", partitions=[partition])],
    )
    return bytes(request.encode(version=version))


(field,) = (each for each in Request._json["fields"] if each["name"] == "AllowReplicationFactorChange")
print(f"its schema: versions {field['versions']}, default {field['default']}, ignorable {field.get('ignorable', False)}")
same = {version: encoded(version, allowed=False) == encoded(version, allowed=True) for version in (0, 1)}
for version, is_same in same.items():
    print(f"version {version}: False is sent {'as True is, without an error' if is_same else 'as such'}")
sys.exit(same != {0: True, 1: False})
PYTHON
"$place/venv/bin/python" "$place/encode.py"
