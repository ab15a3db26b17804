"""What steps take, for simulators: tables and surfaces of step times."""
