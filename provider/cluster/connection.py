"""Translate the settings of an Airflow `kafka` connection into kafka-python's client settings, and validate them.

A security setting that would not be used is refused instead of silently ignored.

Airflow's own `kafka` connections are written for librdkafka (`bootstrap.servers`, `sasl.username`). Most of their keys
have an equivalent in kafka-python, and so have those of Kafka's Java clients (see `java_security`). Keys that concern
only producers and consumers are ignored. The few keys that cannot be translated are refused by name, because a security
setting that is silently dropped is worse than an error.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient

from kafka_steward.cluster.certificate_texts import TEXTS, build_context
from kafka_steward.cluster.java_security import (
    CA_TEXT,
    CERTIFICATE_TEXT,
    JAAS,
    KEY_TEXT,
    is_store_key,
    translate_callback,
    translate_jaas,
    translate_stores,
)
from kafka_steward.cluster.network import AbstractTokenProvider
from kafka_steward.cluster.oauth import TokenProvider
from kafka_steward.errors import SettingError
from kafka_steward.value_parsing import parse_boolean, parse_whole_number, shorten_value

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_PASSWORD = ("sasl_plain_username", "sasl_plain_password")

_KERBEROS = ("sasl_kerberos_name", "sasl_kerberos_service_name", "sasl_kerberos_domain_name")

#: The settings that each mechanism uses.
_USED_BY: Mapping[str, Collection[str]] = {
    "PLAIN": _PASSWORD,
    "SCRAM-SHA-256": _PASSWORD,
    "SCRAM-SHA-512": _PASSWORD,
    "GSSAPI": _KERBEROS,
    "OAUTHBEARER": ("sasl_oauth_token_provider", "sasl_oauth_config"),
    "AWS_MSK_IAM": (),
}

#: The settings that each mechanism requires, and a description of them.
_NEEDED_BY: Mapping[str, tuple[Collection[str], str]] = {
    **dict.fromkeys(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), (_PASSWORD, "a user name and a password")),
    "OAUTHBEARER": (("sasl_oauth_token_provider",), "the dotted path of a class or function that returns tokens"),
}

#: The module that kafka-python needs for each mechanism, and what to install for it.
_PACKAGES = {"AWS_MSK_IAM": ("botocore", "airflow-provider-kafka-steward[msk]"), "GSSAPI": ("gssapi", "gssapi")}

#: The setting of Kafka's clients that an empty text switches off (KIP-294).
HOSTNAME_CHECK = "ssl.endpoint.identification.algorithm"

#: Settings that have an effect only together with one of the listed settings; a message names the first of these.
_NEEDS = dict.fromkeys(("ssl_keyfile", KEY_TEXT, "ssl_password"), ("ssl_certfile", CERTIFICATE_TEXT))
#: A file, and the text that would be used in its place.
_FILE_OR_TEXT = {"ssl_cafile": CA_TEXT, "ssl_certfile": CERTIFICATE_TEXT, "ssl_keyfile": KEY_TEXT}


def check_security(config: Mapping[str, Any]) -> None:
    """Raise SettingError unless protocol, mechanism, credentials and certificates are consistent.

    The message contains the remedy. A setting that is None or empty counts as not set.
    """
    given = {name: value for name, value in config.items() if value not in (None, "")}
    protocol = given.get("security_protocol", "PLAINTEXT")
    # kafka-python treats any other value as PLAINTEXT.
    if protocol not in PROTOCOLS:
        raise SettingError(
            f"The Kafka setting security_protocol is {protocol!r}; it takes one of {', '.join(PROTOCOLS)}."
        )
    _refuse_unused_settings(given, protocol)
    _check_certificates(given)
    if protocol.startswith("SASL"):
        _check_mechanism(given, protocol)


def _refuse_unused_settings(given: Mapping[str, Any], protocol: str) -> None:
    sasl, tls = protocol.startswith("SASL"), protocol.endswith("SSL")
    for name in sorted(given):
        if name.startswith("sasl_") and not sasl:
            fitting = "SASL_SSL" if tls else "SASL_SSL (or SASL_PLAINTEXT, without encryption)"
        elif name.startswith("ssl_") and not tls:
            fitting = "SASL_SSL" if sasl else "SSL (or SASL_SSL, with a login)"
        else:
            continue
        raise SettingError(
            f"The Kafka setting {name} is given, and the security protocol {protocol} does not use it; set "
            f"security_protocol to {fitting}, or remove {name}."
        )


def _check_certificates(given: Mapping[str, Any]) -> None:
    for name, needed in _NEEDS.items():
        if name in given and given.keys().isdisjoint(needed):
            raise SettingError(
                f"The Kafka setting {name} has no effect without {needed[0]}; set that too, or remove {name}."
            )
    for file, text in _FILE_OR_TEXT.items():
        if file in given and text in given:
            raise SettingError(f"The Kafka setting {file} has no effect with {text}; remove one of the two.")
    if "ssl_context" not in given:
        return
    if not isinstance(given["ssl_context"], ssl.SSLContext):
        raise SettingError(
            "The Kafka setting ssl_context is not an SSLContext of Python; use ssl_cafile and the other ssl_ settings."
        )
    unused = sorted(name for name in given if name.startswith("ssl_") and name != "ssl_context")
    if unused:
        raise SettingError(f"The Kafka setting {unused[0]} has no effect with an ssl_context; remove one of the two.")


def _check_mechanism(given: Mapping[str, Any], protocol: str) -> None:
    mechanism = str(given.get("sasl_mechanism"))
    if mechanism not in _USED_BY:
        raise SettingError(f"The Kafka setting sasl_mechanism is {mechanism}; it takes one of {', '.join(_USED_BY)}.")
    needed, words = _NEEDED_BY.get(mechanism, ((), ""))
    for name in (name for name in needed if name not in given):
        raise SettingError(f"The Kafka setting {name} is missing; {mechanism} needs {words}.")
    unused = sorted(
        name for name in given if name.startswith("sasl_") and name not in (*_USED_BY[mechanism], "sasl_mechanism")
    )
    if unused:
        raise SettingError(
            f"The Kafka setting {unused[0]} is given, and the mechanism {mechanism} does not use it; set another "
            f"sasl_mechanism, or remove {unused[0]}."
        )
    if mechanism == "AWS_MSK_IAM" and protocol != "SASL_SSL":
        raise SettingError("The mechanism AWS_MSK_IAM requires TLS; set security_protocol to SASL_SSL.")
    module, package = _PACKAGES.get(mechanism, (None, None))
    if module and find_spec(module) is None:
        raise SettingError(
            f"The mechanism {mechanism} needs the Python module {module}, which is missing here; install {package}."
        )


#: Our own setting, the time-out of DescribeLogDirs: a broker with many or slow disks takes longer for it than for any
#: other request. A step waits for it, and must end before its lock expires (60 s).
LOG_DIRS_TIMEOUT = "log_dirs_timeout_ms"
_MAX_LOG_DIRS_MS = 50_000

#: Our defaults, where kafka-python's time-out is too long for a step that must end within a minute, or its maximum
#: reconnect back-off is too long for a broker that has just restarted.
DEFAULTS: Mapping[str, Any] = {
    "client_id": "kafka-steward",
    "request_timeout_ms": 15_000,
    "bootstrap_timeout_ms": 8_000,
    LOG_DIRS_TIMEOUT: 45_000,
    "reconnect_backoff_max_ms": 500,
}

#: Settings whose values no log may contain: a proxy's address may hold a password.
_SECRETS = ("sasl_plain_password", "ssl_password", KEY_TEXT, CERTIFICATE_TEXT, "proxy_url", "socks5_proxy")

#: Settings that name a file on this machine.
_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile")

#: kafka-python's hooks for its internals: not allowed in a connection's extra.
_INTERNAL = frozenset(
    {"kafka_client", "selector", "metric_reporters", "metrics_num_samples", "metrics_sample_window_ms"}
)

#: Our own setting: librdkafka's sasl.oauthbearer.config, which is passed to our token provider.
_OAUTH_CONFIG = "sasl_oauth_config"

_KNOWN = (frozenset(KafkaAdminClient.DEFAULT_CONFIG) - _INTERNAL) | {_OAUTH_CONFIG, LOG_DIRS_TIMEOUT, *TEXTS}

#: kafka-python's settings that are whole numbers. Two of them have no number as default: they keep the system's.
_WHOLE = frozenset(
    name for name, value in KafkaAdminClient.DEFAULT_CONFIG.items() if isinstance(value, int) and value is not True
) & _KNOWN | {"receive_buffer_bytes", "send_buffer_bytes", LOG_DIRS_TIMEOUT}

#: The largest number that a setting takes.
_MAX = 2**31 - 1

#: Settings for which two keys must have the same value: otherwise one of them would be silently overridden.
_UNAMBIGUOUS = ("sasl_", "ssl_", "security_", "bootstrap_servers")

#: librdkafka's keys, and their equivalents.
_EQUIVALENTS: Mapping[str, str] = {
    "bootstrap.servers": "bootstrap_servers",
    "metadata.broker.list": "bootstrap_servers",
    "client.dns.lookup": "client_dns_lookup",
    "client.id": "client_id",
    "oauth_cb": "sasl_oauth_token_provider",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.oauthbearer.config": _OAUTH_CONFIG,
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "ssl.ca.location": "ssl_cafile",
    "ssl.ca.pem": CA_TEXT,
    "ssl.certificate.pem": CERTIFICATE_TEXT,
    "ssl.key.pem": KEY_TEXT,
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.crl.location": "ssl_crlfile",
    "socket.timeout.ms": "request_timeout_ms",
    "request.timeout.ms": "request_timeout_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
    "reconnect.backoff.ms": "reconnect_backoff_ms",
    "reconnect.backoff.max.ms": "reconnect_backoff_max_ms",
    "connections.max.idle.ms": "connections_max_idle_ms",
    "retry.backoff.ms": "retry_backoff_ms",
}

#: Prefixes of keys of librdkafka and of Kafka's own clients that affect neither the cluster nor the principal of the
#: connection: settings of producers, consumers, metrics, and of the client's own logging, queues and sockets.
_IGNORED_TEXT = (
    "acks api.version. auto. batch. broker. builtin.features check.crcs client.rack compression. consume. "
    "coordinator. debug default.api.timeout.ms default.topic.config delivery. dr_ enable.auto. enable.gapless. "
    "enable.idempotence enable.metrics.push enable.partition.eof enable.random.seed error_cb fetch. group. "
    "heartbeat. internal. isolation.level linger.ms log max. message. metric offset. on_ opaque partition plugin. "
    "queue receive. reconnect.backoff.jitter.ms request.required.acks retries send. session.timeout.ms socket. "
    "statistics. stats_cb sticky. throttle_cb topic. transaction"
)
_IGNORED = tuple(_IGNORED_TEXT.split())

#: Keys with values that ask for what is done anyway.
_WITHOUT_EFFECT = frozenset(
    {
        ("sasl.oauthbearer.method", "default"),
        *(("enable.ssl.certificate.verification", value) for value in ("true", "1")),
    }
)


class Secret(str):
    """A string whose repr hides its value, so that it does not appear in a log or a traceback."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def client_config(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return kafka-python's settings from an Airflow `kafka` connection's extra, or a Java client's properties.

    kafka-python's own names (`sasl_plain_username`) are kept unchanged. Raises SettingError, naming the key, for a key
    without an equivalent: stores in JKS or PKCS#12, other login modules than those with a password, librdkafka's own
    OIDC, disabled verification; and for two keys with different values for the same setting of servers or security.
    """
    config: dict[str, Any] = {}
    for key, name, translated in _translate_settings(extra):
        if name.startswith(_UNAMBIGUOUS) and config.get(name, translated) != translated:
            raise SettingError(f"The Kafka setting {name} is given twice, with two values, once by {key}; keep one.")
        config[name] = translated
    return config


def _translate_settings(extra: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the key of each setting in `extra`, and the name and value that kafka-python has for it."""
    for key, value in extra.items():
        if not is_store_key(key) and key != JAAS:
            for name, translated in _translate_setting(key, value).items():
                yield key, name, translated
    for name, (key, value) in translate_stores(extra).items():
        yield key, name, value
    if extra.get(JAAS) not in (None, ""):
        keys = ("sasl.mechanism", "sasl.mechanisms", "sasl_mechanism")
        mechanism = next((str(extra[key]).upper() for key in keys if extra.get(key)), None)
        for name, text in translate_jaas(extra[JAAS], mechanism).items():
            yield JAAS, name, text


