"""Where: which node and which of its devices a task goes to.

``arrays`` and ``shapes`` are the words (what is there, what is asked); ``filters`` says whether it fits, ``scoring``
and ``fragmentation`` how well, from the ``tables`` that ``mix`` and ``bid_price`` are folded into; ``links``
chooses devices; ``score_cache``, ``search`` and ``selector`` find the best node at the price of what changed;
``gangs`` places several tasks or none. ``kernels`` switches all of it between interpreted and compiled,
``kernel_warmup`` compiles ahead.
"""
