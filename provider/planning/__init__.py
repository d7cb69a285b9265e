"""The Spark pipeline: it reads a snapshot and writes a plan with its proof.

`shards` runs `solver` and `checker`, which do not import each other, on the parts of a snapshot: on Spark (`spark`), or
in this process (`local`). All of them read and write `files`.
"""
