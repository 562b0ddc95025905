"""Shows on this host which protections hold, by trying the attack on each."""
