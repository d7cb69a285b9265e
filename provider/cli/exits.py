"""Exit codes of the verbs, for scripts."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["EXIT_CODES", "Exit"]


class Exit(IntEnum):
    """The exit codes. Every code except DONE comes with a message on standard error."""

    #: The request was completed.
    DONE = 0
    #: The request failed, or was completed only in part.
    FAILED = 1
    #: The command line is invalid; argparse uses the same code.
    USAGE = 2
    #: The plan is in progress, or needs operator action: nothing is lost, and `resume` continues it.
    UNFINISHED = 3
    #: Ctrl-C or SIGTERM: the plan, if one was published, can be resumed or cancelled.
    INTERRUPTED = 130


EXIT_CODES = """exit codes:
  0    done
  1    failed, or not all of it could be done; a sentence on standard error says why
  2    the command line is wrong
  3    still in progress, or it waits for a person
  130  interrupted by Ctrl-C or SIGTERM: the plan can be resumed or cancelled"""
