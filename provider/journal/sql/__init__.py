"""The journal in a SQL database: the tree, the tables, and the history."""
