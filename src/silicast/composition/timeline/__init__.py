"""When each kernel starts and ends, and that timeline as a trace."""
