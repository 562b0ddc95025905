"""Read-only roots for programs."""
