// ---- start ----------------------------------------------------------------------------------------------------------

drawCurves(); // first: its empty panels give the page the height that a permalink scrolls by
startBrowser();
