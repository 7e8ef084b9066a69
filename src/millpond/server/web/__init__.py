"""The portal: pages for people, made of the answers that the API's own routes give."""
