"""The files that make a minimal Debian a virtual machine. Their content is part of the box's hash."""

from __future__ import annotations

from deepopsctl.lab.rootfs import FILES as LAB_FILES, MASKED_UNITS, WARM_APT, RootFile

USER = "vagrant"
FILE_SYSTEM_LABEL = "root"

# The key pair that Vagrant ships, private half included: any user who reaches a machine made from a box may log in.
INSECURE_KEY = (
    "ssh-rsa AAAAB3NzaC1yc2EAAAABIwAAAQEA6NF8iallvQVp22WDkTkyrtvp9eWW6A8YVr+kz4TjGYe7gHzIw+niNltGEFHzD8+v1I2YJ6oXevct1Y"
    "eS0o9HZyN1Q9qgCgzUFtdOKLv6IedplqoPkcmF0aYet2PkEDo3MlTBckFXPITAMzF8dJSIFo9D8HfdOV0IAdx4O7PtixWKn5y2hMNG0zQPyUecp4pzC6"
    "kivAIhyfHilFR61RGL+GPXQ2MWZWFYbAGjyiYJnAmCP3NOTd0jMZEnDkbUvxhMmBYSdETk1rRgm+R4LOzFUGaHqHDLKLX+FIPKcF96hrucXzcWyLbIbE"
    "gE98OHlnVYCzRdK8jlqm8tehUc9c9WhQ== vagrant insecure public key"
)

# What the lab's nodes have too, and for the same reasons.
SHARED = ("etc/default/locale", "etc/dpkg/dpkg.cfg.d/lab", "etc/apt/apt.conf.d/90lab", "etc/hosts")
# The lab's nodes share a kernel; a virtual machine has its own and starts all that a real one does.
STARTED_UNITS = frozenset({"systemd-sysctl.service", "getty.target"})

FILES = {name: LAB_FILES[name] for name in SHARED} | {
    "etc/fstab": RootFile(0o644, f"LABEL={FILE_SYSTEM_LABEL} / ext4 errors=remount-ro 0 1\n"),
    f"etc/sudoers.d/{USER}": RootFile(0o440, f"{USER} ALL=(ALL:ALL) NOPASSWD:ALL\n"),
    f"home/{USER}/.ssh/authorized_keys": RootFile(0o600, INSECURE_KEY + "\n"),
    "etc/ssh/sshd_config.d/10-box.conf": RootFile(0o644, "UseDNS no\nGSSAPIAuthentication no\n"),
    # only the first: Vagrant writes a file of its own for each further network
    "etc/systemd/network/80-first.network": RootFile(
        0o644,
        # by MAC, or all machines of a box, whose machine-ids come later than their first request, seem one
        "[Match]\nName=eth0\n\n[Network]\nDHCP=yes\nIPv6AcceptRA=no\n\n[DHCPv4]\nClientIdentifier=mac\n",
    ),
    "etc/systemd/system/box-host-key.service": RootFile(
        0o644,
        # one kind is enough: RSA takes half a minute on an emulated CPU
        """[Unit]
Description=Give the machine its own host key
ConditionPathExists=!/etc/ssh/ssh_host_ed25519_key
Before=ssh.service ssh.socket

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=ssh-keygen -q -t ed25519 -N "" -f /etc/ssh/ssh_host_ed25519_key

[Install]
WantedBy=multi-user.target
""",
    ),
}

# What the initramfs holds: what the disk is reached by, and no more. Small is quick on an emulated CPU.
EARLY = (
    ("etc/initramfs-tools/conf.d/box", r"MODULES=list\n"),
    ("usr/share/initramfs-tools/modules.d/box", r"virtio_pci\nvirtio_blk\next4\n"),
)
ENABLED_UNITS = ("box-host-key.service", "systemd-networkd.service", "systemd-resolved.service")
# Seconds each on an emulated CPU: GRUB's count of failed boots, and clearing up after checks that are not run here.
UNWANTED_UNITS = ("grub-common.service", "grub-initrd-fallback.service", "e2scrub_reap.service")
GRUB_MODULES = "biosdisk part_msdos ext2 normal linux"

# Run in the new root by mmdebstrap, after the packages are in. GRUB's two pieces go into the disk's first sectors
# by disk.py: grub-install wants a block device.
FINISH = f"""set -e
chown -R {USER}:{USER} /home/{USER}
chmod 700 /home/{USER}/.ssh
passwd --quiet --lock root
rm -f /etc/ssh/ssh_host_* /etc/resolv.conf
ln -s /run/systemd/resolve/stub-resolv.conf /etc/resolv.conf
systemctl --quiet enable {" ".join(ENABLED_UNITS)}
systemctl --quiet mask {" ".join(sorted(set(MASKED_UNITS) - STARTED_UNITS))} {" ".join(UNWANTED_UNITS)}
grub-mkimage -O i386-pc -p '(hd0,msdos1)/boot/grub' -o /boot/grub/core.img {GRUB_MODULES}
cp /usr/lib/grub/i386-pc/boot.img /boot/grub/
: > /etc/machine-id
{WARM_APT}# nothing was changed offline: no ldconfig and its like at the first boot
touch /etc/.updated /var/.updated
"""


def grub_config(kernel_options: str) -> RootFile:
    """GRUB's menu of one entry."""
    options = f"root=LABEL={FILE_SYSTEM_LABEL} ro console=ttyS0 net.ifnames=0 quiet {kernel_options}".rstrip()
    return RootFile(
        0o644, f"set timeout=0\nmenuentry Debian {{\n  linux /vmlinuz {options}\n  initrd /initrd.img\n}}\n"
    )
