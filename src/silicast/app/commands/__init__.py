"""One module a command; :mod:`silicast.app.cli` imports the one that is called."""
