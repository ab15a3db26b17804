"""One folder a task; its ``answerer`` subclasses :class:`silicast.scenario.answerer.Answerer`."""
