"""Report: a run folder read back and shown, as a table in the terminal and as one page that opens from disk.

`read` turns the folder into one frozen record, and `kinds` says what a report calls things in each kind of run;
`table`, `tiles`, `curves`, `health` and `exchanges` each make a part of the page out of it; `page` puts them together,
with what lies in `web/`. Nothing here decides anything about a run, and nothing here needs torch.
"""
