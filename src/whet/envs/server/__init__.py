"""The server of environments: sessions, and the wires by which clients reach them."""
