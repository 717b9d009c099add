"""Report: a run folder read back and shown, as a table in the terminal and as one page that opens from disk.

`read` turns the folder into one frozen record (`records`), whose sheet says what the method shows of its runs and in
which words; `table`, `stats`, `curves`, `health`, `browser` and `others` each make a part of the page out of it; `page`
puts them together, with what lies in `web/`. Nothing here decides anything about a run, asks which method it is of, or
needs torch.
"""
