"""Watch a collective move: schedules, traces, simulation, film and diff."""
