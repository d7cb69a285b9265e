"""Build an SSL context from certificates and keys that are given as text (PEM).

Python loads trusted certificates from memory, but a client's certificate and key only from files. Their text is
therefore written to a file that only this user can read (0600), which is deleted as soon as it was loaded.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from tempfile import NamedTemporaryFile
from typing import Any

from kafka_steward.cluster.java_security import CA_TEXT, CERTIFICATE_TEXT, KEY_TEXT
from kafka_steward.errors import SettingError

#: A block of PEM, on several lines or on one with spaces, as Kafka accepts it.
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LINE = 64

#: The settings that only such a context carries out: kafka-python is given the context in place of all `ssl_` settings.
TEXTS = (CA_TEXT, CERTIFICATE_TEXT, KEY_TEXT)


def build_context(config: Mapping[str, Any]) -> ssl.SSLContext:
    """Return the context that kafka-python would build from the `ssl_` settings, with texts in place of files.

    Raises SettingError, naming the setting, for a text or file that cannot be used; it never contains a text.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # As in kafka-python, a setting that is not set means that the host name is checked.
    checked = config.get("ssl_check_hostname")
    context.check_hostname = checked in (None, "") or bool(checked)
    if config.get(CA_TEXT):
        trusted = normalize_pem(CA_TEXT, config[CA_TEXT])
        with _setting_errors(CA_TEXT):
            context.load_verify_locations(cadata=trusted)
    elif config.get("ssl_cafile"):
        with _setting_errors("ssl_cafile"):
            context.load_verify_locations(config["ssl_cafile"])
    else:
        context.load_default_certs()
    _load_client_certificate(context, config)
    if config.get("ssl_crlfile"):
        with _setting_errors("ssl_crlfile"):
            context.load_verify_locations(config["ssl_crlfile"])
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


def normalize_pem(name: str, text: Any) -> str:
    """Return the blocks of a PEM text on lines of their own. Raises SettingError if there is none.

    Line ends may be lost, or written as backslash and n, as environment variables and forms leave them. What stands
    between the blocks is left out.
    """
    blocks = []
    for label, body in _BLOCK.findall(str(text).replace("\\n", "\n")):
        base64 = "".join(body.split())
        lines = [base64[at : at + _LINE] for at in range(0, len(base64), _LINE)]
        # The headers of a key in the old encrypted form are separated by an empty line.
        inside = body.strip() if ":" in body else "\n".join(lines)
        blocks.append(f"-----BEGIN {label}-----\n{inside}\n-----END {label}-----\n")
    if not blocks:
        raise SettingError(
            f"The Kafka setting {name} is no text in PEM; it begins with -----BEGIN and ends with -----END …-----."
        )
    return "".join(blocks)


def _load_client_certificate(context: ssl.SSLContext, config: Mapping[str, Any]) -> None:
    certificate, key = config.get(CERTIFICATE_TEXT), config.get(KEY_TEXT)
    if not (certificate or config.get("ssl_certfile")):
        return
    with ExitStack() as stack:
        certfile, keyfile = str(config.get("ssl_certfile", "")), config.get("ssl_keyfile")
        if certificate:
            certfile = stack.enter_context(_temporary_file(normalize_pem(CERTIFICATE_TEXT, certificate)))
        if key:
            keyfile = stack.enter_context(_temporary_file(normalize_pem(KEY_TEXT, key)))
        with _setting_errors(CERTIFICATE_TEXT if certificate else "ssl_certfile"):
            # Without a password, OpenSSL would ask for one on the terminal.
            context.load_cert_chain(certfile, keyfile or None, config.get("ssl_password") or "")


@contextmanager
def _temporary_file(text: str) -> Iterator[str]:
    with NamedTemporaryFile("w", prefix="kafka-steward-", suffix=".pem") as file:
        file.write(text)
        file.flush()
        yield file.name


@contextmanager
def _setting_errors(name: str) -> Iterator[None]:
    try:
        yield
    except (ssl.SSLError, OSError, ValueError) as error:
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
        raise SettingError(
            f"The Kafka setting {name} cannot be loaded ({why}); check that it is in PEM and complete, that a key "
            "belongs to its certificate, and its ssl_password, if it is encrypted."
        ) from None
