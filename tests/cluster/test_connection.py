"""A connection's settings and its tokens: translated without loss, or refused by name, and never shown."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import kafka.errors
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kafka import KafkaAdminClient

from kafka_steward.cluster.connection import Secret, client_config, is_client_key, validate_config
from kafka_steward.cluster.oauth import TokenProvider
from kafka_steward.cluster.session import _check_credentials
from kafka_steward.errors import ClusterUnreachable, SettingError
from kafka_steward.settings import Settings
from tests.secured import Authority


def test_an_airflow_kafka_connection_is_translated_key_by_key() -> None:
    extra = {
        "bootstrap.servers": "a:9092,b:9092",
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "scram-sha-512",
        "sasl.username": "steward",
        "sasl.password": "open sesame",
        "ssl.ca.location": "/etc/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
        "socket.timeout.ms": "20000",
        "client.id": "me",
    }
    assert client_config(extra) == {
        "bootstrap_servers": "a:9092,b:9092",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "steward",
        "sasl_plain_password": "open sesame",
        "ssl_cafile": "/etc/ca.pem",
        "ssl_check_hostname": False,
        "request_timeout_ms": 20_000,
        "client_id": "me",
    }


@pytest.mark.parametrize(
    ("key", "value", "taken"),
    [
        *((key, "x", {}) for key in ("group.id", "auto.offset.reset", "enable.auto.commit", "linger.ms", "debug")),
        ("error_cb", "x", {}),
        ("enable.ssl.certificate.verification", True, {}),
        ("sasl_plain_username", "steward", {"sasl_plain_username": "steward"}),
    ],
)
def test_what_concerns_no_admin_client_or_is_the_default_is_left_out_and_kafka_pythons_own_names_are_taken(
    key: str, value: object, taken: dict[str, object]
) -> None:
    assert client_config({key: value}) == taken


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sasl.oauthbearer.method", "oidc"),
        ("sasl.oauthbearer.client.secret", "s3cret"),
        ("enable.ssl.certificate.verification", "false"),
        ("no.such.key", 1),
    ],
)
def test_what_cannot_be_translated_is_refused_by_name_without_its_value(key: str, value: Any) -> None:
    with pytest.raises(SettingError, match=f"setting {key} has no equivalent") as raised:
        client_config({key: value})
    assert str(value) not in str(raised.value).replace(key, "")


@pytest.mark.parametrize("value", ["soon", None, -1])
def test_milliseconds_must_be_a_number(value: Any) -> None:
    with pytest.raises(SettingError, match=r"socket\.timeout\.ms"):
        client_config({"socket.timeout.ms": value})


def test_the_hook_distinguishes_client_keys_from_its_own() -> None:
    places = ["zookeeper", "journal", "workspace", "kafka_conn_id", "cluster_id", "kafka.heal.chunk.size"]
    ours = [*places, *(knob.name for knob in fields(Settings))]
    assert not [key for key in ours if is_client_key(key)]
    assert all(
        map(is_client_key, ["sasl.password", "ssl.ca.pem", "security_protocol", "ssl_cafile", "socket.timeout.ms"])
    )


def test_our_defaults_give_way_to_what_is_given_and_numbers_may_be_texts() -> None:
    given = {"bootstrap_servers": "a:1, b:2", "bootstrap_timeout_ms": 5, "retry_backoff_ms": "2e4"}
    config = validate_config(given)
    assert config["bootstrap_servers"] == ["a:1", "b:2"]
    assert (config["bootstrap_timeout_ms"], config["request_timeout_ms"]) == (5, 15_000)
    assert config["retry_backoff_ms"] == 20_000


OAUTH = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
LOGIN = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "me", "sasl_plain_password": "s3cret"}


SECURITY = [name for name in sorted(KafkaAdminClient.DEFAULT_CONFIG) if name.startswith(("sasl_", "ssl_"))]


@pytest.mark.parametrize("name", SECURITY)
def test_a_security_setting_that_the_protocol_does_not_use_is_refused(name: str) -> None:
    """Whatever kafka-python has for security: where it would be dropped, it is an error that says what to set."""
    own = name.partition("_")[0].upper()
    value = True if name == "ssl_check_hostname" else LOGIN.get(name, "x")
    for protocol in ("", "PLAINTEXT", "SSL", "SASL_PLAINTEXT"):
        if protocol.startswith(own) or protocol.endswith(own):
            continue
        sentence = (
            rf"^The Kafka setting {name} is given, and the security protocol {protocol or 'PLAINTEXT'} does not use "
            rf"it; set security_protocol to (SASL_)?SSL.*, or remove {name}\.$"
        )
        with pytest.raises(SettingError, match=sentence) as refused:
            validate_config({"bootstrap_servers": "a:1", "security_protocol": protocol, name: value})
        assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("mechanism", "name"),
    [
        ("PLAIN", "sasl_kerberos_service_name"),
        ("SCRAM-SHA-512", "sasl_oauth_token_provider"),
        ("GSSAPI", "sasl_plain_password"),
        ("OAUTHBEARER", "sasl_plain_username"),
        ("AWS_MSK_IAM", "sasl_plain_username"),
    ],
)
def test_a_setting_that_the_mechanism_does_not_use_is_refused(mechanism: str, name: str) -> None:
    needed = {"sasl_oauth_token_provider": "json.dumps"} if mechanism == "OAUTHBEARER" else {}
    needed |= LOGIN if mechanism in ("PLAIN", "SCRAM-SHA-512") else {}
    given = {
        "bootstrap_servers": "a:1",
        "security_protocol": "SASL_SSL",
        **needed,
        "sasl_mechanism": mechanism,
        name: "x",
    }
    with pytest.raises(
        SettingError, match=f"{name} is given, and the mechanism {mechanism} does not use it; set another"
    ):
        validate_config(given)


@pytest.mark.parametrize("value", ["false", "off", False])
def test_a_switch_means_what_it_says(value: object) -> None:
    given = {"bootstrap_servers": "a:1", "security_protocol": "SSL", "ssl_check_hostname": value}
    assert validate_config(given)["ssl_check_hostname"] is False


def test_two_keys_do_not_say_two_things_of_the_security() -> None:
    assert client_config({"sasl.username": "me", "sasl_plain_username": "me"}) == {"sasl_plain_username": "me"}
    with pytest.raises(SettingError, match=r"is given twice, .*, once by sasl_plain_username") as refused:
        client_config({"sasl.username": "me", "sasl_plain_username": "you"})
    assert "you" not in str(refused.value)


def test_a_token_provider_is_found_by_its_path() -> None:
    given = {"oauth_cb": "json.dumps", "sasl.oauthbearer.config": "scope", "sasl.oauthbearer.method": "default"}
    config = validate_config({"bootstrap_servers": "a:1", **OAUTH, **client_config(given)})
    assert config["sasl_oauth_token_provider"].fetch() == '"scope"'
    assert "sasl_oauth_config" not in config
    own = config["sasl_oauth_token_provider"]
    assert validate_config({"bootstrap_servers": "a:1", **OAUTH, "sasl_oauth_token_provider": own}) == config


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"bootstrap_servers": ""}, "bootstrap_servers is empty"),
        ({}, "bootstrap_servers is empty"),
        ({"bootstrap_servers": "host:port"}, "'host:port'"),
        ({"bootstrap_server": "a:1", "bootstrap_servers": "a:1"}, "bootstrap_server is unknown"),
        ({"kafka_client": object(), "bootstrap_servers": "a:1"}, "kafka_client is unknown"),
        ({"security_protocol": "TLS"}, "security_protocol is 'TLS'"),
        ({"security_protocol": "SASL_SSL"}, "sasl_mechanism is None"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAN"}, "sasl_mechanism is PLAN; it takes one of PLAIN"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "sasl_plain_username is missing"),
        ({"security_protocol": "SSL", "ssl_cafile": "/nowhere/ca.pem"}, "ssl_cafile names /nowhere/ca.pem"),
        ({"request_timeout_ms": "soon"}, "request_timeout_ms is 'soon'; it takes a whole number"),
        ({"request_timeout_ms": 0.5}, "request_timeout_ms is 0.5; it takes a whole number"),
        ({"request_timeout_ms": True}, "request_timeout_ms is True; it takes a whole number"),
        ({"bootstrap_timeout_ms": float("nan")}, "bootstrap_timeout_ms is nan; it takes a whole number"),
        ({"bootstrap_timeout_ms": 0}, "bootstrap_timeout_ms is 0; it must lie between 1 and"),
        ({"log_dirs_timeout_ms": 60_000}, "log_dirs_timeout_ms is 60000; it must lie between 1 and 50000"),
        ({"retry_backoff_ms": "1e30"}, "retry_backoff_ms is '1e30'; it must lie between 1 and"),
        ({"security_protocol": "SSL", "ssl_check_hostname": "maybe"}, "ssl_check_hostname is 'maybe'; it takes true"),
        ({"security_protocol": "SSL", "ssl_context": "x"}, "ssl_context is not an SSLContext"),
        ({"security_protocol": "SSL", "ssl_keyfile": "k"}, "ssl_keyfile has no effect without ssl_certfile"),
        ({"security_protocol": "SSL", "ssl_password": "s"}, "ssl_password has no effect without ssl_certfile"),
        ({**OAUTH, "sasl_oauth_token_provider": 5}, "sasl_oauth_token_provider is not a dotted path"),
        ({**OAUTH, "sasl_oauth_token_provider": "x"}, "token provider 'x' is not a dotted path"),
        ({**OAUTH}, "sasl_oauth_token_provider is missing; OAUTHBEARER needs the dotted path of a class or function"),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"},
            "gssapi, which is missing here; install gssapi.",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM"},
            r"botocore, which .* install airflow-provider-kafka-steward\[msk\].",
        ),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "AWS_MSK_IAM"}, "set security_protocol to SASL_SSL"),
    ],
)
def test_a_configuration_that_cannot_work_is_one_sentence(
    config: dict[str, Any], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_steward.cluster.connection.find_spec", lambda _: None)
    with pytest.raises(SettingError, match=named) as raised:
        validate_config(
            {"bootstrap_servers": "a:1", **config} if "bootstrap_servers" not in config and config else config
        )
    assert str(raised.value).endswith(".")


def test_files_that_exist_and_addresses_of_all_kinds_are_accepted(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("")
    servers = ["host", "host:9092", "127.0.0.1:9092", "[::1]:9092", "::1"]
    config = {"bootstrap_servers": servers, "security_protocol": "SSL", "ssl_cafile": str(authority)}
    assert validate_config(config)["bootstrap_servers"] == servers


def test_a_secret_is_usable_and_does_not_show_itself() -> None:
    credentials = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "steward",
        "sasl_plain_password": "open sesame",
    }
    config = validate_config({"bootstrap_servers": "a:1", **credentials})
    assert config["sasl_plain_password"] == "open sesame"
    assert "sesame" not in repr(config)
    assert repr(Secret("x")) == repr(Secret("another"))


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A certificate, its key, and the key encrypted with the password `s3cret`."""
    authority = Authority(tmp_path_factory.mktemp("pem"))
    key = ec.generate_private_key(ec.SECP256R1())
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"s3cret"),
    )
    own = authority.client("steward").read_text()
    at = own.index("-----BEGIN CERT")
    return {
        "authority": authority.certificate.read_text(),
        "chain": own[at:] if at else own[: own.index("-----BEGIN PRIVATE")],
        "key": own[:at] if at else own[own.index("-----BEGIN PRIVATE") :],
        "other key": encrypted.decode(),
    }


