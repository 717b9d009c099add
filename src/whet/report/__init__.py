"""Report: shows a run folder as a table in the terminal and as one page that opens from disk.

`read` turns the folder into one frozen record (`records`). Its report spec names what the method shows of its runs.
`table`, `stats`, `curves`, `health`, `browser` and `comparison_rows` each make a part of the page. `page` puts them
together, with the files of `web/`. Nothing here decides anything about a run, asks for its method, or needs torch.
"""
