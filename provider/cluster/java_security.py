"""The security settings of Kafka's Java clients: stores of certificates, and `sasl.jaas.config`.

Kafka reads stores as JKS (its default), PKCS#12 or PEM (KIP-651). Python reads PEM only. A store in another format is
refused with the command that converts it. Login modules with a user name and a password, and Amazon's for MSK, are
translated. No error message contains a value that may be a secret.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from typing import Any

from kafka_steward.errors import SettingError
from kafka_steward.value_parsing import shorten_value

JAAS = "sasl.jaas.config"

#: Our settings for certificates and a key as text (PEM). kafka-python takes files only.
CA_TEXT, CERTIFICATE_TEXT, KEY_TEXT = "ssl_ca_pem", "ssl_certificate_pem", "ssl_key_pem"

#: The keys of a store, after `ssl.truststore.` or `ssl.keystore.`, and our settings for them.
_TRUSTSTORE = {"location": "ssl_cafile", "certificates": CA_TEXT}
_KEYSTORE = {"location": "ssl_certfile", "certificate.chain": CERTIFICATE_TEXT, "key": KEY_TEXT}
_STORES = {"ssl.truststore.": _TRUSTSTORE, "ssl.keystore.": _KEYSTORE}

_PLAIN, _SCRAM, _IAM = "PlainLoginModule", "ScramLoginModule", "IAMLoginModule"
#: What to set in place of a login module that is not translated, by its name without the package.
_INSTEAD = {
    "OAuthBearerLoginModule": "sasl_mechanism to OAUTHBEARER and sasl_oauth_token_provider (oauth_cb)",
    "Krb5LoginModule": "sasl_mechanism to GSSAPI and sasl_kerberos_service_name, with a ticket from kinit or a keytab "
    "in KRB5_CLIENT_KTNAME",
    _IAM: "sasl_mechanism to AWS_MSK_IAM",
}
#: A token of JAAS: a quoted text with escapes, a punctuation mark, or a word.
_TOKEN = re.compile(r"""\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([=;])|([^\s=;"']+))""", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


def is_store_key(key: str) -> bool:
    """Return whether `key` describes a truststore or keystore."""
    return key.startswith(tuple(_STORES))


def translate_stores(extra: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Return the stores in `extra` as our settings, each with the key that it comes from.

    Raises SettingError for a store that is not in PEM, and for a key that has no effect.
    """
    settings: dict[str, tuple[str, Any]] = {}
    for prefix, names in _STORES.items():
        given = {
            key.removeprefix(prefix): value
            for key, value in extra.items()
            if key.startswith(prefix) and value not in (None, "")
        }
        # Without a type, Kafka takes a file for JKS, and a text can only be PEM.
        kind = str(given.pop("type", "")).upper()
        if kind != "PEM" and (kind or "location" in given):
            raise _store_format_error(prefix, kind or "JKS", given.get("location"))
        if "password" in given:
            raise SettingError(
                f"The Kafka setting {prefix}password has no effect with certificates in PEM; remove it, "
                "or name the password of the key ssl.key.password."
            )
        for rest, value in given.items():
            if rest not in names:
                raise SettingError(f"The Kafka setting {prefix}{rest} is unknown; remove it.")
            settings[names[rest]] = (f"{prefix}{rest}", value)
    return settings


def _store_format_error(prefix: str, kind: str, location: Any) -> SettingError:
    if location is None:
        return SettingError(
            f"The Kafka setting {prefix}type is {shorten_value(kind)}; it takes PEM, with {prefix}location"
            f" or certificates as text."
        )
    store = shlex.quote(str(location))
    is_pkcs12 = kind == "PKCS12" or str(location).lower().endswith((".p12", ".pfx"))
    if prefix == "ssl.truststore.":
        command, made, also = f"keytool -list -rfc -keystore {store} > ca.pem", "ca.pem", ""
    else:
        convert = f"keytool -importkeystore -srckeystore {store} -destkeystore client.p12 -deststoretype PKCS12 && "
        source = f"{'' if is_pkcs12 else convert}openssl pkcs12 -in {store if is_pkcs12 else 'client.p12'}"
        command, made = f"{source} -out client.pem", "client.pem"
        also = ", and ssl.key.password to the new pass phrase"
    return SettingError(
        f"The Kafka setting {prefix}location names a store in {'PKCS12' if is_pkcs12 else kind}, and PEM "
        f"is read here; convert it with `{command}`, then set {prefix}type to PEM, {prefix}location to the path of "
        f"{made}{also}, and remove {prefix}password."
    )


def translate_jaas(text: Any, mechanism: str | None) -> dict[str, str]:
    """Return user name, password and mechanism, as far as `sasl.jaas.config` gives them.

    `mechanism` is the one that the same connection names, if any. Raises SettingError for another login module, one
    that does not fit `mechanism`, and a text that cannot be read.
    """
    module, options = _parse_jaas(str(text))
    name = module.rpartition(".")[2]
    if name == _IAM and mechanism in ("AWS_MSK_IAM", None):
        _refuse_options(options.keys(), "; the profile of AWS_PROFILE may name a role")
        return {"sasl_mechanism": "AWS_MSK_IAM"}
    if name not in (_PLAIN, _SCRAM):
        instead = _INSTEAD.get(name)
        supported = f"use {_PLAIN} or {_SCRAM}" if instead is None else f"remove it, and set {instead}"
        raise SettingError(f"The login module {shorten_value(name)} in {JAAS} is not supported here; {supported}.")
    # The SCRAM module serves two mechanisms, and so does not say which one is meant.
    wanted = ("PLAIN",) if name == _PLAIN else ("SCRAM-SHA-256", "SCRAM-SHA-512")
    if (mechanism or (wanted[0] if name == _PLAIN else None)) not in wanted:
        raise SettingError(
            f"The login module {name} in {JAAS} needs the sasl.mechanism {' or '.join(wanted)}, and it is "
            f"{mechanism or 'not set'}; set it in the same connection."
        )
    _refuse_options(options.keys() - {"username", "password"})
    for option in ("username", "password"):
        if not options.get(option):
            raise SettingError(f"The login module {name} in {JAAS} has no {option}; add it.")
    settings = {"sasl_plain_username": options["username"], "sasl_plain_password": options["password"]}
    return settings | ({"sasl_mechanism": "PLAIN"} if name == _PLAIN else {})


def translate_callback(key: str, value: Any) -> dict[str, str]:
    """Return the mechanism that a Java class for credentials stands for. Raises SettingError for all but Amazon's."""
    if str(value).startswith("software.amazon.msk.auth.iam."):
        return {"sasl_mechanism": "AWS_MSK_IAM"}
    raise SettingError(
        f"The Kafka setting {key} names a class of Java, and our client is in Python: remove it, and set "
        "sasl_oauth_token_provider (oauth_cb) to the dotted path of a class or function that returns tokens."
    )


def _refuse_options(options: Collection[str], instead: str = "") -> None:
    if options:
        option = shorten_value(min(options))
        raise SettingError(f"The option {option} in {JAAS} is not supported here; remove it{instead}.")


def _parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Return the login module and its options. Raises SettingError that quotes no part of the text."""
    tokens: list[tuple[str, str]] = []  # the punctuation mark, if it is one, and the text
    at = 0
    while text[at:].strip():
        matched = _TOKEN.match(text, at)
        if matched is None:
            raise _unreadable_jaas()
        double, single, mark, word = matched.groups()
        quoted = double if double is not None else single
        if quoted is not None:
            word = re.sub(r"\\(.)", lambda escape: _ESCAPED.get(escape[1], escape[1]), quoted, flags=re.DOTALL)
        tokens.append((mark or "", mark or word))
        at = matched.end()
    words = [text for _, text in tokens]
    marks = [mark for mark, _ in tokens]
    # A login module, a flag such as `required`, options of three tokens each, and a semicolon.
    options, count = words[2:-1], (len(tokens) - 3) // 3
    if len(tokens) < 3 or marks != ["", "", *["", "=", ""] * count, ";"]:
        raise _unreadable_jaas()
    return words[0], dict(zip(options[::3], options[2::3], strict=True))


def _unreadable_jaas() -> SettingError:
    return SettingError(
        f"The Kafka setting {JAAS} cannot be read; it takes one login module, as in: "
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="user" password="password";'
    )