@pytest.mark.parametrize("written", ["lines", "escaped", "one line"])
@pytest.mark.parametrize(
    "names",
    [
        ("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem"),
        ("ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key"),
        ("ssl_ca_pem", "ssl_certificate_pem", "ssl_key_pem"),
    ],
    ids=["librdkafka", "Java", "ours"],
)
def test_certificates_as_text_are_loaded_and_no_file_with_a_key_stays(
    names: tuple[str, str, str], written: str, pem: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    load = ssl.SSLContext.load_cert_chain

    def watch(context: ssl.SSLContext, certfile: str, keyfile: str | None, password: str) -> None:
        modes.extend(Path(each).stat().st_mode & 0o777 for each in (certfile, keyfile) if each)
        load(context, certfile, keyfile, password)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watch)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    separator = {"lines": "\n", "escaped": "\\n", "one line": " "}[written]
    texts = [pem[each].replace("\n", separator) for each in ("authority", "chain", "key")]
    types = {"ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM"} if "truststore" in names[0] else {}
    given = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "", **types}
    config = validate_config(
        {"bootstrap_servers": "a:1", **client_config({**given, **dict(zip(names, texts, strict=True))})}
    )
    context = config["ssl_context"]
    assert [each["subject"] for each in context.get_ca_certs()]
    assert context.check_hostname is False
    assert [name for name in config if name.startswith("ssl_")] == ["ssl_context"]
    assert modes == [0o600, 0o600]
    assert not list(tmp_path.iterdir())
    assert "BEGIN" not in repr(config)


