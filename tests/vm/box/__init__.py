"""The box: a Debian disk image for Vagrant and QEMU, built from packages alone, without a loop device."""
