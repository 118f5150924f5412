"""What a reply says, whatever it is wrapped in: its thinking is left out, its JSON unwrapped, its fields read."""