def test_a_store_in_pem_is_a_file_and_any_other_is_refused_with_the_command_that_converts_it() -> None:
    given = {"ssl.truststore.type": "pem", "ssl.truststore.location": "/ca.pem", "ssl.keystore.type": "PEM"}
    given |= {"ssl.keystore.location": "/me.pem", "ssl.key.password": "s3cret", "ssl.truststore.password": ""}
    assert client_config(given) == {"ssl_cafile": "/ca.pem", "ssl_certfile": "/me.pem", "ssl_password": "s3cret"}
    jks = {"ssl.truststore.location": "/a b.jks", "ssl.truststore.password": "s3cret"}
    own = {"ssl.keystore.location": "/me.jks", "ssl.keystore.password": "s3cret"}
    for extra, command in (
        (jks, r"in JKS, .* `keytool -list -rfc -keystore '/a b.jks' > ca.pem`, then set ssl.truststore.type to PEM"),
        (own, "-srckeystore /me.jks -destkeystore client.p12 .* && openssl pkcs12 -in client.p12 -out client.pem`"),
        ({**own, "ssl.keystore.type": "PKCS12"}, "in PKCS12, .* with `openssl pkcs12 -in /me.jks -out client.pem`"),
        ({"ssl.keystore.location": "/me.p12"}, "in PKCS12, .* with `openssl pkcs12 -in /me.p12 -out client.pem`"),
        ({**own, "ssl.keystore.type": "PEM"}, "ssl.keystore.password has no effect .* name the password of the key"),
        ({"ssl.truststore.type": "JKS", "ssl.truststore.certificates": "s3cret"}, "truststore.type is 'JKS'; it takes"),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.s": "x"}, "truststore.s is unknown"),
    ):
        with pytest.raises(SettingError, match=command) as refused:
            client_config(extra)
        assert "s3cret" not in str(refused.value)


