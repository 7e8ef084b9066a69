"""The reverse proxy: programs that jobs serve, under ``/proxy/JOB/`` of this server, for those who may see them."""