def is_client_key(key: str) -> bool:
    """Return whether `client_config` handles `key`: translates, ignores, or refuses it."""
    return key in _KNOWN or key in _EQUIVALENTS or key.startswith((*_IGNORED, "ssl.", "sasl.", "security."))


def validate_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `config` with our defaults and its secrets wrapped in `Secret`. Raises SettingError if it is invalid."""
    unknown = sorted(set(config) - _KNOWN)
    if unknown:
        raise SettingError(
            f"The Kafka setting {unknown[0]} is unknown; see kafka-python's KafkaAdminClient for the names."
        )
    given = {name: _to_client_type(name, value) for name, value in config.items()}
    checked = {**DEFAULTS, **given, "bootstrap_servers": _parse_servers(config.get("bootstrap_servers"))}
    check_security(checked)
    for name in (name for name in _FILES if checked.get(name)):
        _check_file(name, checked[name])
    texts = any(checked.get(name) for name in TEXTS)
    if texts or checked.get("ssl_certfile"):
        # Built even if kafka-python builds its own, to refuse a bad file with a sentence. The empty password keeps
        # OpenSSL from asking for one on the terminal.
        context = build_context(checked)
        checked["ssl_password"] = checked.get("ssl_password") or ""
    if texts:
        # kafka-python takes no texts: it gets the context in place of all `ssl_` settings.
        checked = {name: value for name, value in checked.items() if not name.startswith("ssl_")}
        checked["ssl_context"] = context
    return {name: _to_client_value(name, value, checked) for name, value in checked.items() if name != _OAUTH_CONFIG}


def override_config(config: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return `config` with the settings of `own`, which also replace a file by a text and a text by a file."""
    replaced = {file for file, text in _FILE_OR_TEXT.items() if text in own}
    replaced |= {text for file, text in _FILE_OR_TEXT.items() if file in own}
    return {**{name: value for name, value in config.items() if name not in replaced}, **own}


