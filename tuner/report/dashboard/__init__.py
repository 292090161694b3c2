"""optuna-dashboard for a study: constraints shown right, notes, artifacts and plots."""

from tuner.report.dashboard.serve import INSTALL, available, make_app, serve

__all__ = ["INSTALL", "available", "make_app", "serve"]
