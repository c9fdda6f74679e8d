"""Policy -> the policy sections of cluster.yml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from deepopsctl.model.policy import Account, Policy, Preemption, Priority, Qos, Share, User
from deepopsctl.text.yaml_writer import flow

_QOS_OPTIONS = {
    "PreemptMode": "preempt_mode", "GraceTime": "grace_time", "PreemptExemptTime": "exempt_time",
    "UsageFactor": "usage_factor",
}  # fmt: skip


def policy_lines(policy: Policy) -> Iterator[str]:
    """Lines of cluster.yml; empty without a policy."""
    for section, entry in (("priority", _priority(policy.priority)), ("preemption", _preemption(policy.preemption))):
        if entry:
            yield from ("", f"{section}: {flow(entry)}")
    if policy.billing:
        yield from ("", f"billing: {flow({'gpus': policy.billing.gpus} if policy.billing.gpus else {})}")
    for section, entries in (
        ("qos", [_qos(qos) for qos in policy.qos]),
        ("accounts", [_account(account) for account in policy.accounts]),
        ("users", [_user(user) for user in policy.users]),
    ):
        if entries:
            yield from ("", f"{section}:", *(f"  - {flow(entry)}" for entry in entries))


def _filled(entry: Mapping[str, object]) -> dict[str, object]:
    """An entry without empty values; numeric strings become integers."""
    return {key: _plain(value) for key, value in entry.items() if value not in ("", (), {}, False)}


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, str):
        return int(value) if value.isdecimal() and str(int(value)) == value else value
    return list(value) if isinstance(value, Sequence) else value


def _qos(qos: Qos) -> dict[str, object]:
    options = {_QOS_OPTIONS[key]: value for key, value in qos.options.items()}
    entry = {"name": qos.name, "priority": qos.priority, "preempts": qos.preempts, **options}
    return _filled(entry | {"flags": qos.flags, "limits": qos.limits})


def _share(share: Share) -> dict[str, object]:
    return {
        "fairshare": share.fairshare,
        "qos": share.qos,
        "default_qos": share.default_qos,
        "limits": share.limits,
    }


def _account(account: Account) -> dict[str, object]:
    parent = "" if account.parent == "root" else account.parent
    placed = {"name": account.name, "parent": parent, "description": account.description}
    return _filled(placed | _share(account.share) | {"users": account.users})


def _user(user: User) -> dict[str, object]:
    placed = {"names": (user.name,), "account": user.account, "default": user.default}
    return _filled(placed | _share(user.share))


def _priority(priority: Priority) -> dict[str, object]:
    return _filled({
        "weights": priority.weights,
        "tres_weights": priority.tres_weights,
        "decay_half_life": priority.decay_half_life,
        "usage_reset": priority.usage_reset,
        "max_age": priority.max_age,
        "favor_small": priority.favor_small,
    })  # fmt: skip


def _preemption(preemption: Preemption) -> dict[str, object]:
    if not preemption.by:
        return {}
    return _filled({"by": preemption.by, "mode": preemption.mode, "exempt_time": preemption.exempt_time})
