"""Get tokens for SASL OAUTHBEARER from a class or a function that a connection names by its dotted path.

Two existing kinds are supported: kafka-python's providers (a class with a method `token`), and the callbacks of
librdkafka that Airflow's own Kafka provider accepts as `oauth_cb` (a function that receives `sasl.oauthbearer.config`
and returns a token and its expiry time).
"""

from __future__ import annotations

import importlib
import inspect
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import kafka.errors

from kafka_steward.cluster.network import AbstractTokenProvider
from kafka_steward.errors import ClusterUnreachable, SettingError
from kafka_steward.value_parsing import parse_finite_number

#: Seconds that a token of unknown lifetime is cached: connections that are opened together share it.
_UNKNOWN_LIFE_S = 10.0
#: A token is renewed this many seconds before it expires, or in the last tenth of its lifetime if that is shorter.
_MARGIN_S, _MARGIN_FRACTION = 30.0, 0.1


@dataclass(frozen=True, slots=True)
class _Token:
    text: str = field(repr=False)
    usable_until_s: float
    extensions: Mapping[str, str]


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """A provider of the tokens of the object at the dotted path `path`.

    The object is a class whose instances have a method `token()`, such an instance, or a function. `config` is passed
    to a function or class that takes one argument. A token is a string, or a tuple of a token, its expiry time (seconds
    since 1970), and, as in librdkafka, a principal and a dict of SASL extensions. Thread-safe. Raises SettingError if
    the object cannot be used.
    """

    def __init__(self, path: str, config: str | None = None, now_s: Callable[[], float] = time.time) -> None:
        self._path, self._now_s = path, now_s
        self._get, self._get_extensions = _load_provider(path, config)
        self._cached: _Token | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"TokenProvider({self._path!r})"

    def fetch(self) -> str:
        """Return a token that has not expired.

        Raises ClusterUnreachable if the provider fails, and SettingError if it returns no valid token.
        """
        with self._lock:
            if self._cached is None or self._now_s() >= self._cached.usable_until_s:
                self._cached = self._request_token()
            return self._cached.text

    def token(self) -> str:
        """Return a token to kafka-python, as `fetch` does.

        Raises KafkaConnectionError with the error message: kafka-python's connection fails and is retried later.
        """
        try:
            return self.fetch()
        except (ClusterUnreachable, SettingError) as error:
            raise kafka.errors.KafkaConnectionError(str(error)) from error

    def extensions(self) -> Mapping[str, str]:
        """Return the SASL extensions of the token."""
        own = self._get_extensions() if self._get_extensions else {}
        return {**own, **(self._cached.extensions if self._cached else {})}

    def _request_token(self) -> _Token:
        try:
            answer = self._get()
        except Exception as error:
            # The provider's code is not ours and may raise any error; its service may recover soon.
            raise ClusterUnreachable(
                f"The token provider {self._path} failed ({type(error).__name__}: {error}); check its credentials "
                "and the service that it uses."
            ) from error
        try:
            return _parse_token(answer, self._now_s())
        except ValueError as error:
            raise SettingError(
                f"The token provider {self._path} returned {error}; it must return a token, or a token and its "
                "expiry time in seconds since 1970."
            ) from None


def _parse_token(answer: Any, now_s: float) -> _Token:
    """Return the token in a provider's result. Raises ValueError that describes the result without quoting it."""
    if isinstance(answer, str):
        return _Token(_validate_token_text(answer), now_s + _UNKNOWN_LIFE_S, {})
    if not isinstance(answer, tuple | list) or not 2 <= len(answer) <= 4:
        raise ValueError(f"a value of type {type(answer).__name__}")
    text, expires, extensions = answer[0], answer[1], answer[3] if len(answer) == 4 else None
    try:
        left_s = parse_finite_number(expires) - now_s
    except ValueError:
        raise ValueError("an expiry time that is not a number") from None
    if left_s <= 0:
        raise ValueError("a token that has expired")
    return _Token(
        _validate_token_text(text), now_s + left_s - min(_MARGIN_S, left_s * _MARGIN_FRACTION), dict(extensions or {})
    )


def _validate_token_text(text: Any) -> str:
    # Any other character could end the SASL message that contains the token.
    if not isinstance(text, str) or not text or not text.isascii() or not text.isprintable():
        raise ValueError("a token that is not a string of printable characters")
    return text


def _load_provider(path: str, config: str | None) -> tuple[Callable[[], Any], Callable[[], Mapping[str, str]] | None]:
    """Return functions that get a token, and SASL extensions if any, from the object at `path`. Raises SettingError."""
    target = _import_provider(path)
    if inspect.isclass(target):
        target = _create_provider(path, target, config)
    elif config is not None and callable(getattr(target, "token", None)):
        raise _no_argument_error(path)
    if callable(getattr(target, "token", None)):
        return target.token, getattr(target, "extensions", None)
    if not callable(target):
        raise SettingError(f"The token provider {path} is neither a function nor a class with a method token.")
    if _takes_argument(target):
        return lambda: target(config), None
    if config is not None:
        raise _no_argument_error(path)
    return target, None


def _create_provider(path: str, target: type, config: str | None) -> Any:
    if config is not None and not _takes_argument(target):
        raise _no_argument_error(path)
    try:
        return target() if config is None else target(config)
    except Exception as error:
        raise SettingError(
            f"The token provider {path} cannot be created ({type(error).__name__}: {error}); fix it, or the "
            "files that it reads."
        ) from error


def _takes_argument(target: Any) -> bool:
    try:
        inspect.signature(target).bind("")
    except (TypeError, ValueError):
        return False
    return True


def _no_argument_error(path: str) -> SettingError:
    return SettingError(
        f"The token provider {path} takes no argument, and sasl.oauthbearer.config gives one; remove that setting, "
        "or let the provider accept it."
    )


def _import_provider(path: str) -> Any:
    module, _, name = path.rpartition(".")
    if not module or not all(part.isidentifier() for part in path.split(".")):
        raise SettingError(f"The token provider {path!r} is not a dotted path; write it like package.module.function.")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:
        # The import runs code that is not ours and may raise any error.
        raise SettingError(
            f"The token provider {path} cannot be imported ({type(error).__name__}: {error}); its module must be on "
            "the Python path of workers, triggerer and command line."
        ) from error
