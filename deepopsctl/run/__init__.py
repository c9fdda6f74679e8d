"""One Ansible run: request, runner, events, summary, lock, history, plan."""
