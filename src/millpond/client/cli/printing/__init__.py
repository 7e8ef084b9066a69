"""What commands print: tables, lists, amounts and the output of jobs."""
