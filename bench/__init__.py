"""Measured speed on this machine, side by side: ``python -m bench``."""
