"""Files of other tools: one module a tool, each a reader of hardware, of workloads, or of both."""
