"""Which disks can hold the journal: SQLite's write-ahead log needs memory shared by its readers."""

from pathlib import Path

import psutil

from ...errors import InputError

NETWORK = frozenset(
    {
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb3",
        "smbfs",
        "wekafs",
    }
)
"""Types of file systems that several hosts mount; so are all of FUSE whose names say so."""
FUSE = ("fuse.ceph", "fuse.gluster", "fuse.juicefs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs")


def check_journal_disk(state: Path) -> None:
    """Raise InputError where the folder `state`, which need not exist, is on a network file system.

    SQLite rules these out for its write-ahead log (sqlite.org/wal.html, "Disadvantages").
    """
    kind = _filesystem(state.resolve())
    if kind in NETWORK or kind.startswith(FUSE):
        raise InputError(
            f"state: {state} is on {kind}, where SQLite cannot keep the journal safely; name a "
            f"folder on a disk of this host as state, and {state} as shared. If there is a journal "
            "already, move it, the folder profiles and the file token to the new place first"
        )


def _filesystem(path: Path) -> str:
    """Return the type of the file system that `path` is on, "" where nothing says."""
    mounts = {Path(disk.mountpoint): disk.fstype for disk in psutil.disk_partitions(all=True)}
    return next((mounts[folder] for folder in (path, *path.parents) if folder in mounts), "")