def test_an_encrypted_key_in_a_file_is_refused_without_its_password_and_nobody_is_asked_for_it(
    pem: dict[str, str], tmp_path: Path
) -> None:
    files = {name: tmp_path / name for name in ("chain", "key", "other key", "both")}
    for name, path in files.items():
        path.write_text(pem["chain"] + pem["other key"] if name == "both" else pem[name])
    config = {"bootstrap_servers": "a:1", "security_protocol": "SSL"}
    java = client_config({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(files["both"])})
    apart = {"ssl_certfile": str(files["chain"]), "ssl_keyfile": str(files["other key"])}
    for given in (java, apart, {**java, "ssl_password": "wr0ng"}, {**apart, "ssl_password": "wr0ng"}):
        with pytest.raises(SettingError, match=r"ssl_certfile cannot be loaded .* its ssl_password") as refused:
            validate_config({**config, **given})
        assert "wr0ng" not in str(refused.value)
    checked = validate_config({**config, **apart, "ssl_keyfile": str(files["key"])})
    assert (checked["ssl_certfile"], checked["ssl_password"]) == (str(files["chain"]), ""), "kafka-python loads it"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"ssl_ca_pem": "s3cret"}, "ssl_ca_pem is no text in PEM"),
        ({"ssl_ca_pem": "-----BEGIN CERTIFICATE-----s3cret-----END CERTIFICATE-----"}, "ssl_ca_pem cannot be loaded"),
        ({"ssl_key_pem": "key"}, "ssl_key_pem has no effect without ssl_certfile"),
        ({"ssl_certificate_pem": "chain"}, "ssl_certificate_pem cannot be loaded"),
        (
            {"ssl_certificate_pem": "chain", "ssl_key_pem": "other key"},
            "ssl_certificate_pem cannot be loaded .* its ssl",
        ),
        (
            {"ssl_certificate_pem": "chain", "ssl_key_pem": "other key", "ssl_password": "s3cret"},
            r"cannot be loaded \(KEY_VALUES_MISMATCH\)",
        ),
        ({"ssl_ca_pem": "authority", "ssl_cafile": __file__}, "ssl_cafile has no effect with ssl_ca_pem"),
        ({"ssl_ca_pem": "authority", "ssl_certfile": __file__}, "ssl_certfile cannot be loaded"),
        ({"ssl_ca_pem": "authority", "ssl_crlfile": __file__}, "ssl_crlfile cannot be loaded"),
        ({"ssl_certfile": __file__, "ssl_keyfile": "key"}, "ssl_keyfile holds a text in PEM, .*; set ssl_key_pem to"),
    ],
)
def test_a_text_that_cannot_be_loaded_is_named_and_not_repeated(
    given: dict[str, str], named: str, pem: dict[str, str]
) -> None:
    config = {name: pem.get(value, value) for name, value in given.items()}
    with pytest.raises(SettingError, match=named) as refused:
        validate_config({"bootstrap_servers": "a:1", "security_protocol": "SSL", **config})
    assert "s3cret" not in str(refused.value)
    assert "-----BEGIN" not in str(refused.value).replace("begins with -----BEGIN", "")
    assert refused.value.__cause__ is None


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
IAM = "software.amazon.msk.auth.iam"


