"""Files of measurements: schema, reading, appending, rejected rows."""
