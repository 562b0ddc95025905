"""Runs jobs: admits them, leases slots, replaces agents, retries its own faults."""
