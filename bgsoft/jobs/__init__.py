"""Work that runs in other processes: tasks, the processes that run them, and who drives both."""
