"""Mail about jobs, with their reports: slurmctld hands it over, and it is sent when the accounting knows the end."""

CONFIG = "/etc/deepopsctl/job-mail.json"
SPOOL = "/var/spool/deepops-job-mail"
