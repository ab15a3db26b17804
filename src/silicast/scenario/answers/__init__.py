"""One file a task; see :mod:`silicast.scenario.answerer`."""
