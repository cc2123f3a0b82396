"""The fit loop of embedding and neural learners, with its schedules, averages of weights and row-wise Adam."""
