"""The checks of the suite `storage` by name, as docs/reference/validate-storage.md defines them."""

from __future__ import annotations

from deepopsctl.checks.catalogue.entry import Entry

_MOUNTS, _FILES, _RATES = "Storage mounts", "Storage across nodes", "Storage rates"
_SLOW = (
    "compare the node's link (`ethtool`, `ibstat`), its mount options and its load with the others'; "
    "measure again with `deepopsctl validate storage --limit NODES`"
)
_CONSISTENCY = "compare the mount's options with the other nodes'; are all of them on the same server and directory?"

STORAGE = {
    "storage-entries": Entry(
        _MOUNTS, "storage", "cluster.yml declares storage to test.", "declare it in cluster.yml: `storage:`"
    ),
    "storage-mounted": Entry(
        _MOUNTS, "mounted", "At the path is a file system of the declared type, from the declared source.",
        "`systemctl status 'PATH-AS-UNIT.mount'` on the node says why; `deepopsctl deploy storage` mounts it",
        "mounted",
    ),
    "storage-options": Entry(
        _MOUNTS, "mount options", "Every declared option that the kernel shows is in force.",
        "`deepopsctl deploy storage`; a mount in use takes new options once it was unmounted: drain the node",
        "options",
    ),
    "storage-answers": Entry(
        _MOUNTS, "answers", "The file system answers in time.",
        "is its server up, and reached from this node? processes that wait for it are in state D (`ps -eo stat,args`)",
        "answers",
    ),
    "storage-root-squash": Entry(
        _MOUNTS, "root squashed", "Root of the node can neither write to a user's directory nor own a user's file.",
        "export it with root_squash: `nfs: {squash: root}` where cluster.yml serves it", "root squash",
    ),
    "storage-quota": Entry(
        _MOUNTS, "quota", "The declared limits are the ones in force on the server.",
        "`deepopsctl deploy storage` sets them; `repquota` on the server shows them", "quota",
    ),
    "storage-write": Entry(
        _FILES, "user can write", "An ordinary user's file is written, forced to the server and read back the same.",
        "see the message; say in cluster.yml where users may write: `user_writable: DIRECTORY`", "write",
    ),
    "storage-visible": Entry(
        _FILES, "others read it", "What one node has written and closed, another that opens it reads.",
        _CONSISTENCY, "visible",
    ),
    "storage-names": Entry(
        _FILES, "others see new names",
        "A name that a node has looked for in vain is seen there once another has made it, within what is promised.",
        "NFS keeps such answers for up to acdirmax (60 s): shorten it with `options: [acdirmax=5]`", "names",
    ),
    "storage-rename": Entry(
        _FILES, "rename is atomic", "A file that another node replaces by rename is always there, and whole.",
        "programs that replace files in place need this: report it to the vendor, keep such files elsewhere",
        "rename",
    ),
    "storage-lock": Entry(
        _FILES, "fcntl locks", "A lock that one node holds is refused to the others, and free again once released.",
        "mount without nolock; Lustre wants the option flock, BeeGFS tuneUseGlobalFileLocks=true", "fcntl",
    ),
    "storage-flock": Entry(
        _FILES, "flock locks", "The same for flock(2).",
        "mount without local_lock; Lustre wants the option flock, BeeGFS tuneUseGlobalFileLocks=true", "flock",
    ),
    "storage-clean": Entry(
        _FILES, "nothing left", "Test files are removed.", "remove the named directory manually", "clean",
    ),
    "storage-write-rate": Entry(_RATES, "write rate", "The node writes as fast as its peers.", _SLOW, "write"),
    "storage-read-rate": Entry(_RATES, "read rate", "The node reads as fast as its peers.", _SLOW, "read"),
    "storage-metadata-rate": Entry(
        _RATES, "file rate", "The node makes and removes files as fast as its peers.", _SLOW, "files",
    ),
    "storage-write-together": Entry(_RATES, "all write", "What all nodes write at the same time.", _SLOW),
    "storage-read-together": Entry(_RATES, "all read", "What all nodes read at the same time.", _SLOW),
    "storage-metadata-together": Entry(_RATES, "all make files", "The files of all nodes at the same time.", _SLOW),
}  # fmt: skip
