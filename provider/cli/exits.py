"""What a script may learn from a verb's exit code."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["EXIT_CODES", "Exit"]


class Exit(IntEnum):
    """The exit codes. Whatever is not DONE comes with a sentence on standard error."""

    #: All that was asked for is done.
    DONE = 0
    #: It could not be done, or not all of it.
    FAILED = 1
    #: The command line itself is wrong; argparse uses the same code.
    USAGE = 2
    #: It is still in progress, or waits for a person: nothing is lost, and `resume` goes on.
    UNFINISHED = 3
    #: Ctrl-C, or a polite kill: the plan, if one was published, can be resumed or cancelled.
    INTERRUPTED = 130


EXIT_CODES = """exit codes:
  0    done
  1    failed, or not all of it could be done; a sentence on standard error says why
  2    the command line is wrong
  3    still in progress, or it waits for a person
  130  interrupted by Ctrl-C or SIGTERM: the plan can be resumed or cancelled"""
