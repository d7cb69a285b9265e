"""Tokens from classes and functions that a connection names: asked for, kept, and what is said when there are none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import kafka.errors
import pytest

from kafka_steward.cluster.oauth import TokenProvider
from kafka_steward.cluster.session import _check_credentials
from kafka_steward.errors import ClusterUnreachable, SettingError

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


def test_a_provider_that_fails_is_told_and_may_be_asked_again(module: ModuleType) -> None:
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
def test_what_is_no_token_is_told_and_not_repeated(module: ModuleType, answer: Any, sentence: str) -> None:
    with pytest.raises(SettingError, match=f"named returned {sentence}; it must return") as told:
        provider(module, lambda: answer).fetch()
    assert "s3cret" not in str(told.value)


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("tokens", "'tokens' is not a dotted path; write it like package.module.function"),
        ("os.system('x')", "is not a dotted path"),
        ("company_tokens.absent", r"cannot be imported \(AttributeError: "),
        (
            "no_such_module.tokens",
            r"cannot be imported \(ModuleNotFoundError: .*; its module must be on",
        ),
        ("company_tokens.number", "is neither a function nor a class with a method token"),
        ("company_tokens.broken", r"cannot be created \(KeyError: 'TENANT'\); fix it, or the files that it reads"),
    ],
)
def test_a_path_that_names_no_provider_is_told(module: ModuleType, path: str, sentence: str) -> None:
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
def test_aws_without_credentials_or_region_is_told(
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
