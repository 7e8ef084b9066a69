"""Tasks as pods, from the template to the end that is reported."""