@pytest.mark.parametrize(
    ("text", "mechanism", "password"),
    [
        (f'{PLAIN} required username="me" password="s3cret";', None, "s3cret"),
        (f"{PLAIN} required username='me' password='s3 \"cret=;';", "PLAIN", 's3 "cret=;'),
        (f'{SCRAM} required\n  username="me"\n  password="s3\\"\\\\cret" ;\n', "scram-sha-512", 's3"\\cret'),
        (f'{SCRAM} required username=me password="s3cret";', "SCRAM-SHA-256", "s3cret"),
    ],
)
def test_a_login_module_with_a_password_is_translated(text: str, mechanism: str | None, password: str) -> None:
    extra = {"sasl.jaas.config": text} | ({"sasl.mechanism": mechanism} if mechanism else {})
    expected = {"sasl_mechanism": (mechanism or "PLAIN").upper(), "sasl_plain_username": "me"}
    assert client_config(extra) == {**expected, "sasl_plain_password": password}


@pytest.mark.parametrize(
    ("text", "mechanism", "named"),
    [
        (f'{PLAIN} required username="me" password="s3cret";', "SCRAM-SHA-256", "needs the sasl.mechanism PLAIN, and"),
        (f'{SCRAM} required username="me" password="s3cret";', "PLAIN", "SCRAM-SHA-256 or SCRAM-SHA-512, and it is PL"),
        (f'{SCRAM} required username="me" password="s3cret";', None, "SCRAM-SHA-512, and it is not set; set it in"),
        (f'{PLAIN} required username="me" password="s3cret"', None, "cannot be read; it takes one login module, as in"),
        (f'{PLAIN} required username="me" password="s3cret;', None, "cannot be read"),
        (f'{PLAIN} required username="me" "s3cret";', None, "cannot be read"),
        (f'{PLAIN} required password="s3cret";', None, "has no username"),
        (f'{SCRAM} required username=me password="s3cret" tokenauth="true";', "SCRAM-SHA-256", "option 'tokenauth'"),
        ('a.Krb5LoginModule required keyTab="s3cret";', "GSSAPI", "sasl_mechanism to GSSAPI and sasl_kerberos_service"),
        ('a.OAuthBearerLoginModule required clientSecret="s3cret";', None, "OAUTHBEARER and sasl_oauth_token_provider"),
        (f"{IAM}.IAMLoginModule required;", "PLAIN", "set sasl_mechanism to AWS_MSK_IAM"),
        (f'{IAM}.IAMLoginModule required awsProfileName="a";', None, "'awsProfileName' .* profile of AWS_PROFILE"),
        ('a.Own required password="s3cret";', None, "'Own' .* use PlainLoginModule or ScramLoginModule"),
    ],
)
def test_any_other_login_module_is_refused_with_what_is_supported(text: str, mechanism: str, named: str) -> None:
    with pytest.raises(SettingError, match=named) as refused:
        client_config({"sasl.jaas.config": text, "sasl.mechanism": mechanism})
    assert "s3cret" not in str(refused.value)


