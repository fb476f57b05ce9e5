"""Asks the operator whether it is ready until it is; after the time limit, says what it answered.

Called by `helm test` as `python3 -c ... URL SECONDS`. Standard library only.
"""

import sys
import time
import urllib.error
import urllib.request


def answer(url: str) -> tuple[bool, str]:
    """Whether the operator is ready, and its words; a refused connection counts as not."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return True, response.read(4096).decode(errors="replace").strip()
    except urllib.error.HTTPError as error:
        return False, f"{error.code} {error.read(4096).decode(errors='replace').strip()}"
    except OSError as error:
        return False, str(error)


def main(url: str, seconds: float) -> int:
    """Exit status: 0 where the operator got ready within `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        ready, words = answer(url)
        if ready:
            sys.stdout.write(f"ready: {words}\n")
            return 0
        if time.monotonic() >= deadline:
            sys.stderr.write(f"{url} is not ready after {seconds:.0f} s: {words}\n")
            return 1
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
