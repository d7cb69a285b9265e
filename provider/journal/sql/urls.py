"""Secrets in a database URL: finding them, and removing them from text."""

from __future__ import annotations

from urllib.parse import quote, quote_plus

import sqlalchemy as sa

#: Parts of the names of libpq parameters that contain a secret: sslpassword, oauth_client_secret, scram_client_key.
_SECRET_NAMES = ("password", "secret", "scram_")

_HIDDEN = "***"


def secrets_of(url: sa.URL) -> list[str]:
    """Return every secret of `url`, each in plain form and URL-encoded, the longest first."""
    plain = {str(url.password)} if url.password else set()
    for value in (value for name, value in url.query.items() if _is_secret(name)):
        plain |= {value} if isinstance(value, str) else set(value)
    ways = {way(each) for each in plain if each for way in (str, quote, quote_plus)}
    return sorted(ways, key=lambda secret: (-len(secret), secret))


def shown_url(url: sa.URL) -> str:
    """Return `url` for an error message or a log, with its secrets replaced by `***`."""
    hidden = {name: _HIDDEN if _is_secret(name) else value for name, value in url.query.items()}
    return url.set(query=hidden).render_as_string(hide_password=True).replace(quote_plus(_HIDDEN), _HIDDEN)


def without_secrets(text: str, url: sa.URL) -> str:
    """Return `text`, such as a driver's error message, with the secrets of `url` replaced by `***`."""
    for secret in secrets_of(url):
        text = text.replace(secret, _HIDDEN)
    return text


def _is_secret(name: str) -> bool:
    return any(part in name.lower() for part in _SECRET_NAMES)
