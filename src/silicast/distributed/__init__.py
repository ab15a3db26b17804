"""Work that many devices share: pipeline schedules, and what makes their times spread."""
