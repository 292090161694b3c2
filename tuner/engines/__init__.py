"""Engines: what starts a configuration and replays traffic against it."""
