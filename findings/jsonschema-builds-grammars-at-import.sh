#!/usr/bin/env bash
# Seen with jsonschema 4.26.0 and rfc3987-syntax 1.1.0: while rfc3987-syntax is installed, `import jsonschema` builds 39 Lark grammars,
# for about a second of processor, although nothing is validated. Airflow imports jsonschema in each of its processes; cyclonedx-bom asks
# for jsonschema[format-nongpl], which installs rfc3987-syntax. So a tool for SBOMs in Airflow's environment slows every task down.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
timeout 300 "$place/venv/bin/pip" install --quiet --disable-pip-version-check jsonschema==4.26.0 lark==1.3.1
cat > "$place/count.py" <<'PYTHON'
import sys
import time

import lark

built = []
create = lark.Lark.__init__


def count(self, *arguments, **options):
    built.append(self)
    create(self, *arguments, **options)


lark.Lark.__init__ = count
before = time.process_time()
import jsonschema  # noqa: E402

print(f"{sys.argv[1]}: import jsonschema builds {len(built)} grammars in {time.process_time() - before:.2f} s of processor")
sys.exit(len(built) != int(sys.argv[2]))
PYTHON
"$place/venv/bin/python" "$place/count.py" "without rfc3987-syntax" 0
timeout 300 "$place/venv/bin/pip" install --quiet --disable-pip-version-check rfc3987-syntax==1.1.0
"$place/venv/bin/python" "$place/count.py" "with rfc3987-syntax 1.1.0" 39
