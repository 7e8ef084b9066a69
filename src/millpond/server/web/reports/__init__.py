"""The pages about what was: who used what, who waited, and what another policy would have done."""
