"""The SDK: sandboxes to create, run commands in, and end; the same calls whichever backend holds them."""
