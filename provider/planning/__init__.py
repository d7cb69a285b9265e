"""The Spark pipeline: it reads a snapshot and writes a plan with its proof.

`spark` runs `solver` and `checker`, which do not import each other. All of them read and write `files`.
"""
