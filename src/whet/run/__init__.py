"""One run: how it is prepared, begun, resumed, loaded, planned and measured."""
