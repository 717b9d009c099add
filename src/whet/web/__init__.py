"""What both servers of whet share: the gate before every request, and the loop that serves until a signal."""
