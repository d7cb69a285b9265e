"""The Spark pipeline: a snapshot in, a plan and its proof out.

`spark` runs `solver` and `checker`, which do not know each other; all of them read and write `files`.
"""