def find_client_secrets(config: Mapping[str, Any]) -> list[str]:
    """Return the values in `config` that no log may contain."""
    return [str(config[name]) for name in _SECRETS if config.get(name)]


def _check_file(name: str, path: Any) -> None:
    if "-----BEGIN" in str(path):  # the text may be a key, and is not repeated
        text = _FILE_OR_TEXT.get(name)
        instead = f"; set {text} to the text" if text else ""
        raise SettingError(f"The Kafka setting {name} holds a text in PEM, and it takes the path of a file{instead}.")
    if not Path(path).is_file():
        raise SettingError(f"The Kafka setting {name} names {path}, which is not a file on this machine.")


def _to_client_type(name: str, value: Any) -> Any:
    """Return the value converted to the type that kafka-python expects; None and "" are returned unchanged."""
    if value in (None, "") or (name not in _WHOLE and name != "ssl_check_hostname"):
        return value
    try:
        typed = parse_boolean(value) if name == "ssl_check_hostname" else parse_whole_number(value)
    except ValueError as error:
        takes = "true or false" if name == "ssl_check_hostname" else "a whole number"
        raise SettingError(f"The Kafka setting {name} is {shorten_value(value)}; it takes {takes}.") from error
    most = _MAX_LOG_DIRS_MS if name == LOG_DIRS_TIMEOUT else _MAX
    if not int(name.endswith("timeout_ms")) <= typed <= most:
        raise SettingError(f"The Kafka setting {name} is {shorten_value(value)}; it must lie between 1 and {most}.")
    return typed


