"""Reads the policy sections of cluster.yml into a PolicyDraft."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from deepopsctl.model.policy import (
    PREEMPT_MODES,
    PREEMPT_TYPES,
    PRIORITY_WEIGHTS,
    Account,
    Billing,
    Preemption,
    Priority,
    Qos,
    Share,
    User,
)
from deepopsctl.policy import values as check
from deepopsctl.policy.builder import Place, PolicyDraft
from deepopsctl.text.answers import items
from deepopsctl.text.problems import RefusedError
from deepopsctl.text.sections import (
    AccountSection,
    BillingSection,
    PreemptionSection,
    PrioritySection,
    QosSection,
    SectionReader,
    UserSection,
    dotted,
)
from deepopsctl.text.values import check_max_time
from deepopsctl.text.yaml_reader import Path

_MODES = partial(check.check_choice, known=tuple(PREEMPT_MODES))


class PolicyReader:
    """Fills a PolicyDraft from the sections of one document."""

    def __init__(self, reader: SectionReader, draft: PolicyDraft) -> None:
        self.reader = reader
        self.draft = draft

    def read(self, whole: Mapping[str, object]) -> None:
        """Read section by section, so that a problem in one does not hide those of others."""
        sections: Mapping[str, Callable[[object, Path], None]] = {
            "qos": self._qos, "accounts": self._account, "users": self._users,
        }  # fmt: skip
        for section, read in sections.items():
            for index, item in enumerate(items(whole.get(section))):
                read(item, (section, index))
        if "priority" in whole:
            self._priority(whole["priority"])
        if "preemption" in whole:
            self._preemption(whole["preemption"])
        if "billing" in whole:
            self._billing(whole["billing"])

    def _qos(self, item: object, path: Path) -> None:
        section = self.reader.fit(QosSection, item, path)
        if section is None:
            self.draft.incomplete = True
            return
        options = {
            "PreemptMode": self._one(path, "preempt_mode", _MODES, section.preempt_mode),
            "GraceTime": self._one(path, "grace_time", check.check_count, section.grace_time),
            "PreemptExemptTime": self._one(path, "exempt_time", check.check_time, section.exempt_time),
            "UsageFactor": self._one(path, "usage_factor", check.check_factor, section.usage_factor),
        }
        qos = Qos(
            name=self.reader.value((*path, "name"), check.check_word, section.name, section.name),
            priority=self._one(path, "priority", check.check_count, section.priority),
            preempts=self._many(path, "preempts", check.check_word, section.preempts),
            flags=self._many(path, "flags", check.check_qos_flag, section.flags),
            limits=self._limits(path, section.limits, check.QOS_LIMITS),
            options={key: value for key, value in options.items() if value},
        )
        self.draft.qos.append((self._place(path), qos))

    def _account(self, item: object, path: Path) -> None:
        section = self.reader.fit(AccountSection, item, path)
        if section is None:
            self.draft.incomplete = True
            return
        account = Account(
            name=self.reader.value((*path, "name"), check.check_word, section.name, section.name),
            parent=self._one(path, "parent", check.check_word, section.parent),
            description=self._one(path, "description", check.check_text, section.description),
            share=self._share(path, section),
            users=self._many(path, "users", check.check_word, section.users),
        )
        self.draft.accounts.append((self._place(path), account))

    def _users(self, item: object, path: Path) -> None:
        section = self.reader.fit(UserSection, item, path)
        if section is None:
            return
        share = self._share(path, section)
        for name in self._many(path, "names", check.check_word, section.names):
            self.draft.users.append((self._place(path), User(name, section.account, section.default, share)))

    def _share(self, path: Path, section: AccountSection | UserSection) -> Share:
        return Share(
            fairshare=self._one(path, "fairshare", check.check_fairshare, section.fairshare),
            qos=self._many(path, "qos", check.check_word, section.qos),
            default_qos=self._one(path, "default_qos", check.check_word, section.default_qos),
            limits=self._limits(path, section.limits, check.ASSOCIATION_LIMITS),
        )

    def _priority(self, item: object) -> None:
        path: Path = ("priority",)
        section = self.reader.fit(PrioritySection, item, path)
        if section is None:
            return
        weights = partial(check.check_weights, known=tuple(PRIORITY_WEIGHTS))
        resets = partial(check.check_choice, known=check.USAGE_RESETS)
        self.draft.priority = Priority(
            weights=self.reader.value((*path, "weights"), weights, section.weights, {}),
            tres_weights=self._one(path, "tres_weights", check.check_tres_weights, section.tres_weights),
            decay_half_life=self._one(path, "decay_half_life", check_max_time, section.decay_half_life),
            usage_reset=self._one(path, "usage_reset", resets, section.usage_reset),
            max_age=self._one(path, "max_age", check_max_time, section.max_age),
            favor_small=section.favor_small,
        )

    def _preemption(self, item: object) -> None:
        path: Path = ("preemption",)
        section = self.reader.fit(PreemptionSection, item, path)
        if section is None:
            self.draft.incomplete = True
            return
        types = partial(check.check_choice, known=tuple(PREEMPT_TYPES))
        self.draft.preemption = Preemption(
            by=self._one(path, "by", types, section.by),
            mode=self._one(path, "mode", _MODES, section.mode) or "requeue",
            exempt_time=self._one(path, "exempt_time", check.check_time, section.exempt_time),
        )

    def _billing(self, item: object) -> None:
        path: Path = ("billing",)
        section = self.reader.fit(BillingSection, item, path)
        if section is None:
            return
        values = {
            gpu_type.lower(): self.reader.value((*path, "gpus", gpu_type), check.check_units, text, 0.0)
            for gpu_type, text in section.gpus.items()
        }
        self.draft.billing = (self._place(path), Billing(values))

    def _one(self, path: Path, key: str, checked: Callable[[str], str], text: str) -> str:
        """An optional value; '' if it is missing or refused."""
        return self.reader.value((*path, key), checked, text, "") if text else ""

    def _many(self, path: Path, key: str, checked: Callable[[str], str], texts: Sequence[str]) -> tuple[str, ...]:
        read = (self.reader.value((*path, key), checked, text, "") for text in texts)
        return tuple(text for text in read if text)

    def _limits(
        self, path: Path, limits: Mapping[str, str], known: Mapping[str, Callable[[str], str]]
    ) -> Mapping[str, str]:
        """Limits by the names of sacctmgr's columns; adds all their problems."""
        by_column: dict[str, str] = {}
        for key, text in limits.items():
            place = (*path, "limits", key)
            name = self.reader.value(place, partial(check.limit_name, known=known), key, "")
            if name in by_column:
                refusal = RefusedError(f"{name} is given twice", "keep one of them")
                self.reader.problems.refuse(self.reader.at(place), dotted(place), refusal)
            elif name:
                by_column[name] = self.reader.value(place, known[name], text, "")
        return {name: text for name, text in by_column.items() if text}

    def _place(self, path: Path) -> Place:
        return Place(self.reader.at(path), dotted(path))
