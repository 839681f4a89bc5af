"""Work in other processes: tasks, the processes that run them, and their driver."""
