"""The metadata that Airflow requires of a provider. Imports nothing: every Airflow process reads it."""

from __future__ import annotations

from typing import Any

_NAME = "Kafka Steward"

#: By name of a setting: type, default, description. `kafka_steward.settings` validates; a test compares the two.
SETTINGS: dict[str, tuple[str, str, str]] = {
    "heal_failure_interval": (
        "float",
        "1800.0",
        "Seconds a broker must be gone to count as failed. -1: nothing is written, nothing heals.",
    ),
    "heal_chunk_size": ("integer", "50", "Partitions in one chunk of a plan."),
    "heal_fast_detection": ("boolean", "False", "Whether a broker that vanished without announcing it is due at once."),
    "heal_failed_disks": (
        "boolean",
        "False",
        "Whether replicas in failed log directories are healed too.",
    ),
    "heal_retry_interval": ("float", "600.0", "Seconds after which a failure that no plan handles is announced again."),
    "max_failed_brokers": ("integer", "10", "More failed brokers than this is an outage: reported, not healed."),
    "max_failed_fraction": ("float", "0.4", "More than this fraction of the brokers failed is an outage, too."),
    "throttle": ("integer", "50000000", "Bytes per second that reassignment may bring into a broker. 0: no throttle."),
    "network_bandwidth": (
        "integer",
        "0",
        "Bytes per second of a broker's network, for throttle_fraction. 0: not stated.",
    ),
    "throttle_fraction": (
        "float",
        "0.0",
        "The throttle as a fraction of network_bandwidth, such as 0.1. 0: as throttle says.",
    ),
    "throttle_leaders": ("boolean", "False", "Whether the leaders' side is throttled too. It slows ordinary catch-up."),
    "min_free": ("float", "0.15", "Fraction of each log directory's volume that must stay free."),
    "max_in_per_broker": ("integer", "5", "Replicas that one broker may be receiving at once."),
    "max_out_per_broker": ("integer", "5", "Replicas that one broker may be sending at once."),
    "max_in_flight": ("integer", "100", "Partitions in flight at once, in the whole cluster."),
    "one_replica_at_a_time": (
        "boolean",
        "False",
        "Whether a move that adds several replicas to a partition adds one after the other.",
    ),
    "window": (
        "string",
        "sliding",
        "When the next move starts. sliding: when one ends. chunk: when its whole chunk has.",
    ),
    "chunk_pause": ("float", "0.0", "Seconds to wait between chunks."),
    "maintenance_window": (
        "string",
        "",
        "When plans that can wait begin moves, such as mon-fri 22:00-06:00; several with ; between. Empty: always.",
    ),
    "maintenance_timezone": ("string", "UTC", "The time zone of the maintenance window, such as Europe/Berlin."),
    "stall_after": ("float", "600.0", "Seconds without progress after which a move counts as stalled."),
    "when_stalled": (
        "string",
        "fail",
        "What becomes of a stalled move. wait: it is waited for. cancel: it alone is cancelled. fail: the run fails.",
    ),
    "max_attempts": ("integer", "100", "Steps failed in a row after which a plan is stuck and waits for a person."),
    "abandoned_after": (
        "float",
        "600.0",
        "Seconds after which a plan that nobody steps is idle, and its throttles given back once nothing moves.",
    ),
    "step_interval": ("float", "2.0", "Seconds between two steps of a plan."),
    "watch_interval": (
        "float",
        "2.0",
        "Seconds between two looks of the watch: at most a quarter of Kafka's session time-out.",
    ),
    "health_interval": ("float", "60.0", "Seconds between two looks of the watch at the cluster's health. 0: none."),
    "health_retention": ("float", "7.0", "Days that what the watch saw of the cluster's health is kept, for plots."),
    "submission": (
        "string",
        "admin",
        "How moves are submitted: admin, or for old brokers on ZooKeeper legacy, by /admin/reassign_partitions.",
    ),
    "foreign_while_disabled": (
        "string",
        "report",
        "What becomes of a reassignment that others start while reassignments are switched off: report or cancel.",
    ),
    "enable_under_replicated_topic_creation": (
        "boolean",
        "False",
        "Whether topics are created while fewer brokers than replicas are live (KIP-409); the rest is added later.",
    ),
    "plan_retention": ("float", "30.0", "Days that a finished plan's rows are kept."),
}

_PLACES: dict[str, tuple[str, str]] = {
    "journal": (
        "Where the journal is: a SQL URL, or the id of a SQL connection. Empty: SQLite in AIRFLOW_HOME/kafka_steward.",
        "postgresql+psycopg://steward@db.example.com/steward",
    ),
    "workspace": (
        "Where snapshots and plans go: a path or URI that workers and Spark reach. Empty: beside the default journal.",
        "s3://bucket/kafka-steward",
    ),
}

#: Labels of boolean defaults, as in the form.
_DEFAULT_WORDS = {"False": "off", "True": "on"}
_JSON_TYPES = {"float": "number", "integer": "integer", "boolean": "boolean", "string": "string"}

_CHOICES = {
    "window": ["sliding", "chunk"],
    "when_stalled": ["wait", "cancel", "fail"],
    "submission": ["admin", "legacy"],
    "foreign_while_disabled": ["report", "cancel"],
}

