"""What sandboxes use, what that costs, and how much may be spent; imports only core."""
