"""Benchmarks of the flex device against stock CPU PyTorch: `python -m bench run`, `list`, `compare`, `plot`,
`instructions`.

What is timed is data: one file a family in `cases`. How it is timed, in this order and for every case in a process of
its own (a fork of a worker that has imported torch and computed nothing):

1. The thread count is set, a few blocks of 30 MB are allocated and freed (glibc's thresholds move while a process is
   young), and the results of both devices are compared. A wrong result is an error, not a row.
2. Calls are counted out so that a window of them takes some milliseconds; that warms up, too.
3. Windows of both devices alternate, the first of a pair in turns. Every pair gives one ratio stock/flex: its median
   is the row's ratio, and the 95 % confidence interval of the median its spread. Pairs during which the process was
   put off the processor are taken again; rows with a wide spread, or too near their mark to tell, get more pairs.
4. Another two processes, one a device, give the peak of resident memory.

A mark is met when the lower end of the spread meets it; fewer than six pairs say nothing of marks. Rows below 1 are
counted and listed, whatever their mark.
"""
