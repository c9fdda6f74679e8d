"""Web access: notebooks as jobs, one's own jobs, one-time links. `hub/` runs in JupyterHub, the others by themselves.

JupyterHub has no rights on its node. What needs the rights of a user, it asks of `agent`, which becomes that user
first: Slurm decides, as for a command of the user's.
"""

# what JupyterHub and the programs next to it have in common
RUN = "/run/deepops-web"
LINKS = RUN + "/links.sock"
AGENT = "/run/deepops-web-agent.sock"
FILES = "/run/deepops-web-files.sock"
CONFIG = "/etc/deepopsctl/web/web.json"
# how to ask Prometheus: root's alone to read
MONITORING = "/etc/deepopsctl/web/monitoring.json"
