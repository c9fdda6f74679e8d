"""Mail about jobs, with their reports: slurmctld hands it over, and it is sent when the accounting knows the end."""

CONFIG = "/etc/deepopsctl/job-mail.json"
SPOOL = "/var/spool/deepops-job-mail"
# what was sent in the last hour; systemd keeps the directory while the service is stopped
SENT = "/run/deepops-job-mail/sent.json"
