"""Commands that submit jobs."""
