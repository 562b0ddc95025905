"""What every isolation level does alike, or says that it does not: a suite that shows which on this host."""