def _to_client_value(name: str, value: Any, config: Mapping[str, Any]) -> Any:
    """Return the value as kafka-python accepts it. The dotted path of a token provider is resolved here and now."""
    if name in _SECRETS and value:
        return Secret(value)
    if name != "sasl_oauth_token_provider" or value in (None, "") or isinstance(value, AbstractTokenProvider):
        return value
    if not isinstance(value, str):
        raise SettingError(
            "The Kafka setting sasl_oauth_token_provider is not a dotted path, such as package.module.function."
        )
    return TokenProvider(value, config.get(_OAUTH_CONFIG) or None)


def _translate_setting(key: str, value: Any) -> dict[str, Any]:
    if key in _KNOWN:
        return {key: value}
    if key in _EQUIVALENTS:
        return {_EQUIVALENTS[key]: _translate_value(key, value)}
    if key.startswith(_IGNORED) or (key, str(value).lower()) in _WITHOUT_EFFECT:
        return {}
    if key.endswith(".callback.handler.class"):
        return translate_callback(key, value)
    if key == HOSTNAME_CHECK:
        return {"ssl_check_hostname": str(value).lower() not in ("none", "")}
    instead = (
        "a user name with a password, or oauth_cb"
        if key.startswith("sasl.")
        else "files (ssl.ca.location, ssl.certificate.location, ssl.key.location), texts (ssl.ca.pem, "
        "ssl.certificate.pem, ssl.key.pem), a user name with a password, or oauth_cb"
    )
    raise SettingError(f"The Kafka setting {key} has no equivalent here; remove it, or use {instead}.")


def _translate_value(key: str, value: Any) -> Any:
    if _EQUIVALENTS[key] in ("security_protocol", "sasl_mechanism"):
        return str(value).upper()
    if not key.endswith(".ms"):
        return value
    try:
        number = parse_whole_number(value)
    except ValueError as error:
        raise SettingError(f"The Kafka setting {key} is {shorten_value(value)}; it takes milliseconds.") from error
    if number < 0:
        raise SettingError(f"The Kafka setting {key} is {shorten_value(value)}; it must not be negative.")
    return number


def _parse_servers(given: Any) -> list[str]:
    servers = given.split(",") if isinstance(given, str) else list(given or ())
    stripped = [str(server).strip() for server in servers if str(server).strip()]
    if not stripped:
        raise SettingError("The Kafka setting bootstrap_servers is empty; give host:port, or several with commas.")
    for server in stripped:
        port = server.rpartition("]")[2].rpartition(":")[2] if server.startswith("[") else server.rpartition(":")[2]
        if ":" in server and port and not (port.isdecimal() and 0 < int(port) < 1 << 16):
            raise SettingError(f"The Kafka setting bootstrap_servers has {server!r}; write host:port.")
    return stripped
