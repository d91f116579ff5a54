"""Asks for /health again and again, and prints how long each answer took, in seconds, as a JSON list.

    python -m benchmarks.prober PORT SECONDS

A process of its own: in that of the load it would time the load.
"""

import http.client
import json
import sys
import time

INTERVAL_SECONDS = 0.01


def probe(port: int, seconds: float) -> list[float]:
    """Times of /health, one every `INTERVAL_SECONDS`; raises RuntimeError for an answer other than 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    times: list[float] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        started = time.monotonic()
        connection.request("GET", "/health")
        reply = connection.getresponse()
        reply.read()
        if reply.status != 200:
            raise RuntimeError(f"/health answered {reply.status}")
        times.append(time.monotonic() - started)
        time.sleep(INTERVAL_SECONDS)
    connection.close()
    return times


if __name__ == "__main__":
    json.dump(probe(int(sys.argv[1]), float(sys.argv[2])), sys.stdout)