_OPERATORS = (
    "snapshot",
    "plan",
    "submit",
    "cancel",
    "rollback",
    "throttle",
    "leaders",
    "failures",
    "report",
    "switch",
    "bounce",
    "gate",
    "rebalance",
    "approve",
    "given",
    "outcome",
    "topics",
    "joined",
    "owed",
    "health",
)


def get_provider_info() -> dict[str, Any]:
    """Return the provider's parts, for `airflow providers get` and the connection form."""
    return {
        "package-name": "airflow-provider-kafka-steward",
        "name": _NAME,
        "description": "Keeps Kafka fully replicated and balanced: heals, rebalances, expands, drains, undoes.",
        "integrations": [
            {
                "integration-name": _NAME,
                "external-doc-url": "https://kafka.apache.org/documentation/",
                "tags": ["service"],
            }
        ],
        "operators": _modules("operators", *_OPERATORS),
        "sensors": _modules("sensors", "brokers", "health", "replication"),
        "hooks": _modules("hooks", "steward"),
        "triggers": _modules("triggers", "run_plan", "watch", "wait"),
        "connection-types": [_connection_type()],
        "config": {"kafka_steward": {"description": "Defaults for every cluster.", "options": _options()}},
        "cli": ["kafka_steward.cli.get_kafka_steward_commands"],
    }


def _modules(package: str, *names: str) -> list[dict[str, Any]]:
    return [{"integration-name": _NAME, "python-modules": [f"kafka_steward.{package}.{name}" for name in names]}]


def _options() -> dict[str, Any]:
    places: dict[str, Any] = {
        name: {"description": text, "version_added": "0.1.0", "type": "string", "example": example, "default": ""}
        for name, (text, example) in _PLACES.items()
    }
    # A URL may contain a password: Airflow hides a sensitive option, and also reads `journal_cmd` and `journal_secret`.
    places["journal"]["sensitive"] = True
    knobs = {
        name: {"description": text, "version_added": "0.1.0", "type": kind, "example": None, "default": default}
        for name, (kind, default, text) in SETTINGS.items()
    }
    return places | knobs


def _connection_type() -> dict[str, Any]:
    return {
        "connection-type": "kafka_steward",
        "hook-class-name": "kafka_steward.hooks.steward.StewardHook",
        "hook-name": _NAME,
        "ui-field-behaviour": {
            "hidden-fields": ["schema"],
            "relabeling": {"host": "Bootstrap servers", "login": "SASL user", "password": "SASL password"},
            "placeholders": {
                "host": "broker1:9092,broker2:9092",
                "port": "9092, of servers that are named without one",
                "login": "empty without SASL",
                "password": "empty without SASL",
            },
        },
        "conn-fields": _connection_fields(),
    }


def _connection_fields() -> dict[str, Any]:
    protocols = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    mechanisms = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER", "AWS_MSK_IAM"]
    return {
        "security_protocol": _field("Security protocol", "Empty: PLAINTEXT, which takes no login.", enum=protocols),
        "sasl_mechanism": _field("SASL mechanism", "For the SASL protocols.", enum=mechanisms),
        "sasl_oauth_token_provider": _field(
            "Token provider", "For OAUTHBEARER: the dotted path of a class or function that gives tokens."
        ),
        "ssl_cafile": _field("CA file", "Certificates to trust, a path on the workers and the triggerer."),
        "ssl_certfile": _field("Client certificate", "A path on the workers and the triggerer."),
        "ssl_keyfile": _field("Client key", "A path on the workers and the triggerer."),
        "ssl_password": _field("Password of the client key", "Empty: it has none. Kept secret.", format="password"),
        "kafka_conn_id": _field("Kafka connection", "Id of a connection of type kafka whose settings are used too."),
        "zookeeper": _field("ZooKeeper", "The brokers' zookeeper.connect: the KIPs' documents are kept there."),
        "zookeeper_user": _field("ZooKeeper user", "Of the digest scheme. Empty: nobody in particular."),
        "zookeeper_password": _field("ZooKeeper password", "Kept secret.", format="password"),
        "cluster_id": _field("Cluster id", "The only Kafka cluster.id to accept. Empty: the one that answers first."),
        "journal": _field("Journal", f"{_PLACES['journal'][0]} Kept secret.", format="password"),
        "workspace": _field("Workspace", _PLACES["workspace"][0]),
        **{name: _knob_field(name, *knob) for name, knob in SETTINGS.items()},
    }


def _field(label: str, description: str, kind: str = "string", **schema: Any) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": [kind, "null"], **schema}}


def _knob_field(name: str, kind: str, default: str, text: str) -> dict[str, Any]:
    # In the description, not as a value: the form would store it in the connection, which overrides [kafka_steward].
    text += f" Default: {_DEFAULT_WORDS.get(default, default.removesuffix('.0'))}." if default else ""
    schema = {"enum": _CHOICES[name]} if name in _CHOICES else {}
    return _field(name.replace("_", " ").capitalize(), text, _JSON_TYPES[kind], **schema)
