"""Play: roles and flows. Tasks and engines go in, episodes come out; nothing here trains."""
