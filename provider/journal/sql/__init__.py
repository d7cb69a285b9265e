"""The journal in a SQL database: the mailbox, the tables, and the history."""
