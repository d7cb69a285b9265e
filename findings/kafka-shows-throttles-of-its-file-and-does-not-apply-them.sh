#!/usr/bin/env bash
# Seen with Apache Kafka 4.1.1 (KRaft): follower.replication.throttled.rate in a broker's properties file is shown by DescribeConfigs,
# as a static setting of that broker with its value, and limits nothing: a replica that the topic's list of throttled replicas names is
# copied at full speed. The same rate, set with IncrementalAlterConfigs, limits the next copy at once. So a rate that a tool reads with
# its source left out may be one that Kafka does not apply. Two brokers, 30 MB each; needs Java 17 on the PATH; takes a minute or two.
set -euo pipefail
place=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait || true; rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
timeout 300 "$place/venv/bin/pip" install --quiet --disable-pip-version-check kafka-python==3.0.12 jgo==3.2.0
cat > "$place/jars.py" <<'PYTHON'
import os, pathlib, sys

from jgo.maven import MavenContext, Model

mirror = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")
maven = MavenContext(
    repo_cache=pathlib.Path(sys.argv[1]), remote_repos={"mirror": mirror.rstrip("/")} if mirror else None, timeout=60
)
kafka = maven.project("org.apache.kafka", "kafka_2.13").at_version("4.1.1")
found, _ = Model(kafka.pom(), maven).dependencies()
jars = [kafka.artifact().resolve(), *(each.artifact.resolve() for each in found if each.scope in ("compile", "runtime"))]
print(":".join(map(str, jars)))
PYTHON
jars=$(timeout 400 "$place/venv/bin/python" "$place/jars.py" "$place/maven")
read -r one two controller < <(python3 -c '
import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*(each.getsockname()[1] for each in held))')
for node in 1 2; do
    port=$one; roles=broker,controller
    listeners="BROKER://127.0.0.1:$one,CONTROLLER://127.0.0.1:$controller"
    if [ "$node" = 2 ]; then port=$two; roles=broker; listeners="BROKER://127.0.0.1:$two"; fi
    cat > "$place/$node.properties" <<PROPERTIES
node.id=$node
process.roles=$roles
listeners=$listeners
advertised.listeners=BROKER://127.0.0.1:$port
controller.listener.names=CONTROLLER
inter.broker.listener.name=BROKER
listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.quorum.voters=1@127.0.0.1:$controller
log.dirs=$place/logs-$node
offsets.topic.replication.factor=1
follower.replication.throttled.rate=1000
PROPERTIES
    java -Xmx256m -cp "$jars" kafka.tools.StorageTool format -t AAAAAAAAAAAAAAAAAAAAAA -c "$place/$node.properties" > "$place/$node.format" 2>&1
    timeout 300 java -Xmx512m -cp "$jars" kafka.Kafka "$place/$node.properties" > "$place/$node.out" 2>&1 &
done
cat > "$place/measure.py" <<'PYTHON'
import sys, time

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

bootstrap = [f"127.0.0.1:{port}" for port in sys.argv[1:]]
RATE, LIST = (f"follower.replication.throttled.{key}" for key in ("rate", "replicas"))


def connected():
    for _ in range(60):
        try:
            admin = KafkaAdminClient(bootstrap_servers=bootstrap)
            if len(admin.describe_cluster()["brokers"]) == 2:
                return admin
        except KafkaError:
            pass
        time.sleep(1)
    sys.exit("the brokers did not start")


def shown():
    """Return the rate of broker 2, and its source, as DescribeConfigs has them."""
    asked = ConfigResource(ConfigResourceType.BROKER, "2", configs={RATE: None})
    found = admin.describe_configs([asked], config_filter="all")["broker"]["2"][RATE]
    return found["value"], str(found["config_source"])


def is_copied_within(topic, seconds):
    """Write 30 MB to a topic on broker 1, reassign it to brokers 1 and 2, and return whether 2 is in sync in time."""
    admin.create_topics({topic: {"assignments": {0: [1]}, "configs": {LIST: "*"}}})
    producer = KafkaProducer(bootstrap_servers=bootstrap, batch_size=500_000, acks="all")
    for _ in range(300):
        producer.send(topic, bytes(100_000), partition=0)
    producer.flush()
    producer.close()
    began = time.monotonic()
    admin.alter_partition_reassignments({TopicPartition(topic, 0): [1, 2]})
    while time.monotonic() - began < seconds:
        (found,) = admin.describe_topics([topic])
        if len(found["partitions"][0]["isr_nodes"]) == 2:
            return True
        time.sleep(0.5)
    return False


admin = connected()
value, source = shown()
print(f"{RATE} of broker 2, from its file: shown as {value}, source {source}")
of_file = is_copied_within("of-file", 40)
print(f"30 MB, which take 8 h at that rate, are copied to it within 40 s: {of_file}")
admin.alter_configs([ConfigResource(ConfigResourceType.BROKER, "2", configs={RATE: "1000"})], raise_on_unknown=False)
print(f"set with IncrementalAlterConfigs: shown as {shown()[0]}, source {shown()[1]}")
dynamic = is_copied_within("dynamic", 40)
print(f"30 MB more are copied to it within 40 s: {dynamic}")
sys.exit((value, of_file, dynamic) != ("1000", True, False))
PYTHON
timeout 200 "$place/venv/bin/python" "$place/measure.py" "$one" "$two"
