"""The simulator process of `fake_backends.FakeExternal`: a line of JSON in, a line out.

Ends with its parent, whose end of the pipe closes then. Needs the standard library alone.
"""

import json
import sys
import time

timestep, dies_at, hangs_at = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
for step, line in enumerate(sys.stdin, start=1):
    if step == dies_at:
        sys.exit(3)
    if step == hangs_at:
        time.sleep(3600)
    request = json.loads(line)
    positions, velocities, controls = request["state"]
    for _ in range(request["substeps"]):
        velocities = [v + u * timestep for v, u in zip(velocities, controls, strict=True)]
        positions = [x + v * timestep for x, v in zip(positions, velocities, strict=True)]
    print(json.dumps([positions, velocities]), flush=True)
