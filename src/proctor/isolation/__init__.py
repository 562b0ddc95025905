"""Walls between programs and the host: one way to start an agent behind each."""
