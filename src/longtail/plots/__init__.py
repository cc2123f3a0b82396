"""Figures of all commands: functions that take results and return a matplotlib Figure, and the curves behind them."""