def test_what_amazon_prints_for_clients_of_msk_is_the_mechanism_and_java_code_is_refused() -> None:
    """With IAM, the handler of the callback says again what the login module says."""
    callback, login = "sasl.client.callback.handler.class", "sasl.login.callback.handler.class"
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": f"{IAM}.IAMLoginModule required;",
        callback: f"{IAM}.IAMClientCallbackHandler",
    }
    assert client_config(given) == {"security_protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM"}
    for key in (callback, login):
        with pytest.raises(SettingError, match=f"{key} names a class of Java.* sasl_oauth_token_provider"):
            client_config({key: "com.example.Tokens"})


NOW_S = 1_000_000.0


class Clock:
    now_s = NOW_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module that a connection may name."""
    made = ModuleType("company_tokens")
    monkeypatch.setitem(sys.modules, "company_tokens", made)
    return made


def provider(module: ModuleType, named: Any, config: str | None = None, clock: Clock | None = None) -> TokenProvider:
    module.__dict__["named"] = named
    return TokenProvider("company_tokens.named", config, clock or Clock())


class Given:
    """As kafka-python's own providers are written."""

    def token(self) -> str:
        return "from-a-class"

    def extensions(self) -> dict[str, str]:
        return {"logicalCluster": "lkc-1"}


class Configured(Given):
    def __init__(self, config: str = "none") -> None:
        self.config = config

    def token(self) -> str:
        return f"for-{self.config}"


@pytest.mark.parametrize(
    ("named", "config", "token"),
    [
        (Given, None, "from-a-class"),
        (Given(), None, "from-a-class"),
        (Configured, "scope", "for-scope"),
        (Configured, None, "for-none"),
        (lambda: "plain", None, "plain"),
        (lambda config: f"for-{config}", "scope", "for-scope"),
        (lambda config: f"for-{config}", None, "for-None"),
        (lambda _: ("pair", NOW_S + 60), None, "pair"),
        (lambda _: ["of-four", NOW_S + 60, "principal", {"a": "b"}], None, "of-four"),
    ],
)
def test_classes_instances_and_functions_give_tokens(
    module: ModuleType, named: Any, config: str | None, token: str
) -> None:
    assert provider(module, named, config).token() == token


def test_extensions_come_from_a_class_or_with_a_token(module: ModuleType) -> None:
    assert provider(module, Given).extensions() == {"logicalCluster": "lkc-1"}
    of_four = provider(module, lambda _: ("t", NOW_S + 60, "p", {"a": "b"}))
    of_four.token()
    assert of_four.extensions() == {"a": "b"}


@pytest.mark.parametrize(("life_s", "kept_s"), [(3600, 3570), (100, 90), (None, 10)])
def test_a_token_is_kept_until_shortly_before_it_expires(
    module: ModuleType, life_s: float | None, kept_s: float
) -> None:
    clock, asked = Clock(), iter(range(9))
    tokens = provider(
        module, lambda: str(next(asked)) if life_s is None else (str(next(asked)), clock.now_s + life_s), clock=clock
    )
    found = []
    for clock.now_s in (NOW_S, NOW_S + kept_s - 1, NOW_S + kept_s + 0.001):
        found.append(tokens.token())
    assert found == ["0", "0", "1"]


