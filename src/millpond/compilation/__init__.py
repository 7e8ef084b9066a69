"""The scheduler compiled ahead of time: the same sources, translated to C by mypyc, decide alike and twice as fast.

Nothing depends on it. ``pond compile`` builds it once for these sources; a process that imports the scheduler uses the
result where it is there, and the sources else.
"""
