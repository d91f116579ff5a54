"""NeMo Gym: what an agent server needs to run OpenHands through the proxy and to train on what was captured."""
