"""Documents as others write them: a document is there, or is another one, whatever anybody has read before."""

from __future__ import annotations

from kafka_steward.journal.mailbox import Mailbox, Node, put_one, read_one
from tests.present import present


def create_document(mailbox: Mailbox, path: str, text: str) -> Node:
    """Write a document that does not exist yet."""
    return present(put_one(mailbox, path, text))


def change_document(mailbox: Mailbox, path: str, text: str) -> Node:
    """Write another text into a document."""
    return present(put_one(mailbox, path, text, present(read_one(mailbox, path))))


def delete_document(mailbox: Mailbox, path: str) -> None:
    """Delete a document."""
    assert mailbox.delete([present(read_one(mailbox, path))])
