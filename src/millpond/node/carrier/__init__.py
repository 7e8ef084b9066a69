"""The program that carries files into and out of pods. It runs there: see ``program``."""
