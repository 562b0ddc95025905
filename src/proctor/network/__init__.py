"""The host's side of a sandbox's network: what may be reached, and the only way there."""
