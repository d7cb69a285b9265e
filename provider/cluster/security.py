"""Validation of a Kafka client's security settings: an unused setting is refused instead of silently ignored."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from typing import Any

from kafka_steward.errors import SettingError

__all__ = ["check_security"]

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PASSWORD = ("sasl_plain_username", "sasl_plain_password")
_KERBEROS = ("sasl_kerberos_name", "sasl_kerberos_service_name", "sasl_kerberos_domain_name")
#: The settings that each mechanism uses.
_USED: Mapping[str, Collection[str]] = {
    "PLAIN": _PASSWORD,
    "SCRAM-SHA-256": _PASSWORD,
    "SCRAM-SHA-512": _PASSWORD,
    "GSSAPI": _KERBEROS,
    "OAUTHBEARER": ("sasl_oauth_token_provider", "sasl_oauth_config"),
    "AWS_MSK_IAM": (),
}
#: The settings that each mechanism requires, and a description of them.
_NEEDED: Mapping[str, tuple[Collection[str], str]] = {
    **dict.fromkeys(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), (_PASSWORD, "a user name and a password")),
    "OAUTHBEARER": (("sasl_oauth_token_provider",), "the dotted path of a class or function that gives tokens"),
}
#: The package that kafka-python needs for each mechanism.
_PACKAGES = {"AWS_MSK_IAM": "botocore", "GSSAPI": "sspi" if sys.platform == "win32" else "gssapi"}
#: Settings that have an effect only together with another one.
_TOGETHER = {"ssl_keyfile": "ssl_certfile", "ssl_password": "ssl_certfile"}


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
    _refuse_unused(given, protocol)
    _check_certificates(given)
    if protocol.startswith("SASL"):
        _check_mechanism(given, protocol)


def _refuse_unused(given: Mapping[str, Any], protocol: str) -> None:
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
    for name, needed in _TOGETHER.items():
        if name in given and needed not in given:
            raise SettingError(
                f"The Kafka setting {name} is of no use without {needed}; set that too, or remove {name}."
            )
    if "ssl_context" not in given:
        return
    if not isinstance(given["ssl_context"], ssl.SSLContext):
        raise SettingError("The Kafka setting ssl_context is no SSLContext of Python; use ssl_cafile and its like.")
    others = sorted(name for name in given if name.startswith("ssl_") and name != "ssl_context")
    if others:
        raise SettingError(f"The Kafka setting {others[0]} is of no use beside an ssl_context; remove one of the two.")


def _check_mechanism(given: Mapping[str, Any], protocol: str) -> None:
    mechanism = str(given.get("sasl_mechanism"))
    if mechanism not in _USED:
        raise SettingError(f"The Kafka setting sasl_mechanism is {mechanism}; it takes one of {', '.join(_USED)}.")
    needed, words = _NEEDED.get(mechanism, ((), ""))
    for name in (name for name in needed if name not in given):
        raise SettingError(f"The Kafka setting {name} is missing; {mechanism} needs {words}.")
    unused = sorted(
        name for name in given if name.startswith("sasl_") and name not in (*_USED[mechanism], "sasl_mechanism")
    )
    if unused:
        raise SettingError(
            f"The Kafka setting {unused[0]} is given, and the mechanism {mechanism} does not use it; set another "
            f"sasl_mechanism, or remove {unused[0]}."
        )
    if mechanism == "AWS_MSK_IAM" and protocol != "SASL_SSL":
        raise SettingError("The mechanism AWS_MSK_IAM works over TLS only; set security_protocol to SASL_SSL.")
    package = _PACKAGES.get(mechanism)
    if package and find_spec(package) is None:
        raise SettingError(
            f"The mechanism {mechanism} needs the Python package {package}, which is not installed here."
        )
