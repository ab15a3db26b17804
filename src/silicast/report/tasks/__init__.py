"""Answers of each task on one screen."""