def failing() -> str:
    raise PermissionError("invalid_client")


def test_a_provider_that_fails_is_named_and_may_be_asked_again(module: ModuleType) -> None:
    tokens = provider(module, failing)
    sentence = r"^The token provider company_tokens\.named failed \(PermissionError: invalid_client\); check its cred"
    with pytest.raises(ClusterUnreachable, match=sentence):
        tokens.fetch()
    with pytest.raises(kafka.errors.KafkaConnectionError, match=r"company_tokens\.named failed"):
        tokens.token()  # on kafka-python's thread, which knows its own errors only
    with pytest.raises(ClusterUnreachable, match=sentence):
        _check_credentials({"sasl_oauth_token_provider": tokens})


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (None, "a value of type NoneType"),
        (b"s3cret", "a value of type bytes"),
        (("s3cret",), "a value of type tuple"),
        (("s3cret", "soon"), "an expiry time that is not a number"),
        (("s3cret", NOW_S), "a token that has expired"),
        (("s3cret", float("inf")), "an expiry time that is not a number"),
        ("", "a token that is not a string of printable characters"),
        ("s3cret\x01auth=x", "a token that is not a string of printable characters"),
        ((5, NOW_S + 60), "a token that is not a string of printable characters"),
    ],
)
def test_what_is_no_token_is_refused_and_not_repeated(module: ModuleType, answer: Any, sentence: str) -> None:
    with pytest.raises(SettingError, match=f"named returned {sentence}; it must return") as told:
        provider(module, lambda: answer).fetch()
    assert "s3cret" not in str(told.value)


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("tokens", "'tokens' is not a dotted path; write it like package.module.function"),
        ("os.system('x')", "is not a dotted path"),
        ("company_tokens.absent", r"cannot be imported \(AttributeError: "),
        ("no_such_module.tokens", r"cannot be imported \(ModuleNotFoundError: .*; its module must be on"),
        ("company_tokens.number", "is neither a function nor a class with a method token"),
        ("company_tokens.broken", r"cannot be created \(KeyError: 'TENANT'\); fix it, or the files that it reads"),
    ],
)
def test_a_path_that_names_no_provider_is_refused(module: ModuleType, path: str, sentence: str) -> None:
    class Broken(Given):
        def __init__(self) -> None:
            raise KeyError("TENANT")

    module.__dict__.update(number=5, broken=Broken)
    with pytest.raises(SettingError, match=sentence):
        TokenProvider(path)


@pytest.mark.parametrize("named", [Given, Given(), lambda: "x"])
def test_a_configuration_that_nothing_takes_is_refused(module: ModuleType, named: Any) -> None:
    with pytest.raises(
        SettingError, match=r"takes no argument, and sasl\.oauthbearer\.config gives one; remove that setting"
    ):
        provider(module, named, "scope")


def test_no_token_is_shown(module: ModuleType) -> None:
    tokens = provider(module, lambda: "s3cret")
    tokens.fetch()
    assert "s3cret" not in repr(tokens) + repr(vars(tokens))


@pytest.mark.parametrize(
    ("credentials", "region", "missing"),
    [(None, "eu-west-1", "credentials"), ("some", None, "region"), ("some", "eu", "")],
)
def test_aws_without_credentials_or_region_is_refused(
    monkeypatch: pytest.MonkeyPatch, credentials: str | None, region: str | None, missing: str
) -> None:
    class Session:
        def get_credentials(self) -> str | None:
            return credentials

        def get_config_variable(self, _name: str) -> str | None:
            return region

    made = ModuleType("botocore.session")
    made.Session = Session  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "botocore", ModuleType("botocore"))
    monkeypatch.setitem(sys.modules, "botocore.session", made)
    if not missing:
        _check_credentials({"sasl_mechanism": "AWS_MSK_IAM"})
        return
    with pytest.raises(SettingError, match=f"AWS_MSK_IAM found no AWS {missing} on this machine"):
        _check_credentials({"sasl_mechanism": "AWS_MSK_IAM"})
